"""Other changes of a collection, and plain puts: ``python -m benchmarks.service.changes``.

Puts that skip items similar to stored ones, and changes of payloads alone, are each measured in
turn with puts of the same number of vectors: in a file of this process, and over HTTP by one client
and by several. ``--data DIR`` is the folder of the data sets.
"""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
import orjson

import gcws_search
from benchmarks.harness.client import request_bytes, run
from benchmarks.harness.datasets import load
from benchmarks.harness.report import Table, arguments
from benchmarks.harness.server import Server, serving
from gcws_search.index.warmup.compile import compile_kernels

STORED: Final = 20_000
BATCH: Final = 2000
SINGLES: Final = 200
TURNS: Final = 5
SECONDS: Final = 2.0
LEAST: Final = 0.95
CLIENTS: Final = (1, 16)
COLUMNS: Final = ("what", "where", "plain puts, a second", "this, a second", "ratio", "goal")
UNLESS: Final = {"mode": "unless_similar", "min_score": LEAST}
_URL: Final = "/v1/collections/things"
_STORE: Final = f"stored unless one is {LEAST} like it"
_PATCH: Final = "other payload, beside an upsert"

Rows = np.ndarray[Any, np.dtype[np.float32]]
Rate = Callable[[], float]
"""Makes some changes, and returns how many a second."""


def rates(plain: Rate, other: Rate) -> tuple[float, float]:
    """Return the median rates of both, measured in turns."""
    found = [(plain(), other()) for _ in range(TURNS)]
    return statistics.median(a for a, _ in found), statistics.median(b for _, b in found)


def add(table: Table, what: str, where: str, both: tuple[float, float]) -> None:
    """Add one row."""
    plain, other = both
    goal = "at least 0.5" if what == _STORE else "at least 3"
    table.add(what, where, plain, other, f"{other / plain:.2f} ×", goal)
    print(table.rows[-1], flush=True)


def repeated(change: Callable[[int], object], size: int = 1) -> Rate:
    """Return the rate of a change that gets a new number each time."""
    numbers = count()

    def rate() -> float:
        calls, began = max(1, SINGLES // size), perf_counter()
        for _ in range(calls):
            change(next(numbers))
        return calls * size / (perf_counter() - began)

    return rate


def embedded(table: Table, rows: Rows, folder: Path) -> None:
    """Measure collections in files of this process."""
    paths = [folder / name for name in ("plain.sqlite", "unless.sqlite")]
    collections = [gcws_search.Collection.open(path, dim=rows.shape[1]) for path in paths]
    later = rows[STORED:]

    def adding(collection: gcws_search.Collection, size: int, **mode: Any) -> Rate:  # noqa: ANN401
        return repeated(
            lambda at: collection.add(later[at * size % len(later) :][:size], **mode), size
        )

    for collection in collections:
        collection.add(rows[:STORED], ids=[str(number) for number in range(STORED)])
    plain, unless = collections
    for size in (1, BATCH):
        both = adding(plain, size), adding(unless, size, **UNLESS)
        add(table, _STORE, f"embedded, {size:,} a call", rates(*both))
    upsert = repeated(lambda at: plain.add([rows[at]], ids=[str(at)]))
    patch = repeated(lambda at: plain.set_payload(str(at), payload={"checked": at}))
    add(table, _PATCH, "embedded, 1 a call", rates(upsert, patch))
    for collection in collections:
        collection.close()


def put(vector: Sequence[float], **more: Any) -> bytes:  # noqa: ANN401
    """Return the request that puts one item."""
    body = orjson.dumps({"items": [{"vector": vector}]} | more)
    return request_bytes("PUT", f"{_URL}/items", body)


def over_http(table: Table, rows: Rows, server: Server) -> None:
    """Measure a server."""
    client = gcws_search.connect(f"http://127.0.0.1:{server.port}")
    things = client.collection("things", dim=rows.shape[1])
    things.add(rows[:STORED], ids=[str(number) for number in range(STORED)])
    later: list[list[float]] = rows[STORED : STORED + 8 * BATCH].tolist()
    plain = [put(each) for each in later[::2]]
    unless = [put(each, **UNLESS) for each in later[1::2]]
    upserts = [
        request_bytes(
            "PUT",
            f"{_URL}/items",
            orjson.dumps({"items": [{"id": str(number % STORED), "vector": vector}]}),
        )
        for number, vector in enumerate(later)
    ]
    patches = [
        request_bytes(
            "PATCH",
            f"{_URL}/items/{number % STORED}",
            orjson.dumps({"payload": {"checked": number}}),
        )
        for number in range(len(later))
    ]
    for clients in CLIENTS:

        def sent(requests: list[bytes], connections: int = clients) -> Rate:
            return lambda: run(server.port, requests, connections=connections, seconds=SECONDS).rate

        where = f"HTTP, {clients} client{'s' * (clients > 1)}"
        add(table, _STORE, where, rates(sent(plain), sent(unless)))
        add(table, _PATCH, where, rates(sent(upserts), sent(patches)))
    client.close()


def main() -> None:
    """Measure and print."""
    parser = arguments("Changes beside plain puts.")
    options = parser.parse_args()
    compile_kernels()
    vectors = load("fashion_mnist", options.data).vectors
    rows = np.random.default_rng(0).permutation(vectors).astype(np.float32)
    table = Table("changes", COLUMNS)
    with tempfile.TemporaryDirectory() as name:
        embedded(table, rows, Path(name))
        with serving(Path(name) / "data") as server:
            over_http(table, rows, server)
    table.notes.append(
        f"fashion_mnist, {STORED:,} items of 784 numbers. In each turn, plain puts store as many "
        "vectors. A request puts one item."
    )
    table.publish(options, threads="all cores")


if __name__ == "__main__":
    main()
