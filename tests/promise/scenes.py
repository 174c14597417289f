"""What is searched: stored vectors with a class each, and held-out queries with theirs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.datasets import Vectors, load, made

STORED: Final = 30_000
"""Rows stored at most: as many as the graph needs to pay, and few enough to scan for the truth."""
COPIES: Final = 1000
"""Of a row that comes very often; fewer where few rows are stored."""
WORDS: Final = "news20 words"
REAL: Final = (
    *("fashion_mnist", "letter", "covtype93k", "dailysports_frames", "news20", "muv_ecfp4"),
    WORDS,
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A collection and the queries sent to it.

    ``stored``: (n, dim) float32 or CSR. ``classes``: what a filter can ask for. ``queries``: not
    stored. ``query_classes``: (m,) int64.
    """

    name: str
    stored: Any
    classes: NDArray[np.int64]
    queries: Any
    query_classes: NDArray[np.int64]


def scenes(
    folder: Path | None, names: list[str], queries: int, stored: int = STORED
) -> Iterator[Scene]:
    """Yield the scenes of these names, of so many rows; real ones are read from ``folder``."""
    for name in names:
        if name in REAL:
            if folder is not None:
                yield real(name, folder, queries, stored)
        else:
            yield MADE[name](queries, stored)


def real(name: str, folder: Path, queries: int, stored: int = STORED) -> Scene:
    """Return a data set with its labels; `muv` has none, and takes the number of non-zeros.

    Vectors of words have none, either, and take their position.
    """
    vectors = load(name, folder).vectors
    if name == WORDS:
        return _scene(name, vectors, _tenths(vectors), queries, stored)
    with np.load(folder / f"{name}.npz") as file:
        labels = np.asarray(file["y"]).astype(np.int64)
    if len(labels) != vectors.shape[0]:  # zero rows were left out
        labels = _labels_of_non_zero(folder / f"{name}.npz", labels)
    if name == "muv_ecfp4":
        sizes = np.diff(vectors.indptr)
        labels = np.searchsorted(np.quantile(sizes, np.arange(1, 10) / 10), sizes)
    return _scene(name, vectors, labels, queries, stored)


def _labels_of_non_zero(path: Path, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    with np.load(path) as file:
        kept: NDArray[np.int64] = labels[np.abs(file["X"]).sum(axis=1) > 0]
        return kept


def _scene(
    name: str, vectors: Vectors, labels: NDArray[np.int64], queries: int, stored: int
) -> Scene:
    order = np.random.default_rng(7).permutation(vectors.shape[0])
    asked, kept = order[:queries], np.sort(order[queries : queries + stored])
    return Scene(name, vectors[kept], labels[kept], vectors[asked], labels[asked])


def by_position(queries: int, stored: int = STORED) -> Scene:
    """Return clustered rows whose class follows their position: tenths along one direction."""
    vectors = made(rows=stored + queries, dim=64, seed=5)
    return _scene("made by position", vectors, _tenths(vectors), queries, stored)


def _tenths(vectors: Vectors) -> NDArray[np.int64]:
    """Return in which tenth of the rows, along one direction, each is."""
    direction = np.random.default_rng(3).standard_normal(vectors.shape[1])
    along = vectors @ direction / np.abs(vectors).sum(axis=1)
    tenths: NDArray[np.int64] = np.searchsorted(np.quantile(along, np.arange(1, 10) / 10), along)
    return tenths


def by_cluster(queries: int, stored: int = STORED) -> Scene:
    """Return ten broad classes of rows, each of many clusters."""
    rng = np.random.default_rng(11)
    centres = rng.standard_t(3, (10, 64))
    rows, clusters = stored + queries, stored // 100
    labels = rng.integers(10, size=rows)
    middles = rng.standard_t(3, (clusters, 64)) / 2
    parts = centres[labels] + middles[rng.integers(clusters, size=rows)]
    vectors = parts + rng.standard_t(3, parts.shape) / 4
    return _scene("made by cluster", vectors.astype(np.float32), labels, queries, stored)


def in_a_cube(queries: int, stored: int = STORED) -> Scene:
    """Return clustered rows that lie within 0 and 1: greater values have no room in their bytes."""
    rng = np.random.default_rng(17)
    centres = rng.uniform(0.2, 1.0, (stored // 100, 48))
    labels = rng.integers(len(centres), size=stored + queries)
    vectors = centres[labels] + 0.2 * rng.standard_normal((len(labels), 48))
    return _scene(
        "made in a cube", vectors.clip(0, 1).astype(np.float32), labels % 10, queries, stored
    )


def in_a_tight_group(queries: int, stored: int = STORED) -> Scene:
    """Return clustered rows, one of them in many variants; the queries are beside these, or these.

    All variants are about as far from each other, so that no link leads nearer to a query.
    """
    rng, times = np.random.default_rng(19), stored // 20
    vectors = made(rows=stored, dim=256, seed=8)
    variants = vectors[:1] * (1 + 0.01 * rng.standard_normal((times, vectors.shape[1])))
    kept = np.concatenate([vectors, variants.astype(np.float32)])
    order = rng.permutation(len(kept))
    beside = vectors[:1] * (1 + 0.02 * rng.standard_normal((queries, vectors.shape[1])))
    asked = np.where(
        np.arange(queries)[:, None] % 2 == 0, beside, variants[rng.integers(times, size=queries)]
    )
    return Scene(
        "one row in many variants",
        kept[order],
        (order >= len(vectors)).astype(np.int64),
        asked.astype(np.float32),
        np.ones(queries, np.int64),
    )


def beside_a_tight_group(queries: int, stored: int = STORED) -> Scene:
    """Return clustered rows, one of them in sixty variants; a query is far from all of these.

    A short search finds a few of them, which are all about as far, and nothing else as near.
    """
    rng = np.random.default_rng(100)
    vectors = made(rows=stored, dim=64, seed=5)
    variants = vectors[:1] * (1 + 0.001 * rng.standard_normal((60, vectors.shape[1])))
    asked = vectors[:1] * (1 + 0.3 * rng.standard_normal((queries, vectors.shape[1])))
    kept = np.concatenate([vectors, variants])
    order = rng.permutation(len(kept))
    return Scene(
        "beside sixty variants",
        kept[order].astype(np.float32),
        (order >= len(vectors)).astype(np.int64),
        asked.astype(np.float32),
        np.ones(queries, np.int64),
    )


def _with_copies(name: str, rows: int, jitter: float, queries: int, stored: int = STORED) -> Scene:
    """Return clustered rows, some of them very often; every other query is near one of those.

    At most a twelfth is of one row, and a third of ten.
    """
    times = min(COPIES, stored // (12 if rows == 1 else 30))
    rng = np.random.default_rng(13)
    vectors = made(rows=stored - rows * times + queries, dim=48, seed=6)
    asked, others = vectors[:queries].copy(), vectors[queries:]
    copied = others[rng.choice(len(others), rows, replace=False)]
    copies = np.repeat(copied, times, axis=0)
    copies *= 1 + jitter * rng.standard_normal(copies.shape)
    near = copied[rng.integers(rows, size=(queries + 1) // 2)]
    asked[::2] = near * (1 + 0.02 * rng.standard_normal(near.shape))
    kept = np.concatenate([others, copies]).astype(np.float32)
    order = rng.permutation(len(kept))
    is_copy = (order >= len(others)).astype(np.int64)
    return Scene(name, kept[order], is_copy, asked, (np.arange(queries) % 2 == 0).astype(np.int64))


one_row_many_times = partial(_with_copies, "one row 1,000 times", 1, 0.0)
jittered_copies = partial(_with_copies, "jittered copies", 10, 1e-4)
MADE: Final[dict[str, Callable[..., Scene]]] = {
    "made by position": by_position,
    "made by cluster": by_cluster,
    "made in a cube": in_a_cube,
    "one row 1,000 times": one_row_many_times,
    "ten rows 1,000 times": partial(_with_copies, "ten rows 1,000 times", 10, 0.0),
    "jittered copies": jittered_copies,
    "one row in many variants": in_a_tight_group,
    "beside sixty variants": beside_a_tight_group,
}
