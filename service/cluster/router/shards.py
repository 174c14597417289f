"""The shards of one collection: messages to all of them, and the items that they send."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gcws_search import index as ix
from gcws_search.service.cluster.contract import ChangeSet, Moment, bucket_of
from gcws_search.service.cluster.database.committer import Committer
from gcws_search.service.cluster.database.database import Database
from gcws_search.service.cluster.router.replicas import ShardSet
from gcws_search.service.errors import ShardUnavailable
from gcws_search.service.rpc.messages import Message, decode_texts, decode_vectors, encode


class CollectionShards:
    """Asks shards about one collection, as it is after its last write here.

    Attributes
    ----------
    committer
        Of the collection's writes; each change goes to the shards.
    every
        The shards of all collections.
    """

    def __init__(self, number: int, name: str, database: Database, every: ShardSet) -> None:
        self.number = number
        self.every = every
        self.database = database
        self.committer = Committer(database, number, name, self._publish)
        self._name = name

    def _publish(self, change: ChangeSet) -> None:
        self.every.publish(self.number, change, self.database.buckets)

    def head(self, method: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the head of a message about this collection."""
        return {
            "method": method,
            "collection": self.number,
            "at": self.committer.last.key,
            "since": self.committer.last.epoch,
            "epoch": self.every.epoch,
            "seconds": self.every.seconds,
            **more,
        }

    def ask(
        self,
        method: str,
        seconds: float | None = None,
        stop: threading.Event | None = None,
        blobs: Sequence[bytes] = (),
        **more: Any,  # noqa: ANN401
    ) -> list[Message]:
        """Return each shard's answer; called in a thread."""
        message = Message(self.head(method, **more), blobs)
        with self._errors():
            return self.every.wait(self.every.ask_all(message, seconds), stop)

    def ask_some(self, method: str) -> tuple[list[Message], list[int]]:
        """Return the answers of the shards that answer, and the others; called in a thread."""
        data = [encode(Message(self.head(method)))] * len(self.every)
        try:
            with self._errors():
                return self.every.wait(self.every.ask_some(data))
        except ShardUnavailable as error:
            return [], [*error.missing]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Say what has become of a collection that shards do not know; called in a thread."""
        try:
            yield
        except ix.CollectionNotFound:
            raise self.not_found() from None

    def not_found(self) -> Exception:
        """Return why shards do not know the collection: it was dropped, or replaced just now."""
        is_replaced = self.database.find(self._name) is not None
        return (
            ix.CollectionLoading(self._name) if is_replaced else ix.CollectionNotFound(self._name)
        )

    def refresh(self) -> list[Message]:
        """Let all replicas read the list of comparison backends; return what they answer."""
        return self.every.wait(self.every.tell(Message(self.head("refresh"))))

    def follow(self, moment: Moment) -> None:
        """Return when all replicas that are there have reached a moment, or after a second."""
        self.every.wait(self.every.follow(self.number, moment))

    async def fetch(self, item_id: str, more: dict[str, Any]) -> ix.ItemBatch:
        """Return an item, from the shard that has it; none where there is none.

        Parameters
        ----------
        more
            What else the message's head says, such as a key to wait for.

        Raises
        ------
        ShardUnavailable
        """
        head = self.head("rows", ids=[item_id], with_vector=True) | more
        count = len(self.every)
        shard = bucket_of(item_id, self.database.buckets) % count
        return _items(await self.every.ask(shard, count, encode(Message(head))))[1]

    def sample(self, count: int, seed: int, where: str | None) -> ix.ItemBatch:
        """Return some of the items, drawn without replacement, in the order of their keys.

        Parameters
        ----------
        count
            All, where there are no more.
        where
            Filter as JSON: which items may be drawn.
        """
        counts = [int(answer.head["count"]) for answer in self.ask("count", filter=where)]
        rng = np.random.default_rng(abs(seed))
        shares = rng.multivariate_hypergeometric(counts, min(max(count, 0), sum(counts)))
        head = self.head("rows", filter=where, seed=abs(seed), with_vector=True)
        questions = [Message(head | {"sample": int(share)}) for share in shares]
        answers = self.every.wait(self.every.ask_each(questions))
        keys, parts = zip(*map(_items, answers), strict=True)
        order = np.argsort(np.concatenate(keys))
        found = ix.ItemBatch.concatenate(parts)
        return ix.ItemBatch(
            [found.ids[place] for place in order.tolist()],
            found.vectors[order],
            [found.payloads[place] for place in order.tolist()],
        )


def keys_of(answer: Message) -> list[int]:
    """Return the keys of the rows that a shard names."""
    keys: list[int] = np.frombuffer(answer.blobs[0], np.int64).tolist()
    return keys


def ids_of(answer: Message) -> list[str]:
    """Return the ids of the rows that a shard names."""
    return [(each or b"").decode() for each in decode_texts(*answer.blobs[1:3])]


def _items(answer: Message) -> tuple[list[int], ix.ItemBatch]:
    """Return the items that a shard sends, and their keys."""
    blobs, shape = answer.blobs, answer.head["vectors"]
    keys, ids, payloads = keys_of(answer), ids_of(answer), decode_texts(*blobs[3:5])
    vectors = decode_vectors(shape, blobs[5:])
    if shape["missing"]:  # deleted since
        there = sorted({*range(len(ids))} - {*shape["missing"]})
        vectors = vectors[np.array(there, np.int64)]
        keys = [keys[place] for place in there]
        ids, payloads = [ids[place] for place in there], [payloads[place] for place in there]
    return keys, ix.ItemBatch(ids, vectors, payloads)
