"""Cost of durability compared with SQLite alone: ``python -m benchmarks.service.durability``.

Single inserts, each on the disk before it is answered, through the library and through HTTP, by one
client and by several; a bulk load; queries during a load at full speed; and, with ``--churn
MINUTES``, the memory of a server whose items are replaced repeatedly. Bare SQLite gets the same
rows, settings and transactions by one thread, in turn with the service, since the disk's speed
varies.
"""

import multiprocessing
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event as EventClass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import orjson

from benchmarks.harness.bare_sqlite import Bare, Prepared, prepared
from benchmarks.harness.client import Connection, quantiles, request_bytes
from benchmarks.harness.datasets import Vectors, made
from benchmarks.harness.report import Table, arguments
from benchmarks.harness.server import SERVICE, Server, resident_bytes, serving
from benchmarks.service.http import CONSTANT, npy
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.batches import RawBatch
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    ExactParams,
    GcwsParams,
)
from gcws_search.index.storage.connection import Durability
from gcws_search.index.warmup.compile import compile_kernels

BEFORE: Final = 20_000
SINGLES: Final = 1600
NUMBERS: Final = range(BEFORE, BEFORE + SINGLES)
SLICES: Final = 8
"""Single inserts go in so many turns, ours and bare."""
CLIENTS: Final = (1, 8)
LOADED: Final = 50_000
LOADS: Final = 3
DURABILITIES: Final[tuple[Durability, ...]] = ("full", "normal")
LOOK_SECONDS: Final = 0.1
MAX_LOOKS: Final = 1200
GROWTH: Final = 1.5
"""Lists are made anew once the collection has grown by this factor."""
CHUNK_ROWS: Final = 8192
"""What a load commits at once (`load_chunk_rows`)."""
QUERY_SECONDS: Final = 5.0
CHURNED: Final = 20_000
CHURN_BATCH: Final = 500
CHURN_SAMPLES: Final = 40
FRONTS: Final = 2

COLUMNS: Final = ("what", "ours", "bare SQLite, or idle", "ratio", "goal")
_URL: Final = "/v1/collections/things"
_HALF: Final = "at least 0.5"
_MAX: Final = "at least 0.6"
_THREE: Final = "at most 3"

Row: TypeAlias = tuple[Any, ...]
Insert: TypeAlias = Callable[[range], None]
"""Inserts items of these numbers one by one."""


def items(vectors: Vectors) -> ItemBatch:
    """Return vectors as items named by their numbers."""
    ids = [str(number) for number in range(len(vectors))]
    return ItemBatch(ids, RawBatch("dense", dense=vectors), [None] * len(vectors))


def in_turn(ours: Insert, bare: Insert, numbers: range) -> tuple[float, float]:
    """Return inserts per second, ours and bare, as medians over turns."""
    rates: tuple[list[float], list[float]] = [], []
    size = len(numbers) // SLICES
    for first in range(numbers.start, numbers.start + size * SLICES, size):
        for insert, found in zip((ours, bare), rates, strict=True):
            began = time.perf_counter()
            insert(range(first, first + size))
            found.append(size / (time.perf_counter() - began))
    return statistics.median(rates[0]), statistics.median(rates[1])


def shared_out(work: Insert, clients: int) -> Insert:
    """Return the same by several threads at once."""

    def run(numbers: range) -> None:
        threads = [
            threading.Thread(target=work, args=(numbers[client::clients],))
            for client in range(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return work if clients == 1 else run


def chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Yield rows as a load commits them."""
    for first in range(0, len(rows), CHUNK_ROWS):
        yield rows[first : first + CHUNK_ROWS]


@contextmanager
def bare_file(like: Prepared, rows: int, durability: Durability = "full") -> Iterator[Bare]:
    """Open a new bare file with the first rows in it."""
    with tempfile.TemporaryDirectory() as name:
        bare = Bare(Path(name) / "bare.sqlite", like, durability)
        try:
            for some in chunks(like.rows[:rows]):
                bare.insert(some)
            yield bare
        finally:
            bare.close()


def bare_inserts(bare: Bare, like: Prepared) -> Insert:
    """Return a function that inserts the rows of some numbers."""

    def insert(numbers: range) -> None:
        for number in numbers:
            bare.insert_one(like.rows[number])

    return insert


def by_library(stored: StoredCollection, vectors: Vectors) -> Insert:
    """Return a function that puts the items of some numbers, one by one."""

    def insert(numbers: range) -> None:
        for number in numbers:
            raw = RawBatch("dense", dense=vectors[number : number + 1])
            stored.put(ItemBatch([str(number)], raw, [None]), "insert")

    return insert


def by_http(port: int, vectors: Vectors, path: str = f"{_URL}/items") -> Insert:
    """Return a function that sends the items of some numbers one by one over a connection."""
    requests = {
        number: request_bytes("PUT", path, _document(number, vectors[number])) for number in NUMBERS
    }

    def insert(numbers: range) -> None:
        connection = Connection(port)
        for number in numbers:
            connection.send(requests[number])
            connection.receive()
        connection.close()

    return insert


def _document(number: int, vector: Vectors) -> bytes:
    item = {"id": str(number), "vector": vector.tolist()}
    return orjson.dumps({"items": [item], "mode": "insert"})


def single_inserts(table: Table, vectors: Vectors, like: Prepared) -> None:
    """Measure single inserts through the library and through HTTP."""
    by_connections(table, like)
    by_constants(table, vectors, like)
    for clients in CLIENTS:
        told = f"{clients} client{'s' * (clients > 1)}"
        for durability in DURABILITIES:
            with (
                in_library(vectors, durability) as stored,
                bare_file(like, BEFORE, durability) as bare,
            ):
                ours = shared_out(by_library(stored, vectors), clients)
                found = in_turn(ours, bare_inserts(bare, like), NUMBERS)
            kind = "" if durability == "full" else f" ({durability}: not yet on the disk)"
            goal = _MAX if durability == "full" else ""
            add(table, f"single inserts{kind}, library, {told}, 1/s", found, goal)
        with served(vectors[:BEFORE]) as server, bare_file(like, BEFORE) as bare:
            ours = shared_out(by_http(server.port, vectors), clients)
            add(
                table,
                f"single inserts, HTTP, {told}, 1/s",
                in_turn(ours, bare_inserts(bare, like), NUMBERS),
                _MAX,
            )


def by_constants(table: Table, vectors: Vectors, like: Prepared) -> None:
    """Measure the overhead of HTTP: a constant answer to each insert, then a bare insert."""
    told = f"answered with a constant over HTTP, then bare SQLite, {CLIENTS[0]} client, 1/s"
    with (
        served(vectors[:0], program=CONSTANT) as server,
        bare_file(like, BEFORE) as bare,
        bare_file(like, BEFORE) as other,
    ):
        ask, store = by_http(server.port, vectors, f"{_URL}/constant"), bare_inserts(other, like)

        def insert(numbers: range) -> None:
            ask(numbers)
            store(numbers)

        add(table, told, in_turn(insert, bare_inserts(bare, like), NUMBERS), "")


def by_connections(table: Table, like: Prepared) -> None:
    """Measure bare SQLite by as many writers as there are clients."""
    with tempfile.TemporaryDirectory() as name, bare_file(like, BEFORE) as bare:
        path = Path(name) / "several.sqlite"
        first = Bare(path, like)
        for some in chunks(like.rows[:BEFORE]):
            first.insert(some)

        def insert(numbers: range) -> None:
            own = Bare(path, like)
            bare_inserts(own, like)(numbers)
            own.close()

        several = shared_out(insert, max(CLIENTS))
        found = in_turn(several, bare_inserts(bare, like), NUMBERS)
        first.close()
    add(table, f"bare SQLite by {max(CLIENTS)} connections, 1/s", found, "")


@contextmanager
def in_library(vectors: Vectors, durability: Durability) -> Iterator[StoredCollection]:
    """Open a collection of the first items, its graph built."""
    with tempfile.TemporaryDirectory() as name:
        catalog = Catalog.open(Path(name), durability=durability)
        stored, _ = catalog.create("things", CollectionConfig(dim=vectors.shape[1]))
        stored.put(items(vectors[:BEFORE]))
        stored.finish_background_work()
        try:
            yield stored
        finally:
            catalog.close()


@contextmanager
def served(
    vectors: Vectors, backend: str = "gcws", workers: int = 1, program: Sequence[str] = SERVICE
) -> Iterator[Server]:
    """Run a server with a collection of some items."""
    with (
        tempfile.TemporaryDirectory() as name,
        serving(Path(name), workers=workers, program=program) as server,
    ):
        connection = Connection(server.port)
        document = {"dim": vectors.shape[1], "backend": {"kind": backend}}
        connection.ask("PUT", _URL, document)
        if len(vectors):
            connection.send(load_request(vectors, 0))
            connection.receive()
            wait_for_graph(connection)
        connection.close()
        yield server


def wait_for_graph(connection: Connection) -> None:
    """Return once no graph is being built, if the collection gets one."""
    for _ in range(MAX_LOOKS):
        described = connection.ask("GET", _URL)
        stats = described["backends"][0]["stats"]
        if "graph" not in stats:
            return
        graph = stats["graph"]
        if graph and GROWTH * graph["made_for_rows"] >= described["items"]:
            return
        time.sleep(LOOK_SECONDS)
    raise TimeoutError("no graph has been built")


def load_request(vectors: Vectors, first: int) -> bytes:
    """Return a load of vectors, their ids numbered from ``first``."""
    path = f"{_URL}/load?id_start={first}"
    return request_bytes("POST", path, npy(vectors), "application/x-npy")


def bulk_loads(table: Table, vectors: Vectors) -> None:
    """Measure whole loads into new collections."""
    kinds: dict[str, BackendParams] = {"gcws": GcwsParams(), "exact": ExactParams()}
    some = vectors[:LOADED]
    for kind, params in kinds.items():
        with tempfile.TemporaryDirectory() as name:
            config = CollectionConfig(dim=some.shape[1], backend=params)
            like = prepared(Path(name), config, items(some))
        rates: tuple[list[float], list[float]] = [], []
        for _ in range(LOADS):
            with served(some[:0], kind) as server:
                connection, request = Connection(server.port), load_request(some, 0)
                began = time.perf_counter()
                connection.send(request)
                connection.receive()
                rates[0].append(LOADED / (time.perf_counter() - began))
                connection.close()
            with bare_file(like, 0) as bare:
                began = time.perf_counter()
                for rows in chunks(like.rows):
                    bare.insert(rows)
                rates[1].append(LOADED / (time.perf_counter() - began))
        found = statistics.median(rates[0]), statistics.median(rates[1])
        add(table, f"bulk load, npy, {kind}, items/s", found, _HALF)


def queries_under_load(table: Table, vectors: Vectors, workers: int) -> None:
    """Measure queries by one client, alone and during a continuous load.

    One process also gets requests for constant answers: they show how much a load slows requests
    without a search.
    """
    what = {"queries": "query"} if workers > 1 else {"queries": "query", "constants": "constant"}
    bodies = [orjson.dumps({"vector": vector}) for vector in vectors[-500:].tolist()]
    program = SERVICE if workers > 1 else CONSTANT
    with served(vectors[:BEFORE], workers=workers, program=program) as server:
        asked = {
            name: [request_bytes("POST", f"{_URL}/{route}", body) for body in bodies]
            for name, route in what.items()
        }
        idle = {name: query_times(server.port, each) for name, each in asked.items()}
        # A separate process as client: threads of one process would wait for each other.
        spawned = multiprocessing.get_context("spawn")
        stopping = spawned.Event()
        loads = spawned.Process(target=load_on, args=(server.port, vectors[:LOADED], stopping))
        loads.start()
        busy = {name: query_times(server.port, each) for name, each in asked.items()}
        stopping.set()
        loads.join()
    processes = "" if workers == 1 else f", {workers} fronts"
    for name in what:
        pairs = zip(("p50", "p99"), quantiles(busy[name]), quantiles(idle[name]), strict=True)
        for quantile, ours, alone in pairs:
            told = f"{name} beside a load{processes}, {quantile}, ms"
            add(table, told, (1e3 * ours, 1e3 * alone), _THREE if name == "queries" else "")


def query_times(port: int, requests: Sequence[bytes]) -> list[float]:
    """Return the seconds of each query, sent one after the other."""
    connection, times = Connection(port), list[float]()
    until = time.perf_counter() + QUERY_SECONDS
    while time.perf_counter() < until:
        began = time.perf_counter()
        connection.send(requests[len(times) % len(requests)])
        connection.receive()
        times.append(time.perf_counter() - began)
    connection.close()
    return times


def load_on(port: int, vectors: Vectors, stopping: EventClass) -> None:
    """Load the same items repeatedly."""
    connection, request = Connection(port), load_request(vectors, 0)
    while not stopping.is_set():
        connection.send(request)
        connection.receive()
    connection.close()


def churn(table: Table, vectors: Vectors, minutes: float) -> None:
    """Replace and delete items for some minutes, and record the server's memory."""
    draw, sizes = random.Random(0), []
    with served(vectors[:CHURNED]) as server:
        connection = Connection(server.port)
        began, changed = time.monotonic(), 0
        for sample in range(CHURN_SAMPLES):
            until = began + 60 * minutes * (sample + 1) / CHURN_SAMPLES
            while time.monotonic() < until:
                change(connection, vectors, draw)
                changed += CHURN_BATCH
            sizes.append(resident_bytes(server.pid) / 2**20)
            print(f"{sample + 1}/{CHURN_SAMPLES}: {sizes[-1]:.0f} MiB, {changed:,} changed")
        connection.close()
    quarter = CHURN_SAMPLES // 4
    early = statistics.median(sizes[quarter : 2 * quarter])
    late = statistics.median(sizes[-quarter:])
    told = f"memory after {changed:,} items replaced in {minutes:g} minutes, and after a third, MiB"
    add(table, told, (late, early), "at most 1.1")


def change(connection: Connection, vectors: Vectors, draw: random.Random) -> None:
    """Delete some items, and put others."""
    chosen = draw.sample(range(CHURNED), CHURN_BATCH)
    gone = [str(number) for number in chosen[: CHURN_BATCH // 2]]
    connection.ask("POST", f"{_URL}/items/delete", {"ids": gone})
    sent = [
        {
            "id": str(number),
            "vector": vectors[draw.randrange(len(vectors))].tolist(),
            "payload": {"text": "x" * draw.randrange(200)},
        }
        for number in chosen
    ]
    connection.ask("PUT", f"{_URL}/items", {"items": sent})


def add(table: Table, what: str, found: tuple[float, float], goal: str) -> None:
    """Add a row, and show it at once."""
    table.add(what, *found, found[0] / found[1], goal)
    print(table.rows[-1], flush=True)


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = arguments("What durability costs beside SQLite alone.", data=False)
    kinds = ("inserts", "loads", "queries")
    parser.add_argument("--only", nargs="*", choices=kinds, default=kinds)
    parser.add_argument("--churn", type=float, default=0.0, metavar="MINUTES")
    options = parser.parse_args(given)
    compile_kernels()
    vectors = made(rows=max(BEFORE + SINGLES, LOADED) + CHUNK_ROWS)
    np.random.default_rng(0).shuffle(vectors)
    table = Table("durability", COLUMNS)
    if "inserts" in options.only:
        with tempfile.TemporaryDirectory() as name:
            config = CollectionConfig(dim=vectors.shape[1])
            like = prepared(Path(name), config, items(vectors[: BEFORE + SINGLES]))
        single_inserts(table, vectors, like)
    if "loads" in options.only:
        bulk_loads(table, vectors)
    if "queries" in options.only:
        for workers in (1, FRONTS):
            queries_under_load(table, vectors, workers)
    if options.churn:
        churn(table, vectors, options.churn)
    table.notes.append(
        f"Synthetic clusters of {vectors.shape[1]} dimensions. {SINGLES:,} single inserts into "
        f"{BEFORE:,} items in {SLICES} turns; {LOADS} loads of {LOADED:,} items each, in commits "
        f"of {CHUNK_ROWS:,}; medians. Bare SQLite gets the same rows, made before, with the same "
        "table, settings and transactions, by one thread."
    )
    table.publish(options, threads="kernels on all cores; clients on the same machine")


if __name__ == "__main__":
    main()
