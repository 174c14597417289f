"""Items that are easily told apart, and what a collection that holds them shows."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gcws_search.index import POLICIES, Policies
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.expiry import Expirations
from gcws_search.index.collection.items import ItemBatch, QueryResult
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.collection.writer import WriteResult
from gcws_search.index.contracts.batches import RawBatch
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams, Transform
from tests.support.data.adapters import raw_of
from tests.support.data.generated import Floats
from tests.support.data.payloads import encode_payload
from tests.support.index.saved_graph import copied

DIM = 4
SQUARED = Transform(power=2.0)

Make = Callable[..., StoredCollection]
"""Makes the collection "things", of a given backend and transform."""


def vector(x: float) -> list[float]:
    return [x, 1.0, 0.0, -2.0]


def batch(stored: StoredCollection, ids: list[str], values: list[float]) -> ItemBatch:
    payloads = [encode_payload({"x": x}) for x in values]
    return ItemBatch(ids, stored.space.from_items([vector(x) for x in values]), payloads)


def put(stored: StoredCollection, values: Mapping[str, float], mode: Any = "upsert") -> WriteResult:  # noqa: ANN401
    return stored.put(batch(stored, list(values), list(values.values())), mode)


def put_rows(
    collection: MemoryCollection,
    ids: list[str],
    raw: RawBatch,
    *,
    keys: Sequence[int],
    payloads: list[bytes | None] | None = None,
    replaced: Sequence[int] = (),
) -> None:
    """Put items into memory alone."""
    [encoded] = collection.encode([ItemBatch(ids, raw, payloads or [None] * len(ids))])
    encoded.sequences = keys
    collection.put([encoded], replaced)


def put_vectors(stored: StoredCollection, rows: Floats, first: int = 0) -> None:
    """Put rows without payloads, as items that are numbered from ``first`` on."""
    ids = [f"i{number}" for number in range(first, first + len(rows))]
    stored.put(ItemBatch(ids, raw_of(stored.space, rows), [None] * len(ids)))


def in_memory(
    config: CollectionConfig,
    vectors: Floats | Sequence[Any],
    payloads: Sequence[bytes | None] | None = None,
) -> StoredCollection:
    """Return a collection without a file of some vectors, their numbers as ids."""
    collection = StoredCollection.in_memory("things", config)
    ids, space = [*map(str, range(len(vectors)))], collection.space
    if isinstance(vectors, np.ndarray):
        raw = raw_of(space, vectors)
    else:
        raw = space.from_items([*vectors])
    collection.put(ItemBatch(ids, raw, [*(payloads or [None] * len(ids))]))
    return collection


class Clock:
    """A clock that stands still until it is set; seconds since 1970."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def made(catalog: Catalog, name: str = "things", count: int = 20) -> StoredCollection:
    """Return a new collection of so many items."""
    config = CollectionConfig(dim=DIM, backend=GcwsParams(bands=2))
    stored = catalog.create(name, config)[0]
    put(stored, {f"i{n}": n + 1 for n in range(count)})
    return stored


def held(stored: StoredCollection) -> dict[str, tuple[object, bytes | None]]:
    items = stored.page(limit=10_000, with_vector=True).items
    return {item.id: (item.vector, item.payload) for item in items}


def holding(values: Mapping[str, float]) -> dict[str, tuple[object, bytes | None]]:
    return {item_id: (vector(x), encode_payload({"x": x})) for item_id, x in values.items()}


def ids_of(result: QueryResult) -> list[str]:
    return result.ids


def reopened(stored: StoredCollection, directory: Path) -> dict[str, tuple[object, bytes | None]]:
    """Return what a copy of the files holds: what another process would find after a kill."""
    copy = copied(directory, directory / "copy", f"{stored.name}.sqlite")
    with closing(opened_catalog(copy)) as catalog:
        return held(catalog.get(stored.name))


def opened_catalog(
    directory: Path,
    policies: Policies = POLICIES,
    clock: Callable[[], float] = time.time,
    **more: Any,  # noqa: ANN401
) -> Catalog:
    catalog = Catalog.open(
        directory, threads=1, policies=policies, expirations=partial(Expirations, clock), **more
    )
    catalog.load()
    return catalog


def fill(stored: StoredCollection, count: int, *, first: int = 0) -> None:
    """Put items of three coordinates, numbered from ``first`` on."""
    values = np.arange(first + 1, first + count + 1, dtype=np.float32)
    raw = stored.space.from_dense(np.stack([values, values**0, -values], axis=1))
    ids = [f"i{n}" for n in range(first, first + count)]
    stored.put(ItemBatch(ids, raw, [b'{"n":%d}' % n for n in range(first, first + count)]))
