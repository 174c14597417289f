"""Random operations against a model: ``python -m tests.model --operations 100000``."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.model.run import life


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare a service with a model of it.")
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    tell(f"seed {options.seed}")
    began = time.monotonic()

    def report(done: int) -> None:
        if done % 5000 == 0:
            tell(f"{done} operations, {time.monotonic() - began:.0f} s")

    with tempfile.TemporaryDirectory() as name, life(Path(name), options.seed) as lived:
        lived.run(options.operations, report)
        kinds = ", ".join(f"{count} {kind}" for kind, count in lived.operations.counts.items())
        tell(
            f"{options.operations} operations ({kinds}), {lived.restarts} restarts and "
            f"{lived.copies} starts from files without a stop: every answer as the model's "
            f"({time.monotonic() - began:.0f} s)"
        )


if __name__ == "__main__":
    main()
