"""What runs of many minutes share: options, lines of progress, lives on all processors."""

import argparse
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor


def tell(line: str) -> None:
    print(line, flush=True)  # noqa: T201


def clock(began: float) -> str:
    """Return the time that has passed."""
    return f"{time.monotonic() - began:.0f} s"


def seeded(description: str) -> argparse.ArgumentParser:
    """Return what reads options, the seed among them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    return parser


def live(
    work: Callable[[int, int], Counter[str]], total: int, life: int, options: argparse.Namespace
) -> None:
    """Share a number of steps out over lives, as many at once as there are processors.

    ``work``: takes a seed and a number of steps, and counts what it did.
    """
    tell(f"seed {options.seed}")
    began, counts, done = time.monotonic(), Counter[str](), 0
    sizes = [min(life, total - at) for at in range(0, total, life)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=spawn) as pool:
        seeds = range(options.seed, options.seed + len(sizes))
        for size, counted in zip(sizes, pool.map(work, seeds, sizes), strict=True):
            done, counts = done + size, counts + counted
            tell(f"{done} of {total}, {clock(began)}")
    for key in sorted(counts):
        tell(f"{counts[key]:8} {key}")
