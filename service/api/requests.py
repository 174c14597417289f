"""Conversion of checked bodies to types of the index: vectors, names, filters; error places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from pydantic_core import from_json

from gcws_search import index as ix
from gcws_search.service.models import (
    NamedBody,
    PointBody,
    point_of,
    require_short_vector,
    weights_of,
)
from gcws_search.service.settings import Settings

Find: TypeAlias = Callable[[Sequence[str]], list[int]]
"""Returns the coordinates of different names; InvalidVector is at ``(place,)``."""


def finder(collection: ix.StoredCollection, unknown: list[str], *, beyond_dim: bool = True) -> Find:
    """Return a function that looks up the names of a query.

    An unknown name gets a coordinate for this query alone, and is added to ``unknown``. Without
    ``beyond_dim`` a space of fixed dim refuses it.
    """

    def find(names: Sequence[str]) -> list[int]:
        found, more = collection.names.find(names, beyond_dim=beyond_dim)
        unknown.extend(more)
        return found

    return find


def vector(
    body: PointBody, collection: ix.StoredCollection, find: Find, limits: Settings, *loc: str | int
) -> ix.RawBatch:
    """Return one vector or text as a batch; the places of errors begin with ``loc``."""
    require_short_vector(body, limits, *loc)
    try:
        return ix.InputVectors(mixed=[point_of(body)]).check(collection.space, find)
    except ix.InvalidVector as error:
        raise error.at(*loc, skip=1) from None


def vectors(
    raw: Sequence[PointBody],
    collection: ix.StoredCollection,
    find: Find,
    limits: Settings,
    name: str,
    *inner: str,
) -> ix.RawBatch:
    """Return vectors of any form as one batch; errors are at ``name``, the number, ``inner``."""
    rows: list[ix.AnyArray] = []
    for number, one in enumerate(raw):
        if not isinstance(one, np.ndarray) or len(one) > limits.max_nonzeros:
            require_short_vector(one, limits, name, number, *inner)
        else:
            rows.append(one)
    try:
        if len(rows) == len(raw):
            return collection.space.from_items(rows)
        return ix.InputVectors(mixed=[*map(point_of, raw)]).check(collection.space, find)
    except ix.InvalidVector as error:
        raise within(error, name, *inner) from None


def within(error: ix.InvalidInput, name: str, *inner: str) -> ix.InvalidInput:
    """Return an error at a row as one at ``name[row].inner``."""
    return error.at(name, *error.loc[:1], *inner, skip=1)


def condition(text: bytes | None, limits: Settings) -> ix.Filter | None:
    """Return the filter in a JSON text; None for None."""
    if text is None:
        return None
    with ix.place_errors("filter"):
        return ix.parse_filter(
            from_json(text),
            max_depth=limits.max_filter_depth,
            max_conditions=limits.max_filter_conditions,
            max_values=limits.max_filter_values,
        )


def condition_in_url(text: str | None, limits: Settings) -> ix.Filter | None:
    """Return the filter in a JSON parameter of the URL; None for None and for null."""
    try:
        if text is None or from_json(text.encode(), allow_inf_nan=False) is None:
            return None
    except ValueError as error:
        raise ix.InvalidFilter(
            expected="a filter as JSON", got=f"invalid JSON ({error})", loc=("filter",)
        ) from None
    return condition(text.encode(), limits)


def with_unknown(
    body: NamedBody,
    collection: ix.StoredCollection,
    unknown: list[str],
    limits: Settings,
    *loc: str | int,
) -> ix.SparseVector | None:
    """Return a vector if some of its names have no coordinate, None if all have one."""
    require_short_vector(body, limits, *loc)
    with ix.place_errors(*loc):
        vector = ix.named_vector(body.names, weights_of(body))
        found = ix.with_coordinates(vector, finder(collection, unknown))
    return found if unknown else None


def with_unknown_apart(
    raw: Sequence[PointBody], collection: ix.StoredCollection, limits: Settings, name: str
) -> list[tuple[list[int], ix.RawBatch | ix.SparseVector]]:
    """Return vectors in two parts: those with names that a space of fixed dim lacks are separate.

    Each part has the numbers of its vectors.
    """
    apart: dict[int, ix.SparseVector] = {}
    for number, body in enumerate(() if collection.names.is_open else raw):
        if isinstance(body, NamedBody):
            found = with_unknown(body, collection, [], limits, name, number)
            if found is not None:
                apart[number] = found
    rest = [number for number in range(len(raw)) if number not in apart]
    parts: list[tuple[list[int], ix.RawBatch | ix.SparseVector]] = [
        ([number], found) for number, found in apart.items()
    ]
    if not rest and apart:
        return parts
    try:
        find = finder(collection, [])
        together = vectors([raw[number] for number in rest], collection, find, limits, name)
    except ix.InvalidVector as error:
        _, row, *inner = error.loc
        error.loc = (name, rest[int(row)], *inner)
        raise
    return [(rest, together), *parts]
