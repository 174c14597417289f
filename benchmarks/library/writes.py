"""Cost of single changes, and their effect on readers.

Command: ``python -m benchmarks.library.writes``.

The time of each change in SQLite is counted separately, since it depends on the disk. A bare commit
of the same number of bytes is measured in turn with the changes. Then a reader searches in a loop,
alone and while many items are put, segments merge and the graph is rebuilt. Time that a thread
waited for a processor, as counted by Linux, is listed separately: it depends on other load.
"""

import gc
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.datasets import made
from benchmarks.harness.report import Table, arguments
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.batches import RawBatch
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.storage.connection import Durability
from gcws_search.index.storage.store import Store
from gcws_search.index.warmup.compile import compile_kernels

ROWS: Final = 100_000
SINGLES: Final = 2000
PUT: Final = 50_000
BATCH: Final = 1000
DURABILITIES: Final[tuple[Durability, ...]] = ("normal", "full")
_ALONE_SECONDS: Final = 3.0
_LOADED_AT_ONCE: Final = 4096
_CODE_BYTES: Final = 256
_PARAMS: Final = SearchParams(limit=10)

_MIN_SECONDS: Final = 0.001
"""Shorter pauses of a reader are not looked into."""

COLUMNS: Final = (
    "durability", "what", "p50, ms", "p99, ms", "longest, ms",
    "p99 with a processor, ms", "longest with a processor, ms", "goal",
)  # fmt: skip

Vectors = NDArray[np.float32]


@dataclass
class Times:
    """Seconds that things took.

    Attributes
    ----------
    whole, running : list of float
        As the clock has it, and less what the thread waited for a processor.
    """

    whole: list[float] = field(default_factory=list)
    running: list[float] = field(default_factory=list)

    def add(self, whole: float, waited: float) -> None:
        """Take note of one."""
        self.whole.append(whole)
        self.running.append(max(0.0, whole - waited))


@dataclass
class Singles:
    """Single changes.

    Attributes
    ----------
    whole, apart, bare : Times
        Each change, less the time in SQLite, and a bare commit beside it.
    """

    whole: Times = field(default_factory=Times)
    apart: Times = field(default_factory=Times)
    bare: Times = field(default_factory=Times)


class Waiting:
    """Tells what this thread has waited for a processor, in seconds."""

    def __init__(self) -> None:
        self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)

    def __call__(self) -> float:
        """Return the sum so far."""
        return int(os.pread(self._file, 128, 0).split()[1]) / 1e9

    def close(self) -> None:
        """Ask no more."""
        os.close(self._file)


class Clock:
    """Counts the seconds that stores take to write, and those that they wait for a processor.

    Attributes
    ----------
    seconds, waited : float
    """

    def __init__(self) -> None:
        self.seconds = self.waited = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count while the context lasts what is written, in whichever thread."""
        write = Store.write

        def timed(store: Store, *changes: Any) -> None:  # noqa: ANN401
            waiting = Waiting()
            waited, began = waiting(), perf_counter()
            write(store, *changes)
            self.seconds += perf_counter() - began
            self.waited += waiting() - waited
            waiting.close()

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
        self._pauses: list[tuple[float, float, float]] = []  # when each ended, seconds, waited
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
        waiting = Waiting()
        number, waited, last = 0, waiting(), perf_counter()
        while not self._stopping.is_set():
            query = self._queries[number % len(self._queries)][None]
            self._stored.search(RawBatch("dense", dense=query), _PARAMS)
            now = perf_counter()
            delay = 0.0
            if now - last > _MIN_SECONDS:  # what was waited in shorter ones since is little
                before, waited = waited, waiting()
                delay = waited - before
            self._pauses.append((now, now - last, delay))
            number, last = number + 1, now
        waiting.close()

    def during(self, work: Callable[[], object]) -> Times:
        """Return the pauses between the ends of searches while some work is done."""
        began, first = perf_counter(), len(self._pauses)
        work()
        sleep(0.05)  # the pause in which the work ended ends, too
        times = Times()
        for ended, seconds, waited in self._pauses[first:]:
            if ended >= began:
                times.add(seconds, waited)
        return times


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
    times, waiting = Singles(), Waiting()
    for number, vector in enumerate(vectors):
        items = batch("single", number, vector[None])
        _note(times, partial(stored.put, items), clock, waiting)
        _note_bare(times, partial(bare.insert, str(items.ids[0]), vector.tobytes()), waiting)
        if items.ids[0] not in _found(stored, vector):
            raise RuntimeError(f"{items.ids[0]} was put and is not found")
    waiting.close()
    return times


def deletions(stored: StoredCollection, bare: Bare, vectors: Vectors, clock: Clock) -> Singles:
    """Delete the vectors inserted, one by one; no search finds one that has been deleted."""
    times, waiting = Singles(), Waiting()
    for number, vector in enumerate(vectors):
        name = f"single-{number}"
        _note(times, partial(stored.delete, [name]), clock, waiting)
        _note_bare(times, partial(bare.delete, name), waiting)
        if name in _found(stored, vector):
            raise RuntimeError(f"{name} was deleted and is found")
    waiting.close()
    return times


def _note(
    times: Singles, change: Callable[[], object], clock: Clock, waiting: Callable[[], float]
) -> None:
    in_sqlite, waited_there = clock.seconds, clock.waited
    waited, began = waiting(), perf_counter()
    change()
    took = perf_counter() - began
    waited = waiting() - waited  # of this thread: another one writes
    times.whole.add(took, waited + clock.waited - waited_there)
    times.apart.add(took - (clock.seconds - in_sqlite), waited)


def _note_bare(times: Singles, change: Callable[[], float], waiting: Callable[[], float]) -> None:
    waited = waiting()
    took = change()
    times.bare.add(took, waiting() - waited)


def _found(stored: StoredCollection, vector: Vectors) -> list[str]:
    return stored.search(RawBatch("dense", dense=vector[None]), _PARAMS)[0].ids


def measure(table: Table, folder: Path, durability: Durability, rows: int) -> None:
    """Measure one durability."""
    vectors = made(rows=rows + SINGLES + PUT + BATCH)
    order = np.random.default_rng(0).permutation(len(vectors))
    loaded, single, later, queries = (
        vectors[part] for part in np.split(order, np.cumsum([rows, SINGLES, PUT]))
    )

    def add(what: str, times: Times, goal: str = "") -> None:
        whole = np.quantile(times.whole, (0.5, 0.99, 1)) * 1e3
        running = np.quantile(times.running, (0.99, 1)) * 1e3
        table.add(durability, what, *whole.tolist(), *running.tolist(), goal)
        print(table.rows[-1], flush=True)

    catalog = Catalog.open(folder / "data", durability=durability)
    bare = Bare(folder, durability)
    clock = Clock()
    try:
        stored, _ = catalog.create("made", CollectionConfig(dim=vectors.shape[1]))
        put_all(stored, "loaded", loaded, _LOADED_AT_ONCE)
        stored.finish_background_work()
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
            add(
                "between searches, graph built anew",
                reader.during(stored.finish_background_work),
                "none > 50 ms",
            )
    finally:
        bare.close()
        catalog.close()


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = arguments("What single changes cost, and pauses of readers.", data=False)
    parser.add_argument("--rows", type=int, default=ROWS, metavar="ITEMS")
    parser.add_argument("--durability", nargs="+", choices=DURABILITIES, default=DURABILITIES)
    options = parser.parse_args(given)
    compile_kernels()
    # As the server does: going through all modules, a full collection pauses a reader for 0.1 s.
    gc.collect()
    gc.freeze()
    table = Table("writes", COLUMNS)
    for durability in options.durability:
        with tempfile.TemporaryDirectory() as name:
            measure(table, Path(name), durability, options.rows)
    table.notes.append(
        f"Synthetic clusters, {options.rows:,} items of 128 dimensions. First {SINGLES:,} single "
        f"changes, each seen by the next search, then {PUT:,} items put {BATCH:,} at a time. *With "
        "a processor* leaves out the time that the thread waited for a processor."
    )
    table.publish(options, threads="kernels on all cores, 1 reader, 1 writer")


if __name__ == "__main__":
    main()
