"""Some items of all shards: by id, or drawn at random, as a collection in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gcws_search import index as ix
from gcws_search.service.cluster.contract import Row, bucket_of
from gcws_search.service.cluster.database.committer import PreparedPut
from gcws_search.service.cluster.messages import (
    Message,
    packed,
    unpacked_texts,
    unpacked_vectors,
)

if TYPE_CHECKING:
    from gcws_search.service.cluster.router.collection import ClusterCollection


def keys_of(answer: Message) -> list[int]:
    """Return the keys of the rows that a shard names."""
    keys: list[int] = np.frombuffer(answer.blobs[0], np.int64).tolist()
    return keys


def ids_of(answer: Message) -> list[str]:
    """Return the ids of the rows that a shard names."""
    return [(each or b"").decode() for each in unpacked_texts(*answer.blobs[1:3])]


def batch_of(answer: Message) -> tuple[list[int], ix.ItemBatch]:
    """Return the items that a shard sends: keys; ids, payloads, and vectors as they were sent."""
    blobs, shape = answer.blobs, answer.head["vectors"]
    keys, ids, payloads = keys_of(answer), ids_of(answer), unpacked_texts(*blobs[3:5])
    vectors = unpacked_vectors(shape, blobs[5:])
    if shape["missing"]:  # deleted since
        there = sorted({*range(len(ids))} - {*shape["missing"]})
        vectors = vectors[np.array(there, np.int64)]
        keys = [keys[place] for place in there]
        ids, payloads = [ids[place] for place in there], [payloads[place] for place in there]
    return keys, ix.ItemBatch(ids, vectors, payloads)


async def fetched(
    collection: ClusterCollection, item_id: str, more: dict[str, Any]
) -> ix.ItemBatch:
    """Return an item, from the shard that has it; none where there is none.

    Parameters
    ----------
    more
        What else the message's head says, such as a key to wait for.

    Raises
    ------
    ShardUnavailable
    """
    shards, buckets = collection.context.shards, collection.context.database.buckets
    head = collection.head("rows", ids=[item_id], with_vector=True) | more
    count = len(shards)
    shard = bucket_of(item_id, buckets) % count
    return batch_of(await shards.ask(shard, count, packed(Message(head))))[1]


def batch_drawn(
    collection: ClusterCollection, count: int, seed: int, where: str | None
) -> ix.ItemBatch:
    """Return some of the items, drawn without replacement, in the order in which they were put.

    Parameters
    ----------
    count
        All, where there are no more.
    where
        Filter as JSON: which items may be drawn.
    """
    counts = [int(answer.head["count"]) for answer in collection.ask("count", filter=where)]
    rng = np.random.default_rng(abs(seed))
    shares = rng.multivariate_hypergeometric(counts, min(max(count, 0), sum(counts)))
    head = collection.head("rows", filter=where, seed=abs(seed), with_vector=True)
    heads = [head | {"sample": int(share)} for share in shares]
    shards = collection.context.shards
    answers = shards.wait(shards.ask_each([Message(each) for each in heads]))
    keys, parts = zip(*map(batch_of, answers), strict=True)
    order = np.argsort(np.concatenate(keys))
    found = ix.ItemBatch.joined(parts)
    return ix.ItemBatch(
        [found.ids[place] for place in order.tolist()],
        found.vectors[order],
        [found.payloads[place] for place in order.tolist()],
    )


def in_memory(
    name: str, config: ix.CollectionConfig, threads: int | None = None
) -> ix.StoredCollection:
    """Return a collection of no items, in memory wherever the shards have their vectors."""
    config = replace(config, storage="memory")
    return ix.StoredCollection.in_memory(name, config, threads=threads)


@contextmanager
def drawn(
    collection: ClusterCollection, count: int, seed: int, where: str | None
) -> Iterator[ix.StoredCollection]:
    """Yield a collection in memory that has some of the items; see `batch_drawn`."""
    items = batch_drawn(collection, count, seed, where)
    found = in_memory(collection.name, collection.config, collection.context.threads)
    try:
        found.names.load(collection.names.listed())
        if len(items):
            found.put(items)
        yield found
    finally:
        found.close(dropped=True)


def given(space: ix.VectorSpace, row: Row) -> Any:  # noqa: ANN401  # numbers or a SparseVector
    """Return an item's vector as one that is sent."""
    raw = space.from_blobs([row.vector])
    if raw.form == "dense":
        return raw.dense[0]
    return ix.SparseVector(raw.indices.astype(np.int64), raw.values)


def prepared(
    space: ix.VectorSpace,
    names: ix.CoordinateNames,
    items: ix.ItemBatch,
    mode: ix.Mode,
    *,
    keeps_payloads: bool,
    progress: Callable[[ix.WriteResult], ix.LoadRecord] | None,
) -> PreparedPut:
    """Return items as the database takes them.

    Raises
    ------
    InvalidId, InvalidVector
    ItemExists
        The mode is "insert" and an id comes twice.
    """
    ix.check_ids(["0" if each is None else each for each in items.ids])
    places = ix.last_places(items.ids, mode)
    vectors, payloads = items.vectors, items.payloads
    ids: Sequence[str | None] = items.ids
    if len(places) < len(ids):
        vectors = vectors[np.array(places, np.int64)]
        ids = [ids[place] for place in places]
        payloads = [payloads[place] for place in places]
    rows = space.prepare(vectors)
    coordinates, new = 0, list[ix.NamedCoordinate]()
    if names.is_open and len(rows.slots):
        new = names.use(rows, set())
        coordinates = (int(rows.slots.max()) >> 1) + 1
    return PreparedPut(
        ids=ids,
        vectors=space.to_blobs(vectors),
        payloads=payloads,
        places=places,
        mode=mode,
        keeps_payloads=keeps_payloads,
        progress=progress,
        coordinates=coordinates,
        names=[each.coordinate for each in new],
    )
