"""Medians of repeated runs; work shared out over threads."""

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

REPEATS: Final = 5


def median_seconds(work: Callable[[], object], *, repeats: int = REPEATS) -> float:
    """Return the median time of ``repeats`` runs, after one that is not counted."""
    work()
    return statistics.median(seconds(work) for _ in range(repeats))


def seconds(work: Callable[[], object], *, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return how long one run takes by a clock."""
    began = clock()
    work()
    return clock() - began


def interleaved(
    works: Sequence[Callable[[], object]],
    *,
    repeats: int = REPEATS,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Return the median time of each work, run in turn so that a slow minute hits them all."""
    for work in works:
        work()
    times = [[seconds(work, clock=clock) for work in works] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def in_threads(work: Callable[[int], object], threads: int) -> Callable[[], object]:
    """Return a work that calls ``work(0) … work(threads - 1)`` at once, in threads of their own."""
    if threads == 1:
        return lambda: work(0)
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(work, range(threads)))
