"""Bands as a whole: which similarities share a bucket, and how large buckets are."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from gcws_search.index.backends import GcwsBackend
from gcws_search.index.collection.items import View
from gcws_search.index.contracts.arrays import Float64s
from gcws_search.index.contracts.parameters import KEY_BITS
from gcws_search.index.hashing.banding import BandPlan, match_probabilities

_LARGEST: Final = 10


class Bucket(NamedTuple):
    """One bucket: how many items it has, and the id of one of them."""

    size: int
    id: str


class Depth(NamedTuple):
    """What one depth of the collection's keys does.

    Attributes
    ----------
    samples : int
        How many samples a bucket's rows share.
    probabilities : (s,) float64
        At least the chance that a pair shares a bucket in some band, for each similarity.
    buckets : int
        Of the first table.
    mean_size : float
        Of the bucket that an item lies in, on average over the items.
    largest : list of Bucket
        At most ten, the largest first.
    """

    samples: int
    probabilities: Float64s
    buckets: int
    mean_size: float
    largest: list[Bucket]

    def to_dict(self) -> dict[str, Any]:
        """Return the parts as the API shows them."""
        return {
            **self._asdict(),
            "probabilities": self.probabilities.tolist(),
            "largest": [each._asdict() for each in self.largest],
        }


def depths(backend: GcwsBackend, view: View, similarities: Float64s) -> list[Depth]:
    """Return what each depth does, from one sample on.

    Parameters
    ----------
    view : View
        Of its collection. Rows of the delta lie in no bucket yet, and are left out.
    similarities : (s,) float64
    """
    plan, segments = backend.plan, view.state.tables.segments
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
        largest = np.argsort(-sizes, kind="stable")[:_LARGEST]
        found.append(
            Depth(
                depth * plan.step,
                _collisions(plan, similarities, depth),
                len(sizes),
                float(np.square(sizes.astype(np.float64)).sum() / max(1, len(keys))),
                [Bucket(int(sizes[i]), view.ids[rows[starts[i]]]) for i in largest.tolist()],
            )
        )
    return found


def _collisions(plan: BandPlan, similarities: Float64s, depth: int) -> Float64s:
    """Return the S-curve 1 − (1 − p^d)^L."""
    one = match_probabilities(plan, similarities, depth)
    curve: Float64s = 1.0 - (1.0 - one) ** plan.bands
    return curve
