"""Why two vectors are similar: what each coordinate adds to their GMM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gcws_search.client.results import Explained, Share
from gcws_search.formats.vectors import DenseRows, Rows
from gcws_search.index import InvalidVector
from gcws_search.index.contracts.parameters import Transform

Coordinates = dict[Any, float]
"""Values by coordinate, or by its name."""


def coordinates_of(rows: Rows) -> Coordinates:
    """Return the coordinates of the one vector that are not zero."""
    if isinstance(rows, DenseRows):
        row = rows.matrix()[0].astype(np.float64)
        return {int(place): float(row[place]) for place in np.flatnonzero(row)}
    values = rows.values.astype(np.float32).astype(np.float64).tolist()
    return {key: value for key, value in zip(rows.indices.tolist(), values, strict=True) if value}


def numbered(*vectors: Coordinates) -> set[int]:
    """Return the coordinates of vectors that are given by number."""
    return {key for vector in vectors for key in vector if isinstance(key, int)}


def explained(
    a: Coordinates,
    b: Coordinates,
    transform: Transform,
    names: Mapping[int, str] | None = None,
) -> Explained:
    """Return the GMM of two vectors, by coordinate.

    Parameters
    ----------
    a, b : dict of coordinate and value
        As they were sent.
    transform : Transform
        Of the collection.
    names : mapping of int to str, or None
        Names of coordinates; those of a vector that is given by name need none.

    Raises
    ------
    InvalidVector
        A vector is given by name, and the transform has a centre.
    """
    named = names or {}
    first, second = (
        {named.get(key, key): value for key, value in _transformed(each, transform).items()}
        for each in (a, b)
    )
    found: list[tuple[Any, float, float, float]] = []
    most = 0.0
    for coordinate in {**first, **second}:
        u, v = first.get(coordinate, 0.0), second.get(coordinate, 0.0)
        same_sign = u * v > 0
        shared = min(abs(u), abs(v)) if same_sign else 0.0
        most += max(abs(u), abs(v)) if same_sign else abs(u) + abs(v)
        found.append((coordinate, u, v, shared))
    shares = [Share(key, u, v, shared / most if most else 0.0) for key, u, v, shared in found]
    shares.sort(key=lambda share: -share.shared)
    return Explained(sum(share.shared for share in shares), shares)


def _transformed(vector: Coordinates, transform: Transform) -> Coordinates:
    """Return a vector as it is scored: centred, raised to the power, divided by its norm."""
    if transform.is_identity:
        return vector
    values = dict(vector)
    if transform.center is not None:
        if any(isinstance(key, str) for key in vector):
            raise InvalidVector(
                expected="coordinates by their numbers, for the transform has a centre",
                got="names",
            )
        values = {i: vector.get(i, 0.0) - mean for i, mean in enumerate(transform.center)}
    raised = {key: np.sign(x) * abs(x) ** transform.power for key, x in values.items() if x}
    sizes = np.abs(np.array(list(raised.values())))
    norm = {"none": 1.0, "l1": sizes.sum(), "l2": np.sqrt(np.square(sizes).sum())}
    return {key: float(x / norm[transform.normalize]) for key, x in raised.items()}
