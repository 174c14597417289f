"""The profile of a collection: similarities of items, non-zero counts, sizes of buckets."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gcws_search.index.backends import GcwsBackend
from gcws_search.index.collection.items import View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.arrays import AnyArray, Float64s, Int64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.hits import BatchHits
from gcws_search.index.contracts.parameters import KEY_BITS, SearchParams
from gcws_search.index.hashing.banding import match_probabilities
from gcws_search.index.similarities import gmm_matrix

PROFILE_SAMPLE: Final = 1_000
MAX_PROFILE_SAMPLE: Final = 10_000
_LARGEST: Final = 10
"""Buckets that are named of each depth."""
_PARTNERS: Final = 10
"""Random items that each item of the sample is compared with, itself left out."""
_TOGETHER: Final = 16
_BINS: Final = 50
"""Of similarities, each 0.02 wide."""
_COUNT_BINS: Final = 32
"""Of counts of non-zeros, at most."""
_RECALL: Final = 0.95
_NEIGHBOURS: Final = 10
_SCANNED_NUMBERS: Final = 2 * 10**10
_MIN_SEARCHED: Final = 32
"""Without a graph every search may be a scan. So the neighbours are those of as many items as
scans that read `_SCANNED_NUMBERS` in all can answer, and of `_MIN_SEARCHED` at least."""


def _depths(backend: GcwsBackend, view: View, similarities: Float64s) -> list[dict[str, Any]]:
    """Return statistics for each depth of the band keys, from one sample on.

    samples: number of samples that the rows of a bucket share.
    probabilities: by similarity, a lower bound of the chance that a pair shares a bucket.
    buckets: number of buckets in the first table, without rows of the delta.
    mean_size: mean size of an item's bucket, averaged over the items.
    largest: at most ten buckets, the largest first, each with the id of one item.
    """
    plan, tables = backend.plan, view.state.tables
    if not tables.bands:
        tables = backend.band_keys.widen(tables, view.vectors, 1, backend.workers)
    segments = tables.segments
    keys = np.concatenate([np.empty(0, np.uint64), *(each.keys[0] for each in segments)])
    rows = np.concatenate([np.empty(0, np.int32), *(each.rows[0] for each in segments)])
    live = np.flatnonzero(view.alive[rows])
    if len(segments) > 1:
        live = live[np.argsort(keys[live], kind="stable")]
    keys, rows = keys[live], rows[live]
    found = []
    for depth in range(1, plan.depths + 1):
        prefixes = keys >> np.uint64(KEY_BITS - depth * plan.bits)
        starts = np.flatnonzero(np.diff(prefixes, prepend=~prefixes[:1]))
        sizes = np.diff(starts, append=len(keys))
        largest = np.argsort(-sizes, kind="stable")[:_LARGEST].tolist()
        shared = 1.0 - (1.0 - match_probabilities(plan, similarities, depth)) ** plan.bands
        found.append(
            {
                "samples": depth * plan.step,
                "probabilities": shared.tolist(),
                "buckets": len(sizes),
                "mean_size": float(np.square(sizes.astype(float)).sum() / max(1, len(keys))),
                "largest": [
                    {"size": int(sizes[i]), "id": view.ids[rows[starts[i]]]} for i in largest
                ],
            }
        )
    return found


def profile(
    memory: MemoryCollection, *, sample: int = PROFILE_SAMPLE, seed: int = 0
) -> dict[str, Any]:
    """Return statistics of a sample of a collection's transformed items, as JSON.

    Histograms have ascending ``edges`` and the ``counts`` between them. They show the GMM of random
    pairs, the GMM of an item with its nearest and tenth nearest (searched with recall 0.95), and
    the number of non-zero coordinates. A value on an edge counts above it; on the last edge, below.

    sample: maximum number of sampled items, 1 to `MAX_PROFILE_SAMPLE`.
    seed: of the samples of items and pairs.
    Raises InvalidParameter (an argument is out of range).
    """
    for name, value, low, high in (
        ("sample", sample, 1, MAX_PROFILE_SAMPLE),
        ("seed", seed, 0, 2**63 - 1),
    ):
        if not low <= value <= high:
            raise InvalidParameter(expected=f"{low} to {high}", got=str(value), loc=(name,))
    view, backend = memory.view, memory.backend
    rng = np.random.default_rng(seed)
    live = np.flatnonzero(view.alive)
    rows = rng.choice(live, min(sample, len(live)), replace=False)
    first, tenth = _neighbours(memory, view, rows)
    nonzeros, negative = _values(view.vectors[rows])
    similarities = np.linspace(0.0, 1.0, _BINS + 1)
    return {
        "items": view.count,
        "sample": len(rows),
        "pairs": _histogram(_pairs(view, live, rows, rng), similarities),
        "first": _histogram(first, similarities),
        "tenth": _histogram(tenth, similarities),
        "nonzeros": _histogram(nonzeros, _whole_edges(nonzeros)),
        "negative": negative,  # share of the non-zero coordinates
        "similarities": similarities.tolist(),
        "depths": _depths(backend, view, similarities) if isinstance(backend, GcwsBackend) else [],
    }


def _pairs(view: View, live: Int64s, rows: Int64s, rng: np.random.Generator) -> Float64s:
    """Return the GMM of items of the sample with random other items.

    ``rows`` are in random order. Neighbouring items share their partners, so that one kernel call
    handles all of them and holds the interpreter lock for less time.
    """
    found = [np.empty(0)]
    for first in range(0, len(rows), _TOGETHER):
        some, partners = rows[first : first + _TOGETHER], rng.choice(live, _PARTNERS)
        scores = gmm_matrix(view.vectors[some], view.vectors[partners]).astype(np.float64)
        found.append(scores[some[:, None] != partners])
    return np.clip(np.concatenate(found), 0.0, 1.0)


def _neighbours(memory: MemoryCollection, view: View, rows: Int64s) -> tuple[Float64s, Float64s]:
    """Return the GMM of items with their nearest, and with their tenth nearest."""
    reached = _SCANNED_NUMBERS // max(1, view.vectors.numbers)
    rows = rows[: max(_MIN_SEARCHED, reached)]
    params = SearchParams(limit=_NEIGHBOURS, recall=_RECALL)
    found = memory.search_rows(view, view.alive, view.vectors[rows], params, skip=rows)
    return _scores_at(found, 1), _scores_at(found, _NEIGHBOURS)


def _scores_at(found: BatchHits, rank: int) -> Float64s:
    """Return the scores of the hits at a rank, for the queries that have one."""
    present = found.sizes >= rank
    return found.scores[present, rank - 1] if present.any() else np.empty(0)


def _values(sample: VectorBatch) -> tuple[Int64s, float]:
    """Return (m,) the number of non-zero values of each vector, and the share of negative ones."""
    if sample.form == "dense":
        counts = np.count_nonzero(sample.dense, axis=1)
        negative = np.count_nonzero(sample.dense < 0)
    else:
        counts = np.diff(sample.indptr)
        negative = np.count_nonzero(sample.slots % 2)
    return counts.astype(np.int64), float(negative / max(1, counts.sum()))


def _whole_edges(counts: Int64s) -> Float64s:
    """Return integer edges for at most `_COUNT_BINS` bins."""
    low, high = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
    step = -(-(high + 1 - low) // _COUNT_BINS)
    return np.arange(low, high + 1 + step, step, dtype=np.float64)


def _histogram(values: AnyArray, edges: Float64s) -> dict[str, Any]:
    return {"edges": edges.tolist(), "counts": np.histogram(values, edges)[0].tolist()}
