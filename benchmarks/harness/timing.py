"""Medians of repeated runs; work divided over threads."""

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

REPEATS: Final = 5


def median_seconds(work: Callable[[], object], *, repeats: int = REPEATS) -> float:
    """Return the median time of ``repeats`` runs, after a warm-up run."""
    work()
    return statistics.median(seconds(work) for _ in range(repeats))


def seconds(work: Callable[[], object], *, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the duration of one run by a clock."""
    began = clock()
    work()
    return clock() - began


def interleaved(
    works: Sequence[Callable[[], object]],
    *,
    repeats: int = REPEATS,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Return the median time of each function, run in turn so that a slow minute affects all."""
    for work in works:
        work()
    times = [[seconds(work, clock=clock) for work in works] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def in_threads(work: Callable[[int], object], threads: int) -> Callable[[], object]:
    """Return a function that calls ``work(0) … work(threads - 1)`` in parallel threads."""
    if threads == 1:
        return lambda: work(0)
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(work, range(threads)))
