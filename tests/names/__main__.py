"""Operations that meet on one name: ``python -m tests.names --rounds 10000 --seed N``.

The rounds are shared out over directories of their own, as many at once as there are processors,
every third of them with larger files.
"""

from tests.names.run import live
from tests.support import long_runs

LIFE = 100


def main() -> None:
    parser = long_runs.seeded("Let operations meet on one name.")
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--processes", type=int)
    options = parser.parse_args()
    long_runs.live(live, options.rounds, LIFE, options)
    long_runs.tell("memory and files as acknowledged")


if __name__ == "__main__":
    main()
