"""Weights of coordinates: given with a collection, or learned from its items.

The transform first centres vectors and multiplies them by the weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
import orjson

from gcws_search.index.contracts.arrays import Float64s, Int32s, Int64s
from gcws_search.index.contracts.batches import RawBatch
from gcws_search.index.contracts.parameters import CENTRING_KINDS, WeightKind
from gcws_search.index.contracts.saved_index import (
    array_of,
    array_text,
    count_of,
    fields_of,
    number_of,
    with_checksum,
    without_checksum,
)

MAX_SAMPLED_NUMBERS: Final = 1 << 26
"""Of dense items, by which quantiles are found: 256 MiB."""
_MAX_COUNT: Final = 1 << 62
_ARRAYS: Final = {"center": "<f8", "weights": "<f8", "coordinates": "<i4"}
_QUARTILES: Final = (25, 50, 75)


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Weights in the form in which they are applied: ``(x - center) * weights``.

    kind: "list": they were given.
    version: number of times that a collection's weights have been set since creation.
    learned: seconds since 1970; 0 for weights given at creation.
    items: number of items from which they were learned; 0 for a list.
    weights: (c,) float64, above 0.
    center: (c,) float64, for dense rows; None for no centring.
    coordinates: (c,) int32, ascending: the coordinates that have the weights; None: all, in order.
    default: weight of all other coordinates.
    """

    kind: WeightKind | Literal["list"]
    weights: Float64s
    version: int = 0
    learned: int = 0
    items: int = 0
    center: Float64s | None = None
    coordinates: Int32s | None = None
    default: float = 1.0

    def of(self, indices: Int32s) -> Float64s:
        """Return the weights of some coordinates."""
        known = self.coordinates
        if known is None:
            return self.weights[indices]
        if not len(known):
            return np.full(len(indices), self.default)
        places = np.minimum(np.searchsorted(known, indices), len(known) - 1)
        found: Float64s = np.where(known[places] == indices, self.weights[places], self.default)
        return found

    def widened(self, count: int) -> Weights:
        """Return the weights with ``count`` more coordinates, which have the default weight."""
        more = np.full(count, self.default)
        center = None if self.center is None else np.append(self.center, np.zeros(count))
        return Weights(self.kind, np.append(self.weights, more), center=center)

    def to_text(self) -> str:
        """Return the weights in the form of a file."""
        document: dict[str, Any] = {
            "kind": self.kind,
            "version": self.version,
            "learned": self.learned,
            "items": self.items,
            "default": self.default,
        }
        for name, dtype in _ARRAYS.items():
            array = getattr(self, name)
            document[name] = None if array is None else array_text(array, dtype)
        return with_checksum(orjson.dumps(document))

    @classmethod
    def from_text(cls, text: str) -> Weights:
        """Inverse of `to_text`; ValueError if the text is damaged."""
        found = fields_of(orjson.loads(without_checksum(text)))
        try:
            arrays = {
                name: None if found[name] is None else array_of(found[name], dtype)
                for name, dtype in _ARRAYS.items()
            }
            kind, weights = found["kind"], arrays["weights"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"invalid weights ({error!r})") from error
        if kind not in ("list", *get_args(WeightKind)) or weights is None:
            raise ValueError(f"unknown kind of weights {str(kind)[:40]!r}")
        if not ((weights > 0) & np.isfinite(weights)).all():
            raise ValueError("a weight is not above 0")
        for name in ("center", "coordinates"):
            other = arrays[name]
            if other is not None and not (len(other) == len(weights) and np.isfinite(other).all()):
                raise ValueError(f"{name} is not as long as the weights, or not finite")
        coordinates: Any = arrays["coordinates"]
        if coordinates is not None and (np.diff(coordinates) <= 0).any():
            raise ValueError("coordinates are not increasing")
        return cls(
            kind,
            weights,
            version=count_of(found.get("version"), 0, _MAX_COUNT),
            learned=count_of(found.get("learned"), 0, _MAX_COUNT),
            items=count_of(found.get("items"), 0, _MAX_COUNT),
            center=arrays["center"],
            coordinates=coordinates,
            default=number_of(found.get("default"), np.finfo(float).tiny, np.finfo(float).max),
        )


def fixed(weights: Iterable[float], version: int = 0, learned: int = 0) -> Weights:
    """Return given weights, one per coordinate."""
    return Weights("list", np.array([*weights], np.float64), version, learned)


def learn(
    kind: WeightKind, batches: Iterator[RawBatch], dim: int | None, *, version: int, learned: int
) -> Weights | None:
    """Return weights learned from items; None if there are no items.

    standard: 1/σ, the centre the mean; robust: 1/(distance of the quartiles), the centre the
    median; max: 1/max|x|; idf: ln((1 + n)/(1 + df)) + 1, df the number of items in which a
    coordinate is not zero. Sparse rows have no centre. A coordinate that has the same value in all
    items has the weight 1, except for idf. Coordinates that no sparse row has get the weight of df
    = 0, or 1.

    batches: of at least one vector each; dense for robust.
    """
    moments: _DenseMoments | _SparseMoments | None = None
    kept: list[RawBatch] = []
    for batch in batches:
        if moments is None:
            moments = _DenseMoments(dim or 0) if batch.form == "dense" else _SparseMoments()
        moments.add(batch)
        if kind == "robust":
            kept.append(batch)
    if moments is None:
        return None
    n, center = moments.count, None
    default = 1.0
    if kind == "idf":
        weights = np.log((1 + n) / (1 + moments.non_zero)) + 1
        default = math.log(1 + n) + 1
    elif kind == "max":
        weights = _inverse(moments.largest, moments.largest == 0)
    elif kind == "standard":
        mean, variance = moments.mean_and_variance()
        # scikit-learn separates constant columns from those of small variance in the same way.
        epsilon = np.finfo(np.float64).eps
        constant = variance <= n * epsilon * variance + (n * mean * epsilon) ** 2
        weights, center = _inverse(np.sqrt(variance), constant), mean
    else:
        rows = np.concatenate([batch.dense for batch in kept]).astype(np.float64)
        low, center, high = np.percentile(rows, _QUARTILES, axis=0)
        weights = _inverse(high - low, high == low)
    coordinates = moments.coordinates if isinstance(moments, _SparseMoments) else None
    return Weights(
        kind,
        weights,
        version,
        learned,
        n,
        center if coordinates is None and kind in CENTRING_KINDS else None,
        coordinates,
        default,
    )


def _inverse(scales: Float64s, constant: Any) -> Float64s:  # noqa: ANN401  # (c,) bool
    """Return 1/scale, or 1 if a coordinate is constant."""
    found: Float64s = 1 / np.where(constant, 1.0, scales)
    return found


def _merge_moments(
    mean: Float64s,
    squares: Float64s,
    n: Int64s | int,
    other: tuple[Float64s, Float64s, Int64s | int],
) -> tuple[Float64s, Float64s]:
    """Return mean and squared deviations of the union of two sets (Chan et al. 1979)."""
    own_mean, own_squares, own_n = other
    total = np.maximum(n + own_n, 1)
    distance = own_mean - mean
    return (
        mean + distance * (own_n / total),
        squares + own_squares + distance**2 * (n * own_n / total),
    )


class _DenseMoments:
    """Counts, means, squared deviations and greatest magnitudes of the columns of dense rows."""

    def __init__(self, dim: int) -> None:
        self.count = 0
        self.non_zero: Int64s = np.zeros(dim, np.int64)
        self.largest = np.zeros(dim)
        self._mean, self._squares = np.zeros(dim), np.zeros(dim)

    def add(self, batch: RawBatch) -> None:
        """Add further rows."""
        rows = batch.dense.astype(np.float64)
        n, mean = len(rows), rows.mean(0)
        own = mean, ((rows - mean) ** 2).sum(0), n
        self._mean, self._squares = _merge_moments(self._mean, self._squares, self.count, own)
        self.count += n
        self.non_zero += np.count_nonzero(rows, axis=0)
        self.largest = np.maximum(self.largest, np.abs(rows).max(0))

    def mean_and_variance(self) -> tuple[Float64s, Float64s]:
        """Return the mean of each column and its variance, divided by n."""
        return self._mean, self._squares / self.count


class _SparseMoments:
    """The same for compressed rows, for each coordinate that is non-zero in some row."""

    def __init__(self) -> None:
        self.count = 0
        self.coordinates: Int32s = np.empty(0, np.int32)
        self.non_zero: Int64s = np.empty(0, np.int64)
        self.largest = np.empty(0)
        self._mean, self._squares = np.empty(0), np.empty(0)

    def add(self, batch: RawBatch) -> None:
        """Add further rows."""
        self.count += batch.count
        found, place = np.unique(batch.indices, return_inverse=True)
        values = batch.values.astype(np.float64)
        counts = np.bincount(place, minlength=len(found))
        mean = np.bincount(place, values, len(found)) / counts
        squares = np.bincount(place, (values - mean[place]) ** 2, len(found))
        largest = np.zeros(len(found))
        np.maximum.at(largest, place, np.abs(values))
        together = np.union1d(self.coordinates, found).astype(np.int32)
        before, now = (np.searchsorted(together, each) for each in (self.coordinates, found))
        n, means, deviations, sizes = spread = [
            np.zeros((2, len(together)), dtype) for dtype in (np.int64, float, float, float)
        ]
        for side, (at, columns) in enumerate(
            (
                (before, (self.non_zero, self._mean, self._squares, self.largest)),
                (now, (counts, mean, squares, largest)),
            )
        ):
            for column, array in zip(columns, spread, strict=True):
                array[side, at] = column
        own = means[1], deviations[1], n[1]
        self._mean, self._squares = _merge_moments(means[0], deviations[0], n[0], own)
        self.coordinates, self.non_zero = together, n.sum(0)
        self.largest = sizes.max(0)

    def mean_and_variance(self) -> tuple[Float64s, Float64s]:
        """Return the mean of each coordinate and its variance, including zeros."""
        zeros = np.zeros(len(self.coordinates))
        own = zeros, zeros, self.count - self.non_zero
        mean, squares = _merge_moments(self._mean, self._squares, self.non_zero, own)
        return mean, squares / self.count
