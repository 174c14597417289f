"""Operations that meet on one name: ``python -m tests.names --rounds 10000 --seed N``.

The rounds are shared out over directories of their own, as many at once as there are processors,
every third of them with larger files.
"""

import argparse
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.names.run import live

LIFE = 100


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Let operations meet on one name.")
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    tell(f"seed {options.seed}")
    began, counts = time.monotonic(), Counter[str]()
    restarts = done = 0
    sizes = [min(LIFE, options.rounds - at) for at in range(0, options.rounds, LIFE)]
    seeds = range(options.seed, options.seed + len(sizes))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=spawn) as pool:
        for one, (stops, ends) in zip(sizes, pool.map(live, seeds, sizes), strict=True):
            restarts, done = restarts + stops, done + one
            counts.update(ends)
            tell(f"{done} rounds, {time.monotonic() - began:.0f} s")
    for key in sorted(counts):
        tell(f"{counts[key]:8} {key}")
    tell(f"{counts.total()} operations, {restarts} restarts: memory and files as acknowledged")


if __name__ == "__main__":
    main()
