"""Connections with a database that does not answer."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from gcws_search.service.cluster.connections import Connections
from gcws_search.service.cluster.contract import EpochMemory
from gcws_search.service.errors import StoreUnavailable

THREADS = 4


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
