"""One node and a cluster on the same cores: ``python -m benchmarks.service.cluster``.

The node has 100,000 items of 128 numbers, and so has a cluster of PostgreSQL, two shards and a
router. All are processes of this machine. Compared figures are measured in turns.
"""

import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from time import perf_counter
from typing import Final

import orjson
import psycopg
from psycopg.types.numeric import Int8BinaryDumper

from benchmarks.harness import client
from benchmarks.harness.client import Connection, request_bytes
from benchmarks.harness.cluster import DATABASE, Cell, databases, kill
from benchmarks.harness.datasets import Vectors, made
from benchmarks.harness.report import Table, arguments
from benchmarks.harness.server import Server, resident_bytes, serving
from benchmarks.service.http import (
    QUERIES,
    as_json,
    collection,
    graph_seconds,
    hold_out,
    load_seconds,
    npy,
    queries,
)
from gcws_search.index import content_checksum
from gcws_search.service.cluster.database import Database
from tests.support.service.postgres_pair import PostgresPair

NAME: Final = "made"
SHARDS: Final = 2
CLIENTS: Final = 32
TURNS: Final = 5
SECONDS: Final = 3.0
INSERTS: Final = 300
APART: Final = "apart"
"""Schema of what psycopg writes alone."""
RETRY_SECONDS: Final = 0.02
GIVE_UP_SECONDS: Final = 120.0
COLUMNS: Final = ("what", "alone", "cluster", "ratio", "goal")


def by_turns(works: Sequence[Callable[[], float]], turns: int = TURNS) -> list[list[float]]:
    """Return the results of each function at each turn; the first turn is a warm-up."""
    return [[work() for work in works] for _ in range(turns + 1)][1:]


def median_ratio(turns: Sequence[Sequence[float]]) -> float:
    """Return the median over turns of the second figure divided by the first."""
    return statistics.median(second / first for first, second in turns)


def medians(turns: Sequence[Sequence[float]]) -> list[float]:
    """Return the median of each column."""
    return [statistics.median(column) for column in zip(*turns, strict=True)]


def milliseconds(seconds: float) -> str:
    """Return a time as text."""
    return f"{seconds * 1e3:.2f} ms"


# Loading


def apart(databases: PostgresPair) -> int:
    """Create tables that no shard follows; return the number of an empty collection there."""
    with closing(Database.open(databases.primary.url(DATABASE), schema_name=APART)) as database:
        return database.create(NAME, {})[0].number


def copied_seconds(databases: PostgresPair, source: int, target: int) -> float:
    """Return the duration of COPY alone for the rows of a collection.

    The target table has the same columns, partitions and indexes.
    """
    with psycopg.connect(databases.primary.url(DATABASE)) as connection:
        out = f"COPY (SELECT * FROM gcws.items_{source}) TO STDOUT (FORMAT BINARY)"
        with connection.cursor() as cursor, cursor.copy(out.encode()) as reader:
            rows = [bytes(each) for each in reader]
        began = perf_counter()
        into = f"COPY {APART}.items_{target} FROM STDIN (FORMAT BINARY)"
        with connection.cursor() as cursor, cursor.copy(into.encode()) as writer:
            for each in rows:
                writer.write(each)
        connection.commit()
        took = perf_counter() - began
        connection.execute(f"TRUNCATE {APART}.items_{target}".encode())
    return took


def loads(table: Table, databases: PostgresPair, router: Server, body: bytes, dim: int) -> None:
    """Measure a load through the router beside COPY of the same rows."""
    number = apart(databases)

    def copy() -> float:
        return copied_seconds(databases, number_of(databases, NAME), number)

    def load() -> float:
        connection = Connection(router.port)
        connection.ask("DELETE", collection(NAME))
        connection.close()
        return load_seconds(router, NAME, dim, body, "application/x-npy")

    load_seconds(router, NAME, dim, body, "application/x-npy")
    turns = by_turns([copy, load], 3)
    alone, ours = medians(turns)
    table.add(
        "load by the router into 2 shards; COPY of the same rows alone",
        f"{alone:.2f} s",
        f"{ours:.2f} s",
        f"{1 / median_ratio(turns):.2f}",
        "at least 0.4",
    )


def number_of(databases: PostgresPair, name: str) -> int:
    """Return the number of a collection of the cluster."""
    [[number]] = databases.primary.execute(
        f"SELECT number FROM gcws.collections WHERE name = '{name}'", DATABASE
    )
    return int(number)


# Searching


def searches(table: Table, node: Server, router: Server, vectors: Vectors) -> None:
    """Measure single, concurrent and batched queries."""
    asked = queries(vectors, f"{collection(NAME)}/query")
    for server in (node, router):
        hold_out(server.port, NAME, len(asked))
        client.run(server.port, asked, connections=CLIENTS, seconds=1)

    def alone(server: Server) -> float:
        return client.run(server.port, asked, connections=1, seconds=SECONDS).p50_seconds

    def together(server: Server) -> float:
        return client.run(server.port, asked, connections=CLIENTS, seconds=SECONDS).rate

    body = request_bytes(
        "POST", f"{collection(NAME)}/query/batch", npy(vectors[:QUERIES]), "application/x-npy"
    )

    def at_once(server: Server) -> float:
        connection = Connection(server.port)
        times = []
        for _ in range(5):
            began = perf_counter()
            connection.send(body)
            connection.receive()
            times.append(perf_counter() - began)
        connection.close()
        return QUERIES / statistics.median(times)

    turns = by_turns([lambda: alone(node), lambda: alone(router)])
    one, ours = medians(turns)
    added = statistics.median(second - first for first, second in turns)
    table.add(
        "a lone query, p50; what router and shards add",
        milliseconds(one),
        milliseconds(ours),
        f"+{milliseconds(added)}",
        "at most 3 ms",
    )
    for name, work, goal in (
        (f"queries/s, {CLIENTS} clients", together, "at least 0.4"),
        (f"queries/s, {QUERIES} in one .npy body", at_once, "at least 0.6"),
    ):
        turns = by_turns([lambda work=work: work(node), lambda work=work: work(router)])  # type: ignore[misc]
        one, ours = medians(turns)
        table.add(name, f"{one:,.0f}", f"{ours:,.0f}", f"{median_ratio(turns):.2f}", goal)


# Writing


class BareInserts:
    """The transaction of a single insert, made by psycopg alone.

    Parameters
    ----------
    databases : PostgresPair
    number : int
        Of a collection apart.
    """

    def __init__(self, databases: PostgresPair, number: int) -> None:
        self._connection = psycopg.connect(databases.primary.url(DATABASE), autocommit=True)
        self._connection.execute(f"SET search_path = {APART}".encode())
        self._connection.execute("SET enable_seqscan = off")
        self._connection.adapters.register_dumper(int, Int8BinaryDumper)
        self._number = number

    def insert(self, row: int, vector: bytes) -> None:
        """Insert one item in one transaction: two round trips."""
        name, bucket, number = f"bare-{row}".encode(), row % 32, self._number
        items = f"items_{number}"
        with self._connection.pipeline():
            self._run("BEGIN")
            head = self._run("SELECT head FROM heads WHERE collection = %b FOR UPDATE", number)
            known = self._run(f"SELECT id FROM {items} WHERE bucket = %b AND id = %b", bucket, name)
        [key] = head.fetchone() or (0,)
        if known.fetchone() is not None:
            raise RuntimeError(f"{name!r} is there already")
        checksum = content_checksum(name, vector, None)
        with self._connection.pipeline():
            self._run(
                f"INSERT INTO {items} (bucket, key, id, vector, payload, checksum)"
                " VALUES (%b, %b, %b, %b, NULL, %b)",
                bucket, key + 1, name, vector, checksum,
            )  # fmt: skip
            self._run(
                "UPDATE heads SET head = %b, items = items + 1 WHERE collection = %b",
                key + 1, number,
            )  # fmt: skip
            self._run(
                "INSERT INTO commits (collection, key, stamp) VALUES (%b, %b, %b)",
                number, key + 1, bytes(16),
            )  # fmt: skip
            self._run("COMMIT")

    def _run(self, statement: str, *values: object) -> psycopg.Cursor[tuple[int, ...]]:
        return self._connection.execute(statement.encode(), values, prepare=True, binary=True)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def insert(connection: Connection, name: str, vector: object) -> None:
    """Insert one item through the API."""
    document = {"items": [{"id": name, "vector": vector}]}
    connection.send(request_bytes("PUT", f"{collection(NAME)}/items", orjson.dumps(document)))
    connection.receive()


def inserts(table: Table, databases: PostgresPair, router: Server, vectors: Vectors) -> None:
    """Measure single inserts beside the same transaction alone, a standby being there."""
    bare = BareInserts(databases, apart(databases))
    connection = Connection(router.port)
    times: list[tuple[float, float]] = []
    for row in range(INSERTS):
        began = perf_counter()
        bare.insert(row, vectors[row].tobytes())
        between = perf_counter()
        insert(connection, f"routed-{row}", as_json(vectors, row))
        times.append((between - began, perf_counter() - between))
    bare.close()
    connection.close()
    alone, ours = medians(times)
    table.add(
        "a single insert, p50, a standby confirming; the same transaction by psycopg alone",
        milliseconds(alone),
        milliseconds(ours),
        f"{ours / alone:.2f}",
        "at most 3",
    )


# Failures


def seconds_until(works: Callable[[], bool]) -> float:
    """Return the seconds until a function succeeds."""
    began = perf_counter()
    while not works():
        if perf_counter() - began > GIVE_UP_SECONDS:
            raise TimeoutError("it does not work again")
        time.sleep(RETRY_SECONDS)
    return perf_counter() - began


def answers(port: int, request: bytes) -> bool:
    """Return whether a request succeeds."""
    connection = Connection(port)
    try:
        connection.send(request)
        connection.receive()
    except RuntimeError:
        return False
    finally:
        connection.close()
    return True


def lost_databases(table: Table, databases: PostgresPair, router: Server, vectors: Vectors) -> None:
    """Measure how long writes fail after the loss of the primary."""
    document = {"items": [{"id": "0", "vector": as_json(vectors, 0)}]}
    request = request_bytes("PUT", f"{collection(NAME)}/items", orjson.dumps(document))

    def restarted() -> None:
        databases.primary.stop(signal.SIGQUIT)
        databases.primary.start()

    def promoted() -> None:
        databases.primary.stop(signal.SIGQUIT)
        databases.promote_standby()

    for told, change, goal in (
        ("the primary is killed and started again", restarted, "at most 5 s"),
        ("the primary is lost and the standby promoted", promoted, "at most 10 s"),
    ):
        began = perf_counter()
        change()
        seconds_until(lambda: answers(router.port, request))
        took = f"{perf_counter() - began:.1f} s"
        table.add(f"{told}: until a write is acknowledged", "", took, "", goal)


def lost_shard(table: Table, cell: Cell, node: Path, vectors: Vectors) -> None:
    """Measure the memory of a shard with all items, and its restart."""
    query = queries(vectors[:1], f"{collection(NAME)}/query")[0]
    with ExitStack() as stack:
        router = stack.enter_context(cell.router())
        lost = stack.enter_context(cell.shard(0))
        seconds_until(lambda: answers(router.port, query))
        graph_seconds(router, NAME)
        kill(lost)
        began = perf_counter()
        again = stack.enter_context(cell.shard(0))
        seconds_until(lambda: answers(router.port, query))
        from_file = perf_counter() - began
        graph_seconds(router, NAME)
        ours = settled_bytes(again)
        kill(again)
        shutil.rmtree(cell.folder_of(0))
        began = perf_counter()
        stack.enter_context(cell.shard(0))
        seconds_until(lambda: answers(router.port, query))
        anew = perf_counter() - began
    with serving(node) as server:
        graph_seconds(server, NAME)
        alone = settled_bytes(server)
    table.add(
        "memory of a process with all items",
        f"{alone / 2**20:,.0f} MiB",
        f"{ours / 2**20:,.0f} MiB",
        f"{ours / alone:.2f}",
        "at most 1.1",
    )
    rows = len(vectors)
    for told, took, goal in (("", from_file, 10), (", its file lost too", anew, 30)):
        table.add(
            f"a shard host of {rows:,} items is killed{told}: until queries are answered",
            "",
            f"{took:.1f} s",
            "",
            f"at most {goal} s",
        )


def settled_bytes(server: Server) -> int:
    """Return the memory of a server once it is stable."""
    found = [resident_bytes(server.pid)]
    while len(found) < 3 or max(found[-3:]) > 1.01 * min(found[-3:]):
        time.sleep(1)
        found.append(resident_bytes(server.pid))
    return found[-1]


def stages(table: Table, folder: Path, vectors: Vectors) -> Iterator[str]:
    """Measure everything in order, printing each stage before it starts."""
    dim = vectors.shape[1]
    with databases() as found:
        cell = Cell(found.url(DATABASE), folder, SHARDS)
        body = npy(vectors)
        with ExitStack() as stack:
            node = stack.enter_context(serving(folder / "node"))
            router, _ = stack.enter_context(cell.running())
            yield "loads"
            load_seconds(node, NAME, dim, body, "application/x-npy")
            loads(table, found, router, body, dim)
            for server in (node, router):
                graph_seconds(server, NAME)
            yield "searches"
            searches(table, node, router, vectors)
        yield "a lost shard"
        lost_shard(table, Cell(found.url(DATABASE), folder, 1, "whole"), folder / "node", vectors)
        yield "inserts"
        with cell.running() as (router, _):
            found.add_standby()
            inserts(table, found, router, vectors)
            yield "lost databases"
            lost_databases(table, found, router, vectors)


def main() -> None:
    """Measure and print."""
    options = arguments("One node against a cluster.", data=False).parse_args()
    table = Table("cluster", COLUMNS)
    vectors = made()
    with tempfile.TemporaryDirectory() as name:
        for stage in stages(table, Path(name), vectors):
            print(f"… {stage}", flush=True)
    table.notes.append(
        f"100,000 items of 128 numbers, in clusters. Medians of {TURNS} turns of {SECONDS:g} s (3 "
        "turns of loads), and of the ratios of each turn. Client, node, PostgreSQL with its "
        "standby, shards and router share the machine and its one disk. Queries ask for 10 hits "
        "at recall 0.9, by vectors that are not stored. Times after a kill begin with the kill, "
        "and include the start of the new process."
    )
    table.publish(options, threads=f"1 client process, 1 node, {SHARDS} shards, 1 router")


if __name__ == "__main__":
    main()
