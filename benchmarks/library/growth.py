"""Cost of a query as a collection grows: ``python -m benchmarks.library.growth``.

The generated, clustered set at several sizes, each in a separate process. Queries are held out and
sent in one batch by one thread, whose processor time is counted. The exact scan of the same
queries, in the same run, gives the true hits.
"""

import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from benchmarks.harness.datasets import DataSet, made
from benchmarks.harness.engine import on_threads
from benchmarks.harness.report import Table, arguments, markdown
from gcws_search.index.backends import GcwsBackend, make_backend
from gcws_search.index.contracts.hits import BatchHits, LiveSample, RowView
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.exact.scan import scan
from gcws_search.index.graph import calibrate
from gcws_search.index.graph.recall_curve import Calibration
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.growing_rows import GrowingRows
from gcws_search.index.vectors.space import VectorSpace

SIZES: Final = (10_000, 30_000, 100_000, 300_000, 1_000_000)
TARGETS: Final = (0.9, 0.95, 0.99)
QUERIES: Final = 1000
LIMIT: Final = 10
BUILDING_THREADS: Final = 2
_COMPILING_ROWS: Final = 2100
_CHUNK: Final = 1 << 16
_REPEATS: Final = 3
_ROUNDING: Final = 1e-9
_TIMEOUT_SECONDS: Final = 1800.0

COSTS: Final = (
    "items", "build, s", "tables, s", "graph, s", "calibration, s",
    *(f"µs a query at {target}" for target in TARGETS), "exact scan, µs", "ratio at 0.9",
    *(f"recall at {target}" for target in TARGETS), "candidates at 0.9",
)  # fmt: skip
MEMORY: Final = (
    "items", "vectors and norms", "coarse copy", "graph", "tables", "all",
    "resident, GiB", "at most, GiB",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """Cost per query of a batch, and its recall."""

    recall: float
    microseconds: float
    candidates: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One size.

    Attributes
    ----------
    items : int
    seconds : tuple of float
        For the tables (hashing included), the graph, the calibration.
    scan_microseconds : float
        Of a query in a batch.
    asked : tuple of Asked
        One for each of `TARGETS`.
    bytes_ : tuple of int
        Of the vectors with their norms, the coarse copy, the graph, the tables.
    resident, peak : int
        Bytes of memory of the process once the index is made, and at most so far.
    """

    items: int
    seconds: tuple[float, float, float]
    scan_microseconds: float
    asked: tuple[Asked, ...]
    bytes_: tuple[int, int, int, int]
    resident: int
    peak: int


def measure(folder: Path, items: int) -> Measured:
    """Return what an index of the rows in a folder costs."""
    config = CollectionConfig(dim=np.load(folder / "queries.npy", mmap_mode="r").shape[1])
    space = VectorSpace.of(config)
    _built(space, config, folder, _COMPILING_ROWS)
    rows, state, seconds = _built(space, config, folder, items)
    resident, peak = memory_of_process("VmRSS"), memory_of_process("VmHWM")
    alive = np.ones(items, np.uint8)
    view = RowView(rows.view(), alive, items, LiveSample.of(alive))
    queries = space.prepare(space.from_dense(np.load(folder / "queries.npy")))
    one = make_backend(config, threads=1)
    if not isinstance(one, GcwsBackend) or state.graph is None:
        raise TypeError(one.kind)
    state = on_threads(state, one)

    def exactly() -> BatchHits:
        params = SearchParams(limit=LIMIT, recall=1.0)
        nobody = np.full(len(queries), -1, np.int64)
        return scan(view, queries, params, skip=nobody, inverted=state.inverted, workers=Workers(1))

    truth, scan_seconds = _timed(exactly, 1)
    asked = []
    for target in TARGETS:
        params = SearchParams(limit=LIMIT, recall=target)
        found, took = _timed(partial(one.search, state, view, queries, params), _REPEATS)
        candidates = float(np.mean([found.explanation(i).candidates for i in range(QUERIES)]))
        asked.append(Asked(_recall(found, truth), took / QUERIES * 1e6, candidates))
    links = state.graph.links.array.nbytes
    copies = state.graph.neighbours.nbytes - links
    tables = state.tables.nbytes + state.graph.nbytes - links - copies
    return Measured(
        items,
        seconds,
        scan_seconds / QUERIES * 1e6,
        tuple(asked),
        (rows.nbytes, copies, links, tables),
        resident,
        peak,
    )


def _built(
    space: VectorSpace, config: CollectionConfig, folder: Path, items: int
) -> tuple[GrowingRows, Any, tuple[float, float, float]]:
    """Return the first rows of the file, their index, and seconds for its parts."""
    rows = GrowingRows(space.form, space.dim)
    rows.reserve(items)
    for start in range(0, items, _CHUNK):
        # Reopened for each chunk, so that pages of the whole file do not count as this process's.
        stored = np.load(folder / "stored.npy", mmap_mode="r")[start : start + _CHUNK]
        rows.append(space.prepare(space.from_dense(stored[: items - start])))
        del stored
    backend = make_backend(config, threads=BUILDING_THREADS)
    assert isinstance(backend, GcwsBackend)
    began = time.perf_counter()
    batch = rows.view()
    state = backend.extend(backend.empty(), batch, backend.encode(batch))
    tabled = time.perf_counter()
    calibrating = 0.0

    def timed(*given: Any, **named: Any) -> Calibration:  # noqa: ANN401 (passed on)
        nonlocal calibrating
        before = time.perf_counter()
        found = calibrate.calibrate(*given, **named)
        calibrating = time.perf_counter() - before
        return found

    with patch("gcws_search.index.graph.lifecycle.calibrate", timed):
        built = backend.optimize(state, batch, np.ones(items, np.uint8), threading.Event())
    assert built is not None
    state = built
    graph = time.perf_counter() - tabled - calibrating
    return rows, state, (tabled - began, graph, calibrating)


def _timed(work: Callable[[], BatchHits], repeats: int) -> tuple[BatchHits, float]:
    """Return what some work of this thread finds, and its least processor time."""
    least = np.inf
    for _ in range(repeats):
        began = time.thread_time()
        found = work()
        least = min(least, time.thread_time() - began)
    return found, least


def _recall(found: BatchHits, truth: BatchHits) -> float:
    least = truth.scores[:, LIMIT - 1 : LIMIT] - _ROUNDING
    inside = np.arange(found.scores.shape[1]) < found.sizes[:, None]
    good = ((found.scores >= least) & inside).sum(1)
    return float(np.minimum(good, LIMIT).mean() / LIMIT)


def memory_of_process(line: str) -> int:
    """Return a figure of this process's memory, in bytes, by its name in /proc/self/status."""
    status = Path("/proc/self/status").read_text()
    return next(int(each.split()[1]) for each in status.splitlines() if line in each) * 1024


def save_made(folder: Path, items: int, dim: int = 128) -> None:
    """Write the rows of one size, and queries that are not among them."""
    stored, queries = DataSet("made", made(rows=items + QUERIES, dim=dim)).hold_out(QUERIES)
    np.save(folder / "stored.npy", stored)
    np.save(folder / "queries.npy", queries)


def in_own_process(work: Callable[..., Any], *given: object) -> Any:  # noqa: ANN401 (what it gives)
    """Return what some work gives that is done, and whose memory is counted, by itself."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply_async(work, given).get(_TIMEOUT_SECONDS)


def add_rows(costs: Table, memory: Table, each: Measured) -> None:
    """Add one size to both tables."""
    asked = each.asked
    costs.add(
        f"{each.items:,}",
        sum(each.seconds),
        *each.seconds,
        *(a.microseconds for a in asked),
        each.scan_microseconds,
        f"{each.scan_microseconds / asked[0].microseconds:,.0f} ×",
        *(f"{a.recall:.4f}" for a in asked),
        asked[0].candidates,
    )
    memory.add(
        f"{each.items:,}",
        *(f"{part / each.items:,.0f}" for part in each.bytes_),
        f"{sum(each.bytes_) / each.items:,.0f}",
        each.resident / 2**30,
        each.peak / 2**30,
    )


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = arguments("What a query costs as a collection grows.", data=False)
    parser.add_argument("--rows", nargs="+", type=int, default=SIZES, metavar="ITEMS")
    options = parser.parse_args(given)
    costs, memory = Table("growth", COSTS), Table("memory", MEMORY)
    for items in options.rows:
        with tempfile.TemporaryDirectory() as name:
            in_own_process(save_made, Path(name), items)
            add_rows(costs, memory, in_own_process(measure, Path(name), items))
        print(costs.rows[-1], memory.rows[-1], flush=True)
    costs.notes.append(
        f"Synthetic clusters of 128 dimensions, {QUERIES:,} held-out queries, top {LIMIT}. "
        "Processor time and candidates are means over the queries. The next table has bytes an "
        "item, and the memory of the process with its float32 rows: the maximum while building, "
        "and after it."
    )
    costs.notes.append(markdown(memory.columns, memory.rows))
    costs.publish(options, threads=f"{BUILDING_THREADS} threads build, 1 asks")


if __name__ == "__main__":
    main()
