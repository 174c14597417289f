"""The client and the command line beside raw HTTP: ``python -m benchmarks.service.client``.

Loads Fashion-MNIST over HTTP as one ``.npy`` body, by `gcws-search load` and by `add`, in turns;
asks single queries by bare httpx and by `query`; and many of an embedded collection and of the
index itself. ``--data DIR`` is the folder of the data sets.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import gcws_search
from benchmarks.harness.datasets import Vectors, load
from benchmarks.harness.report import Table, arguments
from benchmarks.harness.server import serving
from benchmarks.service.http import npy
from gcws_search import index as ix

ROUNDS: Final = 3
QUERIES: Final = 1000
REPEATS: Final = 15
COLUMNS: Final = ("what", "measured", "beside", "ratio", "goal")
PROGRAM: Final = [sys.executable, "-m", "gcws_search"]


def timed(work: Callable[[], object]) -> float:
    """Return the duration of a function in seconds."""
    start = perf_counter()
    work()
    return perf_counter() - start


def medians(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each way, measured in turns."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            found[name].append(timed(work))
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def used_seconds(pid: int) -> float:
    """Return the processor time of a process, of this one, and of its ended children."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    there = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    here = sum(os.times()[:4])
    return there + here


def loads(
    table: Table, server: gcws_search.Server, pid: int, vectors: Vectors, folder: Path
) -> None:
    """Compare loads of the same rows, each into a new collection that is dropped afterwards.

    Both wall time and processor time of client and server are reported: the latter hardly depends
    on other load.
    """
    labels = np.arange(len(vectors)) % 10
    np.save(folder / "rows.npy", vectors)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    pq.write_table(pa.table({"vector": flat, "label": labels}), folder / "rows.parquet")
    body = npy(vectors)

    def measured(work: Callable[[gcws_search.Collection], object]) -> tuple[float, float]:
        """Return wall and processor seconds, without creating and dropping."""
        collection = server.collection("fresh", dim=vectors.shape[1])
        before = used_seconds(pid)
        try:
            return timed(lambda: work(collection)), used_seconds(pid) - before
        finally:
            server.drop("fresh")

    def raw(_: gcws_search.Collection) -> None:
        url = f"{server.url}/v1/collections/fresh/load"
        headers = {"Content-Type": "application/x-npy"}
        httpx.post(url, content=body, headers=headers, timeout=None).raise_for_status()

    def command(name: str) -> Callable[[gcws_search.Collection], object]:
        words = ["load", str(folder / name), "--into", "fresh", "--url", server.url]
        return lambda _: subprocess.run([*PROGRAM, *words], check=True, capture_output=True)

    ways: dict[str, Callable[[gcws_search.Collection], object]] = {
        "raw": raw,
        "npy": command("rows.npy"),
        "parquet": command("rows.parquet"),
        "add": lambda collection: collection.add(vectors),
        "labels": lambda collection: collection.add(vectors, payloads={"y": labels}),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, work in ways.items():
            found[name].append(measured(work))
    medians_of = {name: np.median(each, axis=0).tolist() for name, each in found.items()}
    raw_clock, raw_used = medians_of["raw"]
    beside = f"{len(vectors) / raw_clock:,.0f} rows/s"
    for name, what, goal in (
        ("npy", "`gcws-search load` of a `.npy` file", "0.9"),
        ("parquet", "`gcws-search load` of Parquet with labels", "0.8"),
        ("add", "`add` of an array", "0.9"),
        ("labels", "`add` of an array with labels", ""),
    ):
        clock, used = medians_of[name]
        rate = f"{len(vectors) / clock:,.0f} rows/s"
        table.add(f"{what}, raw HTTP beside", rate, beside, raw_clock / clock, goal)
        table.add("… its processor time", f"{used:.1f} s", f"{raw_used:.1f} s", raw_used / used, "")


def single_queries(
    table: Table, server: gcws_search.Server, stored: Vectors, queries: Vectors
) -> None:
    """Compare single queries; each is sent both ways, in alternating order."""
    collection = server.collection("queries", dim=stored.shape[1])
    collection.add(stored)
    _wait_until_searches_are_quick(collection, queries[0])
    url = f"{server.url}/v1/collections/queries/query"
    found: dict[str, list[float]] = {"bare": [], "ours": []}
    with httpx.Client() as bare:
        ways: list[tuple[str, Callable[[Any], object]]] = [
            ("bare", lambda row: bare.post(url, json={"vector": row.tolist()}).json()),
            ("ours", collection.query),
        ]
        for row in queries:
            for name, ask in ways:
                start = perf_counter()
                ask(row)
                found[name].append(perf_counter() - start)
            ways.reverse()
    ours, bare_p50 = (statistics.median(found[name]) for name in ("ours", "bare"))
    table.add(
        "`query` p50, bare httpx beside",
        f"{ours * 1e3:.3f} ms",
        f"{bare_p50 * 1e3:.3f} ms",
        ours / bare_p50,
        "at most 1.15",
    )
    server.drop("queries")


def _wait_until_searches_are_quick(collection: gcws_search.Collection, row: Vectors) -> None:
    """Wait until the neighbour graph answers."""
    while collection.query(row, explain=True).explanation["method"] != "graph":  # type: ignore[index]
        collection.query_many(row[None])


def many_queries(table: Table, stored: Vectors, queries: Vectors, folder: Path) -> None:
    """Compare `query_many` of an embedded collection with a search of the index, in turns."""
    with gcws_search.Collection.open(folder / "embedded.sqlite", dim=stored.shape[1]) as collection:
        collection.add(stored)
        _wait_until_searches_are_quick(collection, queries[0])
        index, params = collection.index, ix.SearchParams()
        ways: dict[str, Callable[[], object]] = {
            "index": lambda: index.search(index.space.from_dense(queries), params),
            "ours": lambda: collection.query_many(queries),
        }
        seconds = medians(ways, REPEATS)
    rates = {name: len(queries) / each for name, each in seconds.items()}
    table.add(
        f"embedded `query_many` of {len(queries):,}, the index itself beside",
        f"{rates['ours']:,.0f}/s",
        f"{rates['index']:,.0f}/s",
        rates["ours"] / rates["index"],
        "0.95",
    )


def processor_seconds(*words: str) -> float:
    """Return the minimum processor time of a Python process."""
    least = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        least = min(least, used)
    return least


def starts(table: Table) -> None:
    """Measure the cost of help and of an import."""
    for what, words, goal in (
        ("processor of `gcws-search --help`", ("-m", "gcws_search", "--help"), "0.6 s"),
        (
            "processor of `from gcws_search import connect`",
            ("-c", "from gcws_search import connect"),
            "0.4 s",
        ),
    ):
        table.add(what, f"{processor_seconds(*words):.2f} s", "", "", f"at most {goal}")


def main() -> None:
    """Measure everything."""
    parser = arguments(__doc__ or "")
    options = parser.parse_args()
    table = Table("client", COLUMNS)
    data = load("fashion_mnist", options.data)
    stored, queries = data.hold_out(QUERIES)
    starts(table)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            serving(folder / "server") as running,
            gcws_search.connect(f"http://127.0.0.1:{running.port}") as server,
        ):
            loads(table, server, running.pid, data.vectors, folder)
            single_queries(table, server, stored, queries)
        many_queries(table, stored, queries, folder / "embedded")
    table.publish(options, threads="1 server process, 1 client process")


if __name__ == "__main__":
    main()
