"""Two routers write at once."""

import threading
from contextlib import ExitStack, closing
from itertools import chain

import numpy as np

from gcws_search import index as ix
from gcws_search.service.cluster.committer import (
    Committer,
    PreparedDelete,
    PreparedPut,
    PreparedWrite,
)
from gcws_search.service.cluster.contract import START, Position
from gcws_search.service.cluster.database import Database

IDS = [f"item {place}" for place in range(60)]
WRITES = 60
WRITERS = 4


def some_write(rng: np.random.Generator, database: Database, number: int) -> PreparedWrite:
    ids = rng.permutation(IDS)[: rng.integers(1, len(IDS))].tolist()
    match rng.integers(4):
        case 0:
            return PreparedDelete(ids=ids)
        case 1:
            return PreparedDelete(choose=lambda _: ids)
    names = database.reserve_names(number, [f"name {rng.integers(100)}", "all"])
    return PreparedPut(
        ids=ids,
        vectors=[rng.bytes(8) for _ in ids],
        payloads=[None] * len(ids),
        mode="upsert" if rng.integers(4) else "insert",
        names=[*names.values()],
        coordinates=max(names.values()) + 1,
    )


def test_keys_rise_with_commits_and_nobody_waits_for_ever(
    database_url: str, database: Database, number: int, rng: np.random.Generator
) -> None:
    """A replica that follows all the while has all: no key comes behind the head it has seen."""
    errors: list[Exception] = []
    counts = {"put": 0, "deleted": 0}

    def write(database: Database, committer: Committer, rng: np.random.Generator) -> None:
        for _ in range(WRITES):
            try:
                result = committer.commit(some_write(rng, database, number))
            except ix.ItemExists:
                continue
            except Exception as error:
                errors.append(error)
                return
            with counting:
                if isinstance(result, ix.WriteResult):
                    counts["put"] += result.inserted
                else:
                    counts["deleted"] += result

    copy: dict[str, int] = {}
    position: Position = START
    counting = threading.Lock()
    with ExitStack() as stack:
        routers = [database, stack.enter_context(closing(Database.open(database_url, buckets=4)))]
        committers = [Committer(router, number, "plants") for router in routers]
        threads = [
            threading.Thread(target=write, args=(routers[each % 2], committers[each % 2], child))
            for each, child in enumerate(rng.spawn(WRITERS))
        ]
        for thread in threads:
            thread.start()
        is_last = False
        while True:
            is_last = not any(thread.is_alive() for thread in threads)
            with database.changes(number, range(4), position, 10) as (head, deleted, chunks, _):
                for item_id in deleted:
                    copy.pop(item_id, None)
                for row in chain.from_iterable(chunks):
                    assert position.key < row.key <= head.key
                    copy[row.id] = row.key
                position = head
            if is_last:
                break
        assert max(each.last.key for each in committers) == position.key
    assert not errors
    found = {row.id: row.key for row in chain.from_iterable(database.read_all(number, 100))}
    assert copy == found
    assert len(found) == database.count(number) == counts["put"] - counts["deleted"]
    assert database.last_moment(number).key > WRITES
