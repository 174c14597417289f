"""A database with a synchronous standby: nothing is acknowledged that one machine has alone."""

from collections.abc import Iterator

import pytest

from tests.service.cluster.partitions.clients import NOTED, Load, Things, noted_of
from tests.service.cluster.partitions.history import NONE
from tests.support.service.machines import MachineCluster

NOTICED = {"wal_sender_timeout": "3s", "wal_receiver_timeout": "3s"}
"""How soon either server ends a connection of copies that is dead; a minute otherwise."""


@pytest.fixture(scope="module")
def copied() -> Iterator[Things]:
    """Return the collection of a cluster whose database has a synchronous standby."""
    cluster = MachineCluster(**NOTICED)
    try:
        cluster.start_database()
        cluster.start_standby()
        cluster.start(replicas=1)
        yield Things(cluster)
    finally:
        cluster.stop()


@pytest.mark.long
def test_writes_wait_while_the_standby_is_cut_off_and_none_is_acknowledged(copied: Things) -> None:
    cluster, load = copied.cluster, Load(copied)
    standby = cluster.standby
    assert standby is not None
    refused = {(each, f"{kind} 503") for each in (0, 1) for kind in ("put", "delete")}
    with cluster.client.entered(), load.running(refused) as history:
        with cluster.network.without(cluster.store, cluster.second):
            for router in (0, 1):
                load.fail("put", router)
            load.go_on("base", "strict")
            writes = [each for each in history.writes if each.version != NONE]
            acknowledged = {each.version for each in writes if each.is_acknowledged}
            with cluster.second.entered():
                statement = NOTED.format(number=copied.number)
                there = noted_of(standby.execute(statement, "things"))
        load.go_on()
    assert acknowledged
    assert acknowledged <= {each.version for each in there if each.version != NONE}
