"""Shards in this process, the collection that they follow, and the same collection on one node."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from gcws_search import index as ix
from gcws_search.service.cluster.committer import Committer, PreparedChoice, PreparedPut
from gcws_search.service.cluster.contract import (
    MESSAGES,
    START,
    ChangeSet,
    Replica,
    Row,
    bucket_of,
    encode_change,
    encode_error,
    raise_error,
)
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.follower import HostOptions
from gcws_search.service.cluster.host import ShardHost
from gcws_search.service.cluster.offload import due, offload
from gcws_search.service.messages import (
    Malformed,
    Message,
    decode,
    decode_texts,
    decode_vectors,
    encode,
)
from tests.support.data.payloads import encode_payload

SECONDS = 60.0
"""How long others wait for a shard: it may be slow."""
"""Bounds what a replica waits for."""
BUCKETS = 4
KEY = "between routers and shards of a test"
DIM = 6
CONFIG = ix.CollectionConfig(dim=DIM)
QUICK = HostOptions(poll_seconds=0.05, check_seconds=0.1)
"""Notices within a moment what it would notice within ten seconds."""
Start = Callable[..., AbstractContextManager[list[ShardHost]]]
"""Takes a number of shards and ``options``, and lends the shards."""


def put_of(*ids: str | None, payload: bytes | None = None, **more: Any) -> PreparedPut:  # noqa: ANN401
    """Return a put of items, the vector of each of which says its place and its id."""
    vectors = [f"{place} {item_id}".encode() for place, item_id in enumerate(ids)]
    return PreparedPut(ids=ids, vectors=vectors, payloads=[payload] * len(ids), **more)


def contents(database: Database, number: int) -> dict[str, Row]:
    """Return the items of a collection as the database has them, by rising key."""
    return {row.id: row for rows in database.read_all(number, 1000) for row in rows}


def stored_rows(database: Database, number: int) -> list[Row]:
    """Return the items of a collection by key, without versions: shards are not told of these."""
    rows = database.page(number, after=0, limit=1 << 20, with_vector=True)
    return [*map(unversioned, rows)]


def unversioned(row: Row) -> Row:
    """Return a row as shards have it, which are not told of versions."""
    return Row(row.key, row.id, row.vector, row.payload)


def offload_all(
    database: Database,
    segment_bytes: int = 1 << 26,
    check: Callable[[], None] = lambda: None,
    *,
    last: int = 1 << 62,
) -> int:
    """Move the vectors of all collections out of the database; return how many.

    It is as where the bases of one shard have all items up to the key ``last``.
    """
    with database.connections.use() as connection:
        connection.run(
            "INSERT INTO bases (collection, generation, shards, shard, key, file, bytes, sha256)"
            " SELECT collection, generation, 1, 0, least(head, %b), '', 0, '' FROM heads",
            last,
        )
        try:
            return sum(
                offload(database, number, 1, segment_bytes, check) for number in due(database, 1)
            )
        finally:
            connection.run("DELETE FROM bases WHERE file = ''")


def replace_by_partitions(database: Database, number: int) -> None:
    """Have the items of a collection lie as older programs laid them."""
    table = f"items_{number}"
    statements = [
        f"CREATE TABLE older (LIKE {table} INCLUDING DEFAULTS, PRIMARY KEY (bucket, id))"
        " PARTITION BY LIST (bucket)",
        "CREATE INDEX ON older (key)",
        *(
            f"CREATE TABLE {table}_{bucket} PARTITION OF older FOR VALUES IN ({bucket})"
            for bucket in range(database.buckets)
        ),
        f"INSERT INTO older SELECT * FROM {table}",
        f"DROP TABLE {table}",
        f"ALTER TABLE older RENAME TO {table}",
    ]
    with database.connections.transaction() as connection:
        for statement in statements:
            connection.run(statement)


class Copy:
    """A replica as its follower has it: the keys of its items, by id."""

    def __init__(self, database: Database, number: int) -> None:
        self.database, self.number = database, number
        self.items: dict[str, int] = {}
        self.position = START

    def follow(self) -> None:
        """Apply what has changed; no key comes behind a head that was seen."""
        every = range(self.database.buckets)
        changes = self.database.changes(self.number, every, self.position, 3)
        with changes as (head, deleted, chunks, _):
            for item_id in deleted:
                self.items.pop(item_id, None)
            for row in chain.from_iterable(chunks):
                assert self.position.key < row.key <= head.key
                self.items[row.id] = row.key
            self.position = head


class Written:
    """A collection of a database, and a node to which the same is written.

    ``changes``: what has been written, as routers send it. ``seed``: of the vectors.
    """

    def __init__(
        self,
        database: Database,
        config: ix.CollectionConfig = CONFIG,
        name: str = "things",
        seed: int = 7,
    ) -> None:
        self.database = database
        self.config = config
        self._rng = np.random.default_rng(seed)
        row, _ = database.create(name, config.to_dict())
        self.number = row.number
        self.changes: list[ChangeSet] = []
        self.committer = Committer(database, row.number, name, self.changes.append)
        self.node = ix.StoredCollection.in_memory(name, config, threads=1)

    @property
    def head(self) -> int:
        return self.committer.last.key

    def put(self, vectors: Mapping[str, Any]) -> None:
        """Put items; the payload of each is its id and the number of its letters."""
        ids, space = [*vectors], self.node.space
        raw = space.from_items([*vectors.values()])
        payloads: list[bytes | None] = [
            encode_payload({"id": item_id, "length": len(item_id)}) for item_id in ids
        ]
        write = PreparedPut(ids=ids, vectors=space.to_blobs(raw), payloads=payloads)
        self.committer.commit(write)
        self.node.put(ix.ItemBatch(ids, raw, payloads))

    def some_vectors(self, ids: Sequence[str]) -> dict[str, list[float]]:
        """Return a vector of small whole numbers for each id, so that many scores are equal."""
        return {each: self._rng.integers(-3, 4, DIM).astype(float).tolist() for each in ids}

    def put_some(self, ids: Sequence[str]) -> None:
        self.put(self.some_vectors(ids))

    def delete(self, ids: Sequence[str]) -> None:
        self.committer.commit(PreparedChoice(ids=ids))
        self.node.delete(ids)

    def rows(self) -> list[Row]:
        """Return all items as the database has them, by key, without versions."""
        return stored_rows(self.database, self.number)

    def close(self) -> None:
        self.node.close(dropped=True)


def answer(host: ShardHost, request: bytes) -> bytes:
    """Return the answer to a message; errors are in it."""
    try:
        asked = decode(request)
        host.hear(asked)
    except Malformed as error:
        return encode_error(error)
    return host.answer_message(asked)


def ask(
    host: ShardHost,
    method: str,
    number: int,
    blobs: Sequence[bytes | memoryview] = (),
    **more: Any,  # noqa: ANN401
) -> Message:
    """Return the answer to a message, or raise what it says."""
    head = {"method": method, "collection": number, "seconds": SECONDS, **more}
    said = decode(answer(host, encode(Message(head, blobs))))
    raise_error(said)
    del said.head["epoch"]  # which all have
    return said


def follow(hosts: Sequence[ShardHost], written: Written) -> None:
    """Return when all hosts have what was written."""
    for host in hosts:
        assert ask(host, "follow", written.number, key=written.head).head["key"] >= written.head


def send(hosts: Sequence[ShardHost], written: Written, changes: Sequence[ChangeSet]) -> None:
    """Return when all hosts have what was written, some of which is sent to them."""
    buckets = written.database.buckets
    for shard, host in enumerate(hosts):
        sent = [encode_change(each.divide(len(hosts), buckets)[shard]) for each in changes]
        blobs = [blob for each in sent for blob in each.blobs]
        said: dict[str, Any] = {"key": written.head, "changes": [each.head for each in sent]}
        assert ask(host, "follow", written.number, blobs, **said).head["key"] >= written.head


def held(host: ShardHost, written: Written) -> list[Row]:
    """Return the items that a shard has, by key."""
    answer = ask(host, "rows", written.number, at=written.head, with_vector=True)
    return rows_of(answer, written.node.space)


def rows_of(answer: Message, space: ix.VectorSpace) -> list[Row]:
    """Return the items of an answer, by key."""
    keys = np.frombuffer(answer.blobs[0], np.int64).tolist()
    ids = [(each or b"").decode() for each in decode_texts(*answer.blobs[1:3])]
    payloads = decode_texts(*answer.blobs[3:5])
    raw = decode_vectors(answer.head["vectors"], iter(answer.blobs[5:]))
    blobs = space.to_blobs(raw)
    return [Row(*each) for each in zip(keys, ids, blobs, payloads, strict=True)]


def tell(address: str, key: str, head: Mapping[str, Any]) -> Message:
    """Return the answer to a message of a replica behind HTTP, or raise what it says."""
    answer = httpx.post(
        f"http://{address}{MESSAGES}",
        content=encode(Message({"seconds": SECONDS, **head})),
        headers={"Authorization": f"Bearer {key}"},
        timeout=2 * SECONDS,
    )
    said = decode(answer.content)
    raise_error(said)
    return said


def differing(
    database: Database, replicas: Sequence[Replica], number: int, key: str
) -> list[Replica]:
    """Return the replicas that have not what the database has of a collection."""
    [row] = [each for each in database.collections() if each.number == number]
    config = ix.CollectionConfig.from_dict(row.config)
    space = ix.StoredCollection.in_memory(row.name, config, threads=1).space
    rows = stored_rows(database, number)
    asked = {"method": "rows", "collection": number, "at": row.head, "with_vector": True}
    return [
        each
        for each in replicas
        if rows_of(tell(each.address, key, asked), space)
        != [row for row in rows if bucket_of(row.id, database.buckets) % each.shards == each.shard]
    ]


def together(hosts: Sequence[ShardHost], written: Written) -> list[Row]:
    """Return the items that all shards have, by key."""
    return sorted(row for host in hosts for row in held(host, written))


def check_followed(hosts: Sequence[ShardHost], written: Written) -> None:
    """Fail unless shards follow, and have together what the database has."""
    follow(hosts, written)
    assert together(hosts, written) == written.rows()


def fills(hosts: Sequence[ShardHost]) -> list[int]:
    """Return how often each collection of each host was filled anew."""
    return [each.fills for host in hosts for each in host.followers]


@contextmanager
def shards(
    database: Database, folder: Path, count: int, *, options: HostOptions = QUICK
) -> Iterator[list[ShardHost]]:
    """Lend running shards, each over a folder of its own."""
    with ExitStack() as stack:
        hosts = []
        for shard in range(count):
            own = folder / f"{shard}-of-{count}"
            host = ShardHost(database, own, shard, count, threads=1, options=options)
            stack.callback(host.close)
            host.start()
            hosts.append(host)
        yield hosts
