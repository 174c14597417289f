"""Connections with a database that does not answer."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from gcws_search.service.cluster.connections import Connections
from gcws_search.service.cluster.contract import EpochMemory
from gcws_search.service.cluster.database import Database
from gcws_search.service.errors import StoreUnavailable
from tests.support.service.postgres import postgres

THREADS = 4


def test_a_statement_and_a_session_last_as_long_as_they_are_waited_for(database_url: str) -> None:
    """Whatever the database, or its role, has as a limit for others."""
    name = database_url.rpartition("/")[2]
    for limit in ("statement_timeout", "idle_session_timeout"):
        postgres().execute(f"ALTER DATABASE {name} SET {limit} = 1")
    with (
        closing(Database.open(database_url)) as database,
        database.connections.use() as idle,
        database.connections.use() as connection,
    ):
        connection.run("SELECT pg_sleep(0.05)")
        assert idle.column("SELECT 1") == [1]


def test_a_silent_link_is_noticed_soon_however_long_a_statement_may_take(database_url: str) -> None:
    with (
        closing(Database.open(database_url, seconds=86_400.0)) as database,
        database.connections.use() as connection,
    ):
        assert connection.info.get_parameters()["connect_timeout"] == "10"
        assert connection.column("SHOW idle_in_transaction_session_timeout") == ["1min"]


def test_threads_that_wait_for_a_server_that_is_silent_give_up_together() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:
        port = server.getsockname()[1]
        started = threading.Barrier(THREADS)
        memory = EpochMemory()
        url = f"postgresql://user@127.0.0.1:{port}/none"
        connections = Connections(
            url, "schema", limit=THREADS, application="test", seconds=5.0, memory=memory
        )

        def use() -> None:
            started.wait()
            with connections.use():
                pass

        with closing(connections):
            asked = [pool.submit(use) for _ in range(THREADS)]
            for each in asked:
                with pytest.raises(StoreUnavailable):
                    each.result()
        server.setblocking(False)
        server.accept()[0].close()
        with pytest.raises(BlockingIOError):  # nobody else has tried
            server.accept()
