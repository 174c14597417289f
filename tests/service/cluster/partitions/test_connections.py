"""Connections with the database whose link was cut."""

from contextlib import closing

from gcws_search.service.cluster.database import Database
from tests.support.service.machines import BUCKETS, MachineCluster, until

_THERE = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'gcws-search visitor'"


def test_connections_that_were_cut_are_given_up_at_both_ends(cluster: MachineCluster) -> None:
    visitor = cluster.network.add("visitor")
    with visitor.entered():
        database = Database.open(cluster.database_url, buckets=BUCKETS, application="visitor")
    with closing(database), database.connections.use() as idle:
        with visitor.entered(), database.connections.use() as asking:
            asking.run("SELECT 1")
            asking.pgconn.send_query(b"SELECT pg_sleep(1)")
            with cluster.network.without(visitor, cluster.store):
                # One owes the other nothing, and one an answer.
                with cluster.client.entered():
                    until(lambda: not cluster.server.execute(_THERE))
                until(lambda: not idle.is_usable)
            asking.close()
        with visitor.entered():
            assert database.shards("main") is None
