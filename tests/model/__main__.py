"""Random operations against a model: ``python -m tests.model --operations 100000``.

They are shared out over lives, directories of their own, as many at once as there are processors.
``--cluster`` asks a router over a database and shards, in the place of one node.
"""

import argparse
import multiprocessing
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.model.run import live

LIFE = 5000


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare a service with a model of it.")
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--cluster", action="store_true")
    options = parser.parse_args()
    tell(f"seed {options.seed}")
    began, counts = time.monotonic(), dict[str, int]()
    restarts = copies = done = 0
    sizes = [min(LIFE, options.operations - at) for at in range(0, options.operations, LIFE)]
    seeds = range(options.seed, options.seed + len(sizes))
    spawn = multiprocessing.get_context("spawn")
    work = partial(live, is_cluster=options.cluster)
    with ProcessPoolExecutor(options.processes, mp_context=spawn) as pool:
        for one, (stops, copied, kinds) in zip(sizes, pool.map(work, seeds, sizes), strict=True):
            restarts, copies, done = restarts + stops, copies + copied, done + one
            counts = {key: counts.get(key, 0) + kinds.get(key, 0) for key in {**counts, **kinds}}
            tell(f"{done} operations, {time.monotonic() - began:.0f} s")
    kinds_told = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    tell(
        f"{done} operations ({kinds_told}), {restarts} restarts and {copies} starts from files "
        f"left without a stop: every answer as the model's ({time.monotonic() - began:.0f} s)"
    )


if __name__ == "__main__":
    main()
