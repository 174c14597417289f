"""Why two vectors are similar: their GMM, coordinate by coordinate ([GMM] eq. 4-6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gcws_search.index.collection.items import View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.name_scan import widen
from gcws_search.index.contracts.analysis import MAX_SHARES, Contained, Explained, Rest, Share
from gcws_search.index.contracts.arrays import AnyArray, Float64s, Int64s
from gcws_search.index.contracts.batches import (
    SparseVector,
    Text,
    VectorBatch,
    names_of,
    row_padded,
)
from gcws_search.index.contracts.errors import InvalidParameter, InvalidVector, ItemNotFound
from gcws_search.index.exact.containment import containment
from gcws_search.index.payload import item_text
from gcws_search.index.similarities import gmm
from gcws_search.index.vectors.texts import tokens_by_coordinate

Explainable = str | Sequence[float] | AnyArray | SparseVector | Text
"""The id of an item, a vector, or a text."""


def explain(memory: MemoryCollection, a: Explainable, b: Explainable, limit: int) -> Explained:
    """Return the contribution of each coordinate to the GMM of two items or vectors.

    a, b: a name without a coordinate gets a new one, the same in both. For texts, the names of
        coordinates are tokens.
    limit: number of listed coordinates, 1 to 4096.
    Raises ItemNotFound, InvalidParameter (the limit is out of range), InvalidVector (at ``("a" or
        "b", "vector" or "text", …)``).
    """
    if not 1 <= limit <= MAX_SHARES:
        raise InvalidParameter(expected=f"1 to {MAX_SHARES}", got=str(limit), loc=("limit",))
    given = {"a": a, "b": b}
    coordinates = _coordinates(memory, given)
    ids = [each for each in given.values() if isinstance(each, str)]
    view, rows = memory.locate(ids)
    row_of = dict(zip(ids, rows, strict=True))
    first, second = (_row(view, row_of, each, word, coordinates) for word, each in given.items())
    width = max(first.width, second.width)
    first, second = row_padded(first, width), row_padded(second, width)
    places, u, v = _align(first, second)
    sizes = np.abs(u), np.abs(v)
    is_shared = (u > 0) == (v > 0)
    low = np.where(is_shared, np.minimum(*sizes), 0.0)
    high = np.where(is_shared, np.maximum(*sizes), sizes[0] + sizes[1])
    order = np.lexsort((places, low - high, -low))
    listed, others = order[:limit], order[limit:]
    names = {found: name for name, found in coordinates.items()}
    if memory.space.text is None:
        names |= dict(memory.names.of(places[listed].tolist()))
    else:
        texts = [each.text for each in given.values() if isinstance(each, Text)]
        texts += [item_text(view.payloads[row]) for row in rows if row is not None]
        names = tokens_by_coordinate(texts, memory.space.text)
    columns = (each[listed].tolist() for each in (places, u, v, low, high))
    return Explained(
        score=gmm(first, second),
        shared=float(low.sum()),
        total=float(high.sum()),
        contained=Contained(containment(first, second), containment(second, first)),
        coordinates=[
            Share(place, names.get(place), *values) for place, *values in zip(*columns, strict=True)
        ],
        rest=Rest(len(others), float(low[others].sum()), float(high[others].sum())),
    )


def _coordinates(memory: MemoryCollection, given: dict[str, Explainable]) -> dict[str, int]:
    """Return coordinates for all names of the vectors; equal names get equal coordinates."""
    words = {word: names_of(each) or () for word, each in given.items()}
    together = [*dict.fromkeys(name for names in words.values() for name in names)]
    try:
        found, _ = memory.names.find(together, beyond_dim=True)
    except InvalidVector as error:
        name = together[int(error.loc[0])]
        word = next(word for word, names in words.items() if name in names)
        place = word, "vector", "names", [*words[word]].index(name)
        raise error.at(*place, skip=len(error.loc)) from None
    return dict(zip(together, found, strict=True))


def _row(
    view: View,
    row_of: dict[str, int | None],
    given: Explainable,
    word: str,
    coordinates: dict[str, int],
) -> VectorBatch:
    """Return an item or a vector as a batch of one transformed row."""
    if isinstance(given, str):
        row = row_of[given]
        if row is None:
            raise ItemNotFound(given)
        return view.vectors[row : row + 1]
    space = view.space
    try:
        if isinstance(given, SparseVector) and given.names is not None:
            given = SparseVector([coordinates[name] for name in given.names], given.values)
            if space.dim is not None and max(given.indices, default=0) >= space.dim:
                return widen(space, given)
        if isinstance(given, Text):
            return space.prepare(space.from_texts([given.text]))
        return space.prepare(space.from_items([given]))
    except InvalidVector as error:
        raise error.at(word, space.word, skip=1) from None


def _align(a: VectorBatch, b: VectorBatch) -> tuple[Int64s, Float64s, Float64s]:
    """Return the coordinates that either vector has, ascending, and the signed values of both."""
    (first, u), (second, v) = _entries(a), _entries(b)
    places = np.union1d(first, second)
    values = np.zeros((2, len(places)))
    values[0, np.searchsorted(places, first)] = u
    values[1, np.searchsorted(places, second)] = v
    return places, values[0], values[1]


def _entries(row: VectorBatch) -> tuple[Int64s, Float64s]:
    """Return the non-zero coordinates of the row, ascending, and their signed values."""
    if row.form == "dense":
        places = np.flatnonzero(row.dense[0])
        return places, row.dense[0, places].astype(np.float64)
    values = row.values.astype(np.float64)
    return row.slots.astype(np.int64) // 2, np.where(row.slots % 2 == 1, -values, values)
