"""One method in a separate process, with its own memory and threads."""

import ctypes
import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy import sparse

from benchmarks.harness.datasets import DataSet, Vectors, load
from benchmarks.rivals.methods import METHODS, WARM_QUERIES, Method, Rows

QUERIES: Final = 1000
MIN_SECONDS: Final = 0.2
"""A batch is asked for until its calls have taken so long together: one of 6 ms often takes 8."""


BUILD_SECONDS: Final = 10.0
"""An index is built until its builds have taken so long together, of which the median counts."""


@dataclass(frozen=True, slots=True)
class Built:
    """What building cost.

    Attributes
    ----------
    compile_seconds : float
        For loading and compiling, before anything is built.
    seconds, cpu_seconds : float
        Medians over the builds.
    table_seconds : float or None
        Those that hash tables alone took, likewise.
    bytes_ : int
        By how much the first index has made the process grow, its own copy of the rows included.
    """

    compile_seconds: float
    seconds: float
    cpu_seconds: float
    table_seconds: float | None
    bytes_: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A batch of queries to be answered, or only to be got ready for (no setting)."""

    threads: int
    setting: float | None


@dataclass(frozen=True, slots=True)
class Answered:
    """Rows found, and the wall and CPU seconds of the whole batch: medians over its calls."""

    rows: Rows
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Runner:
    """A method that runs in another process."""

    method: type[Method]
    built: Built
    _pipe: Any

    def get_ready(self, threads: int) -> bool:
        """Answer once, untimed, with this number of threads; False if the method cannot."""
        return bool(self._ask(Asked(threads, None)))

    def answer(self, threads: int, setting: float) -> Answered:
        """Answer all queries in one call, as often as `timed` does."""
        answered: Answered = self._ask(Asked(threads, setting))
        return answered

    def _ask(self, asked: Asked) -> Any:  # noqa: ANN401 (whatever the other side sends)
        self._pipe.send(asked)
        return self._pipe.recv()


@contextmanager
def running(method: type[Method], name: str, folder: Path, threads: int) -> Iterator[Runner]:
    """Build an index of a data set in a new process, which ends with the context."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(
        target=_serve, args=(there, method.NAME, name, folder, threads), daemon=True
    )
    process.start()
    there.close()
    try:
        yield Runner(method, here.recv(), here)
    finally:
        process.kill()
        process.join()


def normalised(name: str, folder: Path) -> tuple[Vectors, Vectors]:
    """Return (stored, queries) of a data set, each row divided by its L1 norm."""
    vectors = load(name, folder).vectors
    norms = np.asarray(abs(vectors).sum(axis=1, dtype=np.float64)).reshape(-1, 1)
    if sparse.issparse(vectors):
        scaled = sparse.diags(1 / norms.ravel()).dot(vectors).tocsr().astype(np.float32)
        scaled.sort_indices()
    else:
        scaled = (vectors / norms).astype(np.float32)
    return DataSet(name, scaled).hold_out(QUERIES)


def _serve(pipe: "Connection[Any, Any]", label: str, name: str, folder: Path, threads: int) -> None:
    method = next(method for method in METHODS if label == method.NAME)
    stored, queries = normalised(name, folder)
    began = time.perf_counter()
    method.compile(stored[: method.WARM_ROWS], queries[:WARM_QUERIES])
    compiled = time.perf_counter() - began
    index, built = timed_builds(partial(method, stored, threads=threads), compiled)
    pipe.send(built)
    while True:
        asked = pipe.recv()
        if asked.setting is None:
            able = index.set_threads(asked.threads)
            if able:
                index.search(queries, method.SETTINGS[0])
            pipe.send(able)
            continue
        pipe.send(timed(partial(index.search, queries, asked.setting)))


def timed_builds(
    build: Callable[[], Method], compiled: float, least_seconds: float = BUILD_SECONDS
) -> tuple[Method, Built]:
    """Return the index built last, and what building cost.

    Parameters
    ----------
    build : callable
        It is called once at least.
    compiled : float
        Seconds spent on compiling before.
    least_seconds : float
        Until its calls have taken so long together, it is called again.
    """
    before = _resident_bytes()
    index, *times = _built_once(build)
    grown = _resident_bytes() - before
    columns = [[each] for each in times]
    while sum(columns[0]) < least_seconds:
        del index
        gc.collect()
        index, *times = _built_once(build)
        for column, each in zip(columns, times, strict=True):
            column.append(each)
    seconds, cpu_seconds, table_seconds = (statistics.median(column) for column in columns)
    tables = None if index.table_seconds is None else table_seconds
    return index, Built(compiled, seconds, cpu_seconds, tables, grown)


def _built_once(build: Callable[[], Method]) -> tuple[Method, float, float, float]:
    """Return an index, and the seconds it took: wall, CPU, and of the wall those of the tables."""
    began, cpu_began = time.perf_counter(), time.process_time()
    index = build()
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    return index, seconds, cpu_seconds, index.table_seconds or 0.0


def timed(ask: Callable[[], Rows], least_seconds: float = MIN_SECONDS) -> Answered:
    """Return the answer to a batch, and the median times of as many calls as take so long.

    Parameters
    ----------
    ask : callable
        Asks for the whole batch in one call; it is called once at least.
    least_seconds : float
        Until its calls have taken so long together, it is called again.
    """
    seconds: list[float] = []
    cpu_seconds: list[float] = []
    while not seconds or sum(seconds) < least_seconds:
        began, cpu_began = time.perf_counter(), time.process_time()
        rows = ask()
        seconds.append(time.perf_counter() - began)
        cpu_seconds.append(time.process_time() - cpu_began)
    return Answered(rows, statistics.median(seconds), statistics.median(cpu_seconds))


def _resident_bytes() -> int:
    """Return the memory of this process after returning free memory to the system."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line) * 1024
