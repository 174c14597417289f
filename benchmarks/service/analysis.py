"""Cost of a map and a profile, and of concurrent queries.

Command: ``python -m benchmarks.service.analysis --data DIR``.

Queries are sent at a steady rate, and then as fast as one connection receives the answers: first
alone, then during repeated requests for a map or a profile.
"""

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

import numpy as np
import orjson

from benchmarks.harness.client import Connection, quantiles, request_bytes
from benchmarks.harness.datasets import Vectors, load
from benchmarks.harness.report import Table, arguments
from benchmarks.harness.server import serving
from benchmarks.service.http import collection, graph_seconds, load_seconds, npy

DATA: Final = "fashion_mnist"
NAME: Final = "items"
ASKED: Final = {"map": {"sample": 5000}, "profile": {}}
"""Body by route."""
RATES: Final[tuple[float | None, ...]] = (100.0, None)
"""Queries a second; None for as many as one connection takes."""
QUERIES: Final = 500
SECONDS: Final = 20.0
COLUMNS: Final = (
    "route", "queries a second", "answers", "seconds, median", "longest",
    "p99 of queries alone, ms", "beside it, ms", "ratio", "goal",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Beside:
    """Requests that were sent one after another.

    Attributes
    ----------
    seconds : list of float
        What each took.
    """

    seconds: list[float]


@contextmanager
def asking(port: int, route: str) -> Iterator[Beside]:
    """Repeat a request with different seeds while the block runs."""
    found, stop = Beside([]), threading.Event()

    def ask() -> None:
        connection = Connection(port)
        seed = 0
        while not stop.is_set():
            body = orjson.dumps({**ASKED[route], "seed": seed})
            start = perf_counter()
            connection.send(request_bytes("POST", f"{collection(NAME)}/{route}", body))
            connection.receive()
            found.seconds.append(perf_counter() - start)
            seed += 1
        connection.close()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def query_seconds(port: int, requests: Sequence[bytes], rate: float | None) -> list[float]:
    """Return the time of each query sent by one connection, at a rate or one after another."""
    connection = Connection(port)
    times: list[float] = []
    began = perf_counter()
    while (now := perf_counter() - began) < SECONDS:
        if rate is not None and (early := len(times) / rate - now) > 0:
            time.sleep(early)
        start = perf_counter()
        connection.send(requests[len(times) % len(requests)])
        connection.receive()
        times.append(perf_counter() - start)
    connection.close()
    return times


def measure(table: Table, port: int, vectors: Vectors) -> None:
    """Add a row for each route and rate."""
    path = f"{collection(NAME)}/query"
    requests = [
        request_bytes("POST", path, orjson.dumps({"vector": row.tolist()})) for row in vectors
    ]
    query_seconds(port, requests, None)
    for route in ASKED:
        for rate in RATES:
            _, alone = quantiles(query_seconds(port, requests, rate))
            with asking(port, route) as beside:
                times = query_seconds(port, requests, rate)
            _, both = quantiles(times)
            table.add(
                route,
                f"{len(times) / SECONDS:,.0f}",
                len(beside.seconds),
                float(np.median(beside.seconds)),
                max(beside.seconds),
                alone * 1e3,
                both * 1e3,
                f"{both / alone:.1f}",
                "under 2 s, ratio at most 2",
            )


def main() -> None:
    """Measure and print."""
    options = arguments("Maps and profiles beside queries.").parse_args()
    table = Table("analysis", COLUMNS)
    stored, queries = load(DATA, options.data).hold_out(QUERIES)
    with tempfile.TemporaryDirectory() as name, serving(Path(name)) as server:
        load_seconds(server, NAME, stored.shape[1], npy(stored), "application/x-npy")
        graph_seconds(server, NAME)
        measure(table, server.port, queries)
    table.notes.append(
        f"{DATA}, {stored.shape[0]:,} × {stored.shape[1]} items with a graph. Queries ask for 10 "
        "hits at recall 0.9, by vectors that are not stored, from one connection."
    )
    table.publish(options, threads="1 server process, 1 client process")


if __name__ == "__main__":
    main()
