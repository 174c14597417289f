"""Kill servers, hundreds of times: ``python -m tests.crashes --kills 500``.

Of every three kills two come at random instants, a sixth of them while the server starts, and one
at a named point, each point in turn. After each the next server must hold exactly what the writers
were told that it holds, and find it.

With ``--cluster`` parts of a cluster on this machine are killed: `tests.crashes.cluster`.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.crashes.points import POINTS
from tests.crashes.servers import nursery
from tests.crashes.trial import Trial, clock


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def of_a_cluster(kills: int, seed: int, kinds: Sequence[str] | None) -> None:
    """Kill parts of a cluster, each kind in turn."""
    from tests.crashes.cluster import KINDS, ClusterTrial  # noqa: PLC0415  # needs Ray

    began, kinds = time.monotonic(), kinds or KINDS
    trial = ClusterTrial(seed)
    try:
        for number in range(kills):
            trial.kill(kinds[number % len(kinds)])
            if (number + 1) % len(kinds) == 0:
                tell(f"{dict(trial.kills)}, {trial.clients.told}, {clock(began)}")
    finally:
        trial.stop()
    tell(f"{kills} kills {dict(trial.kills)}: {trial.clients.told}; nothing lost ({clock(began)})")


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill servers, and look for what was lost.")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--only", help="what of a cluster is killed; all in turn unless given")
    options = parser.parse_args()
    tell(f"seed {options.seed}")
    if options.cluster:
        of_a_cluster(options.kills, options.seed, [options.only] if options.only else None)
        return
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
