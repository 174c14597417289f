"""Kill servers, hundreds of times: ``python -m tests.crashes --kills 500``.

Of every three kills two come at random instants, a sixth of them while the server starts, and one
at a named point, each point in turn. After each the next server must hold exactly what the writers
were told that it holds, and find it.

With ``--cluster`` parts of a cluster on this machine are killed: `tests.crashes.cluster`.
"""

import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.crashes.points import POINTS
from tests.crashes.trial import Trial
from tests.support.long_runs import clock, seeded, tell


def of_a_cluster(kinds: Sequence[str], seed: int) -> None:
    """Kill parts of a cluster, one after the other."""
    from tests.crashes.cluster import ClusterTrial  # noqa: PLC0415  # needs Ray

    began = time.monotonic()
    trial = ClusterTrial(seed)
    try:
        for number, kind in enumerate(kinds, 1):
            start = time.monotonic()
            trial.kill(kind)
            tell(f"{number}. {trial.killed}: {clock(start)}")
            if number % 20 == 0:
                tell(f"{trial.told} ({clock(began)})")
    finally:
        trial.stop()
    tell(f"{trial.told}. Nothing lost ({clock(began)})")


def in_some_order(given: str | None, kills: int, seed: int) -> list[str]:
    """Return what is killed: each kind in turn, or as often as is given, mixed.

    ``given``: such as ``replica=40,router=30``; a kind alone is killed ``kills`` times.
    """
    from tests.crashes.cluster import KINDS  # noqa: PLC0415  # needs Ray

    if given is None:
        return [KINDS[number % len(KINDS)] for number in range(kills)]
    numbers = dict(each.partition("=")[::2] for each in given.split(","))
    if not {*numbers} <= {*KINDS}:
        raise SystemExit(f"expected some of {', '.join(KINDS)}, got {given}")
    kinds = [kind for kind, number in numbers.items() for _ in range(int(number or kills))]
    random.Random(seed).shuffle(kinds)
    return kinds


def main() -> None:
    parser = seeded("Kill servers, and look for what was lost.")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--kinds", help="what of a cluster is killed, such as replica=40,router=30")
    options = parser.parse_args()
    tell(f"seed {options.seed}")
    if options.cluster:
        of_a_cluster(in_some_order(options.kinds, options.kills, options.seed), options.seed)
        return
    began, draw = time.monotonic(), random.Random(options.seed)
    names = list(POINTS)
    with tempfile.TemporaryDirectory() as name:
        trial = Trial(Path(name), options.seed)
        trial.kill_at_random()
        while trial.kills < options.kills:
            if draw.random() < 2 / 3:
                trial.kill_at_random()
            else:
                trial.kill_at(names[trial.at_points % len(names)], draw.randint(1, 4))
            if trial.kills % 20 == 0:
                tell(f"{trial.told} ({clock(began)})")
        trial.check()
    tell(f"{trial.told}; nothing lost, nothing half there ({clock(began)})")


if __name__ == "__main__":
    main()
