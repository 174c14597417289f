"""The service through HTTP, a real process: ``python -m benchmarks.service.http --data DIR``.

Loads Fashion-MNIST as one ``.npy``, a generated set and a sparse text collection; restarts;
inserts; queries each of them.
"""

import io
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from benchmarks.harness import client
from benchmarks.harness.client import Connection, request_bytes
from benchmarks.harness.datasets import Vectors, load
from benchmarks.harness.report import Table, arguments
from benchmarks.harness.server import Server, resident_bytes, serving

JsonVector: TypeAlias = Any
Collections: TypeAlias = dict[str, Vectors]
DENSE: Final = "fashion"
SETS: Final = {DENSE: "fashion_mnist", "synthetic": "synthetic, clustered", "news": "news20"}
QUERIES: Final = 500
INSERTS: Final = 300
POLL_SECONDS: Final = 0.1
GOALS: Final = {1: "", 4: "at least 0.5", 16: "at least 0.7"}
"""By connections, the share of the rate of constant answers."""
CONSTANT: Final = ("-m", "benchmarks.harness.constant")
COLUMNS: Final = ("what", "measured", "beside", "ratio", "goal")


def npy(vectors: Vectors) -> bytes:
    """Return a dense array as the bytes of an ``.npy`` file."""
    file = io.BytesIO()
    np.save(file, vectors)
    return file.getvalue()


def arrow(vectors: Vectors) -> bytes:
    """Return compressed rows as an Arrow stream of ids, indices and values."""
    sink = pa.BufferOutputStream()
    columns = {
        "id": pa.array([str(row) for row in range(vectors.shape[0])]),
        "indices": pa.ListArray.from_arrays(
            pa.array(vectors.indptr, pa.int32()), pa.array(vectors.indices, pa.int32())
        ),
        "values": pa.ListArray.from_arrays(
            pa.array(vectors.indptr, pa.int32()), pa.array(vectors.data, pa.float32())
        ),
    }
    table = pa.table(columns)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=4096)
    return bytes(sink.getvalue())


def as_json(vectors: Vectors, row: int) -> JsonVector:
    """Return one vector in the form the API takes."""
    if isinstance(vectors, np.ndarray):
        return vectors[row].tolist()
    entries = slice(vectors.indptr[row], vectors.indptr[row + 1])
    indices, values = vectors.indices[entries], vectors.data[entries]
    return {"indices": indices.tolist(), "values": values.tolist()}


def queries(vectors: Vectors, path: str) -> list[bytes]:
    """Return a query request for each of the first vectors."""
    bodies = [{"vector": as_json(vectors, row)} for row in range(min(QUERIES, vectors.shape[0]))]
    return [request_bytes("POST", path, orjson.dumps(body)) for body in bodies]


def collection(name: str) -> str:
    """Return the path of a collection."""
    return f"/v1/collections/{name}"


def load_seconds(server: Server, name: str, dim: int | None, body: bytes, type_: str) -> float:
    """Create a collection and load it; return the seconds until all items are searchable."""
    connection = Connection(server.port)
    connection.ask("PUT", collection(name), {"dim": dim})
    began = perf_counter()
    connection.send(request_bytes("POST", f"{collection(name)}/load", body, type_))
    answer = orjson.loads(connection.receive())
    took = perf_counter() - began
    connection.close()
    if answer["rejected"]:
        raise RuntimeError(answer["rejected"][:3])
    return took


def graph_seconds(server: Server, name: str) -> float:
    """Return the seconds until a collection's graph is built, or found to be useless."""
    connection = Connection(server.port)
    began = perf_counter()
    while True:
        description = connection.ask("GET", collection(name))
        stats = description["backends"][0]["stats"]
        if stats["graph"] is not None or stats["rows_better_scanned"]:
            break
        time.sleep(POLL_SECONDS)
    connection.close()
    return perf_counter() - began


def insert_seconds(server: Server, vectors: Vectors) -> list[float]:
    """Return the time of each single insert, one after another."""
    connection = Connection(server.port)
    times = []
    for row in range(INSERTS):
        item = {"id": f"new-{row}", "vector": as_json(vectors, row)}
        request = request_bytes(
            "PUT", f"{collection(DENSE)}/items", orjson.dumps({"items": [item]})
        )
        began = perf_counter()
        connection.send(request)
        connection.receive()
        times.append(perf_counter() - began)
    connection.close()
    return times


def sqlite_seconds(folder: Path, vectors: Vectors) -> list[float]:
    """Return the time of each single insert of the same size into SQLite alone, as durable."""
    database = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    for pragma in ("page_size = 8192", "journal_mode = WAL", "synchronous = FULL"):
        database.execute(f"PRAGMA {pragma}")
    database.execute(
        "CREATE TABLE items (key INTEGER PRIMARY KEY, id TEXT UNIQUE, vector BLOB, codes BLOB)"
    )
    times = []
    for row in range(INSERTS):
        values = (f"new-{row}", vectors[row].tobytes(), bytes(256))
        began = perf_counter()
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO items (id, vector, codes) VALUES (?, ?, ?)", values)
        database.execute("COMMIT")
        times.append(perf_counter() - began)
    database.close()
    return times


def milliseconds(times: list[float]) -> str:
    """Return median and 99th percentile."""
    p50, p99 = client.quantiles(times)
    return f"p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms"


def first_start(table: Table, folder: Path) -> None:
    """Measure a start without compiled kernels, and the next one."""
    kernels = folder / "kernels"
    with serving(folder / "empty", kernels=kernels) as server:
        cold = server.ready_seconds
    with serving(folder / "empty", kernels=kernels) as server:
        live, warm = server.live_seconds, server.ready_seconds
    table.add("very first start, kernels compiled", f"{cold:.1f} s", "", "", "under 60 s")
    table.add("start without data, /livez answers", f"{live:.2f} s", "", "", "under 0.5 s")
    table.add("start without data, kernels cached", f"{warm:.1f} s", "", "", "")


def loads(table: Table, server: Server, collections: Collections) -> None:
    """Measure loading collections, and the memory they take together."""
    before = resident_bytes(server.pid)
    for name, vectors in collections.items():
        rows, dim = vectors.shape
        if isinstance(vectors, np.ndarray):
            body, form, type_ = npy(vectors), ".npy", "application/x-npy"
            took = load_seconds(server, name, dim, body, type_)
        else:
            body, form, type_ = arrow(vectors), "Arrow", "application/vnd.apache.arrow.stream"
            took = load_seconds(server, name, None, body, type_)
        table.add(
            f"load {name}, {rows:,} x {dim:,}, {form}",
            f"{took:.1f} s",
            f"{len(body) / took / 1e6:,.0f} MB/s",
            "",
            "under 30 s" if name == DENSE else "",
        )
        graph = f"{graph_seconds(server, name):.1f} s"
        table.add(f"then, searchable, until the graph of {name} is built", graph, "", "", "")
    grown = resident_bytes(server.pid) - before
    table.add(f"memory for {', '.join(collections)}", f"{grown / 2**20:,.0f} MiB", "", "", "")


def hold_out(port: int, name: str, count: int) -> None:
    """Delete the first items of a collection, so that queries by them are of vectors not stored."""
    connection = Connection(port)
    ids = [str(row) for row in range(count)]
    connection.ask("POST", f"{collection(name)}/items/delete", {"ids": ids})
    connection.close()


def query_rates(table: Table, port: int, name: str, vectors: Vectors) -> None:
    """Measure queries beside an endpoint that parses the same body and returns a constant."""
    asked = queries(vectors, f"{collection(name)}/query")
    nothing = queries(vectors, f"{collection(name)}/constant")
    hold_out(port, name, len(asked))
    for connections, goal in GOALS.items():
        client.run(port, asked, seconds=1, connections=connections)
        runs = [
            [client.run(port, each, connections=connections) for each in (asked, nothing)]
            for _ in range(3)
        ]
        ours = sorted((run for run, _ in runs), key=lambda run: run.rate)[1]
        constant = statistics.median(run.rate for _, run in runs)
        clients = "client" if connections == 1 else "clients"
        table.add(
            f"queries/s, {name}, {connections} {clients}",
            f"{ours.rate:,.0f} (p50 {ours.p50_seconds * 1e3:.2f} ms, "
            f"p99 {ours.p99_seconds * 1e3:.2f} ms)",
            f"{constant:,.0f} parsed and answered with a constant",
            f"{ours.rate / constant:.2f}",
            goal,
        )


def batch_rate(table: Table, port: int, dense: Vectors) -> None:
    """Measure queries in one ``.npy`` body."""
    connection = Connection(port)
    request = request_bytes(
        "POST", f"{collection(DENSE)}/query/batch", npy(dense[:QUERIES]), "application/x-npy"
    )

    def ask() -> None:
        connection.send(request)
        connection.receive()

    ask()
    rate = QUERIES / statistics.median(_seconds(ask) for _ in range(3))
    table.add(f"queries/s, {DENSE}, {QUERIES} in one .npy body", f"{rate:,.0f}", "", "", "")
    connection.close()


def inserts(table: Table, server: Server, folder: Path, dense: Vectors) -> None:
    """Measure single inserts beside bare SQLite."""
    ours, bare = insert_seconds(server, dense), sqlite_seconds(folder, dense)
    ratio = f"{statistics.median(ours) / statistics.median(bare):.1f} ×"
    beside = f"SQLite alone: {milliseconds(bare)}"
    table.add("single insert, durable", milliseconds(ours), beside, ratio, "")


def _seconds(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def stages(table: Table, folder: Path, collections: Collections) -> Iterator[str]:
    """Measure everything in order, naming each stage before it begins."""
    yield "first start"
    first_start(table, folder)
    yield "loads"
    with serving(folder / "data") as server:
        loads(table, server, {DENSE: collections[DENSE]})
    yield "restart"
    with serving(folder / "data") as server:
        took = f"{server.ready_seconds:.1f} s"
        table.add(f"restart with {DENSE}, until ready", took, "", "", "under 5 s")
        others = {name: vectors for name, vectors in collections.items() if name != DENSE}
        loads(table, server, others)
        yield "inserts"
        inserts(table, server, folder, collections[DENSE])
    yield "queries"
    with serving(folder / "data", program=CONSTANT) as server:
        for name, vectors in collections.items():
            query_rates(table, server.port, name, vectors)
        batch_rate(table, server.port, collections[DENSE])


def main() -> None:
    """Measure and print."""
    options = arguments("The service through HTTP.").parse_args()
    table = Table("service", COLUMNS)
    collections = {name: load(set_, options.data).vectors for name, set_ in SETS.items()}
    with tempfile.TemporaryDirectory() as name:
        for stage in stages(table, Path(name), collections):
            print(f"… {stage}", flush=True)
    table.notes.append(
        "Clients are keep-alive connections of one process on the same machine. The constant "
        "answer comes from the same application and settings, after it has parsed the same body. "
        "Queries ask for 10 hits at recall 0.9, by vectors that are not stored."
    )
    table.publish(options, threads="1 server process, 1 client process")


if __name__ == "__main__":
    main()
