"""Compile every kernel, or take it from numba's cache, before the first request needs it."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from index.backends import make_backend
from index.hits import RowView
from index.params import CollectionConfig, ExactParams, GcwsParams, SearchParams, Transform
from index.rows import GrowingRows
from index.similarity import gmm, gmm_matrix
from index.vectors import SparseVector, VectorSpace

Progress = Callable[[int, int, str], None]
"""Called with (steps done, steps in all, name of the step now done)."""

_ROWS = 1100  # enough for postings and for a second segment of tables


def compile_kernels(progress: Progress | None = None) -> float:
    """Run each kernel once on small made data; return the seconds it took.

    The first run on a machine compiles for its processor, which takes most of a minute; later ones
    read numba's cache (beside the sources, or in the folder NUMBA_CACHE_DIR names).
    """
    started = time.perf_counter()
    steps: list[tuple[str, Callable[[], None]]] = [
        ("dense rows", lambda: _exercise(dim=24)),
        ("sparse rows", lambda: _exercise(dim=None)),
        ("transforms", _transform),
        ("whole keys", _classical),
    ]
    for done, (name, step) in enumerate(steps):
        step()
        if progress is not None:
            progress(done + 1, len(steps), name)
    return time.perf_counter() - started


def _vectors(dim: int | None) -> list[list[float]] | list[SparseVector]:
    rng = np.random.default_rng(0)
    if dim is not None:
        dense: list[list[float]] = rng.standard_normal((_ROWS, dim)).tolist()
        return dense
    return [SparseVector(rng.permutation(40)[:6], rng.standard_normal(6)) for _ in range(_ROWS)]


def _exercise(*, dim: int | None) -> None:
    config = CollectionConfig(dim=dim, backend=GcwsParams(bands=4))
    space = VectorSpace.of(config)
    batch = space.prepare(space.from_items(_vectors(dim)))
    rows = GrowingRows(config.form, config.dim)
    rows.append(batch)
    backend = make_backend(config, threads=1)
    codes = backend.encode(batch)
    state = backend.extend(backend.empty(), rows.view()[:1000], codes[:1000])
    state = backend.extend(state, rows.view(), codes[1000:])
    state = backend.renumber(state, rows.view(), np.arange(_ROWS))
    view = RowView(rows.view(), np.ones(_ROWS, np.uint8), _ROWS)
    query = rows.view()[:1]
    for recall in (0.5, 1.0):
        backend.search(state, view, query, SearchParams(limit=3, recall=recall))
    backend.search(state, view, query, SearchParams(limit=3, recall=0.5, min_score=0.99))
    backend.pairs(state, view, min_score=0.99, recall=0.5)
    gmm(query, rows.view()[1:2])
    gmm_matrix(rows.view()[:2], rows.view()[:2])


def _transform() -> None:
    for dim in (4, None):
        config = CollectionConfig(
            dim=dim, transform=Transform(power=0.5, normalize="l2"), backend=ExactParams()
        )
        space = VectorSpace.of(config)
        space.prepare(space.from_items([SparseVector([1, 3], [0.5, -2.0])]))


def _classical() -> None:
    config = CollectionConfig(dim=24, backend=GcwsParams(bands=4, band_width=2))
    space = VectorSpace.of(config)
    batch = space.prepare(space.from_items(_vectors(24)[:8]))
    make_backend(config, threads=1).encode(batch)
