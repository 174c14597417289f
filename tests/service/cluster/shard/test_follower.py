"""Followers: what is written to the database is on the shards, whatever happens in between."""

from pathlib import Path

import numpy as np
import pytest

from gcws_search.service.cluster.contract import bucket_of
from gcws_search.service.cluster.database.database import Database
from gcws_search.service.cluster.shard.follower import FollowPolicy
from gcws_search.service.cluster.shard.host import HostOptions
from tests.support.service.shards import (
    Written,
    follow,
    held,
    shards,
    some_vectors,
    together,
)

ALL = 3
SMALL_CHUNKS = HostOptions(poll_seconds=0.05, follow=FollowPolicy(chunk_rows=3, check_seconds=0.1))


def ids(count: int, name: str = "i") -> list[str]:
    return [f"{name}{number}" for number in range(count)]


@pytest.mark.parametrize("count", range(1, ALL + 1))
def test_shards_have_the_items_of_their_buckets_under_the_keys_of_the_database(
    database: Database, written: Written, tmp_path: Path, rng: np.random.Generator, count: int
) -> None:
    written.put(some_vectors(rng, ids(40)))
    with shards(database, tmp_path, count) as hosts:
        follow(hosts, written)
        assert together(hosts, written) == written.rows()
        for shard, host in enumerate(hosts):
            rows = held(host, written)
            assert {bucket_of(row.id, database.buckets) % count for row in rows} == {shard}
        written.put(some_vectors(rng, ids(20)))  # updates
        written.delete(ids(30)[10:])
        written.put(some_vectors(rng, ["i12", "new"]))
        follow(hosts, written)
        assert together(hosts, written) == written.rows()
