"""What single changes cost, and whether they hold readers up: ``python -m benchmarks.writes``.

Of each change the time in SQLite is counted apart, for that is the disk's, and beside it stands a
bare commit of as many bytes, in turn with the changes. A reader then searches in a loop, alone and
while many items are put, segments merge and lists are made anew.
"""

import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import made
from benchmarks.report import Table, arguments
from index.catalog import Catalog
from index.items import ItemBatch
from index.params import CollectionConfig, SearchParams
from index.store import Change, Durability, Store
from index.stored import StoredCollection
from index.vectors import RawBatch

ROWS: Final = 100_000
SINGLES: Final = 2000
PUT: Final = 50_000
BATCH: Final = 1000
DURABILITIES: Final[tuple[Durability, ...]] = ("normal", "full")
_ALONE_SECONDS: Final = 3.0
_LOADED_AT_ONCE: Final = 4096
_CODE_BYTES: Final = 256
_PARAMS: Final = SearchParams(limit=10)

COLUMNS: Final = ("durability", "what", "p50, ms", "p99, ms", "longest, ms", "goal")

Vectors = NDArray[np.float32]


@dataclass
class Singles:
    """Seconds of single changes.

    Attributes
    ----------
    whole, apart, bare : list of float
        Each change, less the time in SQLite, and a bare commit beside it.
    """

    whole: list[float] = field(default_factory=list)
    apart: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)


class Clock:
    """Counts the seconds that stores take to write."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count while the context lasts."""
        write = Store.write

        def timed(store: Store, changes: Sequence[Change]) -> None:
            began = perf_counter()
            write(store, changes)
            self.seconds += perf_counter() - began

        with patch.object(Store, "write", timed):
            yield


class Bare:
    """SQLite alone, as durable, with as many bytes a row."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        self._database = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
        for pragma in ("page_size = 8192", "journal_mode = WAL", f"synchronous = {durability}"):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.execute(
            "CREATE TABLE items (key INTEGER PRIMARY KEY, id TEXT UNIQUE, vector BLOB, codes BLOB)"
        )

    def insert(self, item_id: str, vector: bytes) -> float:
        """Return the seconds of one insert."""
        values = (item_id, vector, bytes(_CODE_BYTES))
        began = perf_counter()
        self._database.execute("BEGIN IMMEDIATE")
        self._database.execute("INSERT INTO items (id, vector, codes) VALUES (?, ?, ?)", values)
        self._database.execute("COMMIT")
        return perf_counter() - began

    def delete(self, item_id: str) -> float:
        """Return the seconds of one deletion."""
        began = perf_counter()
        self._database.execute("BEGIN IMMEDIATE")
        self._database.execute("DELETE FROM items WHERE id = ?", (item_id,))
        self._database.execute("COMMIT")
        return perf_counter() - began

    def close(self) -> None:
        """Close the file."""
        self._database.close()


class Reader:
    """A thread that searches in a loop, and notes when each search ended."""

    def __init__(self, stored: StoredCollection, queries: Vectors) -> None:
        self._stored = stored
        self._queries = queries
        self._stopping = threading.Event()
        self._ended: list[float] = []
        self._thread = threading.Thread(target=self._run, name="reader")

    def __enter__(self) -> "Reader":
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            query = self._queries[number % len(self._queries)][None]
            self._stored.search(RawBatch("dense", dense=query), _PARAMS)
            self._ended.append(perf_counter())
            number += 1

    def during(self, work: Callable[[], object]) -> list[float]:
        """Return the seconds between the ends of searches while some work is done."""
        first = len(self._ended)
        work()
        sleep(0.05)  # the pause in which the work ended ends, too
        return np.diff(self._ended[max(0, first - 1) :]).tolist()


def batch(prefix: str, first: int, vectors: Vectors) -> ItemBatch:
    """Return vectors as items."""
    ids = [f"{prefix}-{first + i}" for i in range(len(vectors))]
    return ItemBatch(ids, RawBatch("dense", dense=vectors), [None] * len(vectors))


def put_all(stored: StoredCollection, prefix: str, vectors: Vectors, size: int) -> None:
    """Put vectors in batches."""
    for first in range(0, len(vectors), size):
        stored.put(batch(prefix, first, vectors[first : first + size]))


def inserts(stored: StoredCollection, bare: Bare, vectors: Vectors, clock: Clock) -> Singles:
    """Insert vectors one by one; a search finds each as soon as it is in."""
    times = Singles()
    for number, vector in enumerate(vectors):
        items = batch("single", number, vector[None])
        before, began = clock.seconds, perf_counter()
        stored.put(items)
        _note(times, perf_counter() - began, clock.seconds - before)
        times.bare.append(bare.insert(items.ids[0], vector.tobytes()))
        if items.ids[0] not in _found(stored, vector):
            raise RuntimeError(f"{items.ids[0]} was put and is not found")
    return times


def deletions(stored: StoredCollection, bare: Bare, vectors: Vectors, clock: Clock) -> Singles:
    """Delete the vectors inserted, one by one; no search finds one that has been deleted."""
    times = Singles()
    for number, vector in enumerate(vectors):
        name = f"single-{number}"
        before, began = clock.seconds, perf_counter()
        stored.delete([name])
        _note(times, perf_counter() - began, clock.seconds - before)
        times.bare.append(bare.delete(name))
        if name in _found(stored, vector):
            raise RuntimeError(f"{name} was deleted and is found")
    return times


def _note(times: Singles, whole: float, in_sqlite: float) -> None:
    times.whole.append(whole)
    times.apart.append(whole - in_sqlite)


def _found(stored: StoredCollection, vector: Vectors) -> list[str]:
    return stored.search(RawBatch("dense", dense=vector[None]), _PARAMS)[0].ids


def measure(table: Table, folder: Path, durability: Durability, rows: int) -> None:
    """Measure one durability."""
    vectors = made(rows=rows + SINGLES + PUT + BATCH)
    order = np.random.default_rng(0).permutation(len(vectors))
    loaded, single, later, queries = (
        vectors[part] for part in np.split(order, np.cumsum([rows, SINGLES, PUT]))
    )

    def add(what: str, times: Sequence[float], goal: str = "") -> None:
        p50, p99 = np.quantile(times, (0.5, 0.99)) * 1e3
        table.add(durability, what, float(p50), float(p99), max(times) * 1e3, goal)
        print(table.rows[-1], flush=True)

    catalog = Catalog.open(folder / "data", durability=durability)
    bare = Bare(folder, durability)
    clock = Clock()
    try:
        stored, _ = catalog.create("made", CollectionConfig(dim=vectors.shape[1]))
        put_all(stored, "loaded", loaded, _LOADED_AT_ONCE)
        stored.settle()
        with clock.running():
            kinds: tuple[tuple[str, Any], ...] = (("insert", inserts), ("delete", deletions))
            for what, change in kinds:
                times = change(stored, bare, single, clock)
                add(f"single {what}", times.whole)
                add(f"single {what}, SQLite apart", times.apart, "p99 < 1 ms")
                add(f"bare SQLite {what}", times.bare)
        with Reader(stored, queries) as reader:
            sleep(0.2)
            add("between searches, reader alone", reader.during(lambda: sleep(_ALONE_SECONDS)))
            times_ = reader.during(lambda: put_all(stored, "later", later, BATCH))
            add(f"between searches, {PUT:,} items put", times_, "none > 50 ms")
            add("between searches, lists made anew", reader.during(stored.settle), "none > 50 ms")
    finally:
        bare.close()
        catalog.close()


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = arguments("What single changes cost, and pauses of readers.", data=False)
    parser.add_argument("--rows", type=int, default=ROWS, metavar="ITEMS")
    parser.add_argument("--durability", nargs="+", choices=DURABILITIES, default=DURABILITIES)
    options = parser.parse_args(given)
    table = Table("writes", COLUMNS)
    for durability in options.durability:
        with tempfile.TemporaryDirectory() as name:
            measure(table, Path(name), durability, options.rows)
    table.notes.append(
        f"Made, clustered, {options.rows:,} items of 128 dimensions before; {SINGLES:,} single "
        f"changes, each seen by the next search; then {PUT:,} items put {BATCH:,} at a time."
    )
    table.publish(options, threads="kernels on all cores, 1 reader, 1 writer")


if __name__ == "__main__":
    main()
