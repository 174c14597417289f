"""Kill servers, hundreds of times: ``python -m tests.crashes --kills 500``.

Of every three kills two come at random instants, a sixth of them while the server starts, and one
at a named point, each point in turn. After each the next server must hold exactly what the writers
were told that it holds, and find it.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.crashes.points import POINTS
from tests.crashes.servers import nursery
from tests.crashes.trial import Trial, clock


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill servers, and look for what was lost.")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    tell(f"seed {options.seed}")
    began, draw = time.monotonic(), random.Random(options.seed)
    names = list(POINTS)
    # The nursery notes how servers end in the folder: it is to be gone before.
    with tempfile.TemporaryDirectory() as name, nursery() as servers:
        trial = Trial(servers, Path(name), options.seed)
        trial.kill_at_random()
        while trial.counts.kills < options.kills:
            if draw.random() < 2 / 3:
                trial.kill_at_random()
            else:
                trial.kill_at(names[trial.counts.at_points % len(names)], draw.randint(1, 4))
            if trial.counts.kills % 20 == 0:
                tell(f"{trial.counts}, {trial.acknowledged} acknowledged, {clock(began)}")
        trial.check()
    counts = trial.counts
    tell(
        f"{counts.kills} kills ({counts.at_points} at named points, {counts.while_starting} at "
        f"random while starting): {trial.acknowledged} writes acknowledged, {trial.unanswered} "
        f"under way when their server ended; nothing lost, nothing half there ({clock(began)})"
    )


if __name__ == "__main__":
    main()
