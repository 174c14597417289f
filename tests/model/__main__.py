"""Random operations against a model: ``python -m tests.model --operations 100000``.

They are shared out over lives, directories of their own, as many at once as there are processors.
``--cluster`` asks a router over a database and shards, in the place of one node.
"""

from functools import partial

from tests.model.run import live
from tests.support import long_runs

LIFE = 5000


def main() -> None:
    parser = long_runs.seeded("Compare a service with a model of it.")
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--cluster", action="store_true")
    options = parser.parse_args()
    work = partial(live, is_cluster=options.cluster)
    long_runs.live(work, options.operations, LIFE, options)
    long_runs.tell("every answer as the model's")


if __name__ == "__main__":
    main()
