"""Vectors that are moved out of a cluster's database: ``python -m benchmarks.service.segments``.

One collection, the segments in a folder. What the database takes is measured after VACUUM FULL, and
what reading takes before and after. Meanwhile another thread inserts one item after the other.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.harness.cluster import DATABASE, databases
from benchmarks.harness.report import Table, arguments
from benchmarks.service.bases import fill_database
from gcws_search.service.cluster.committer import Committer, PreparedPut
from gcws_search.service.cluster.database import Database
from tests.support.service.shards import offload_all

ROWS: Final = 100_000
DIMS: Final = (128, 784)
READ: Final = 1000
CHUNK: Final = 4096
COLUMNS: Final = ("numbers a row", "what", "in the database", "in segments")


def bytes_an_item(database: Database, rows: int) -> float:
    """Return what the items and their indexes take."""
    with database.connections.use() as connection:
        connection.seconds = 3600
        connection.execute(b"VACUUM FULL items_1")
        [size] = connection.column("SELECT pg_total_relation_size('items_1')")
        return float(size / rows)


def times(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Return the seconds of each call."""
    found = []
    for call in calls:
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return found


def reading(database: Database, rows: int) -> tuple[float, float, float]:
    """Return seconds: of one item and of a page of 100 in the median, and of all in order."""
    rng = np.random.default_rng(1)
    ids = [f"i{each}" for each in rng.integers(rows, size=READ)]
    one = times([partial(database.fetch, 1, [each]) for each in ids])
    after = rng.integers(rows - 100, size=100).tolist()
    read_page = partial(database.page, 1, limit=100, with_vector=True)
    page = times([partial(read_page, after=key) for key in after])

    def read() -> None:
        with database.changes(1, range(database.buckets), None, CHUNK) as (_, _, chunks, _):
            assert sum(map(len, chunks)) >= rows

    return statistics.median(one), statistics.median(page), times([read])[0]


def inserts(database: Database, vector: bytes, ended: threading.Event) -> list[float]:
    """Insert items until the rest has ended; return the seconds of each."""
    committer, found = Committer(database, 1, "made"), list[float]()
    while not ended.is_set():
        put = PreparedPut(ids=[f"new{len(found)}"], vectors=[vector], payloads=[None])
        found += times([partial(committer.commit, put)])
    return found


def measure(rows: int, dim: int, table: Table) -> None:
    """Add the rows of one kind of vectors."""
    with databases() as pair, tempfile.TemporaryDirectory() as name:
        url, base = pair.url(DATABASE), Path(name)
        fill_database(url, rows, dim)
        with closing(Database.open(url, base=name)) as database:
            size, read = bytes_an_item(database, rows), reading(database, rows)
            ended, found = threading.Event(), list[float]()
            vector = database.fetch(1, ["i0"])["i0"].vector
            inserting = threading.Thread(
                target=lambda: found.extend(inserts(database, vector, ended))
            )
            inserting.start()
            began = time.perf_counter(), time.process_time()
            assert offload_all(database) >= rows
            seconds, used = time.perf_counter() - began[0], time.process_time() - began[1]
            ended.set()
            inserting.join()
            sizes = size, bytes_an_item(database, rows)
            files = sum(1 for _ in base.rglob("*.vectors"))
            after = reading(database, rows)
    table.add(str(dim), "bytes an item", *(f"{each:,.0f}" for each in sizes))
    words = ("one item, ms", 1000), ("a page of 100, ms", 1000), ("all in order, s", 1)
    for (what, factor), *seconds_of in zip(words, read, after, strict=True):
        table.add(str(dim), what, *(f"{factor * each:.2f}" for each in seconds_of))
    table.notes.append(
        f"{dim} numbers: moved in {seconds:.1f} s into {files} files, with {used:.1f} s of"
        f" processor time outside PostgreSQL. Meanwhile {len(found):,} items were inserted, in a"
        f" median of {1000 * statistics.median(found):.1f} ms, at most"
        f" {1000 * max(found):.0f} ms."
    )


def main() -> None:
    """Measure and print."""
    parser = arguments("Vectors that are moved out of the database.", data=False)
    parser.add_argument("--rows", type=int, default=ROWS)
    options = parser.parse_args()
    table = Table("segments", COLUMNS)
    table.notes.append(
        f"{options.rows:,} rows without payloads. The size is that of the table and its indexes"
        f" after VACUUM FULL. Medians of {READ:,} items and of 100 pages, with their vectors."
    )
    for dim in DIMS:
        measure(options.rows, dim, table)
    table.publish(options, threads="2 threads")


if __name__ == "__main__":
    main()
