"""Whether recall asked is recall found: ``python -m tests.promise --data DIR``.

Every kind of query, filter, limit and target over real and made data; the worst cells are printed,
and the command fails where one lies under its target by more than two standard errors.
"""

import argparse
import sys
from pathlib import Path

from tests.promise.grid import LIMITS, TARGETS, Cell, measure
from tests.promise.questions import QUESTIONS
from tests.promise.scenes import MADE, REAL, scenes
from tests.support.long_runs import tell

_TOLERATED = -2.0


def described(cell: Cell) -> str:
    return (
        f"{cell.scene:18} {cell.question:34} limit {cell.limit:4} asked {cell.target:.2f} "
        f"found {cell.recall:.4f} ({cell.error:.4f}) {cell.speed:6.2f} x  {cell.methods}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare recall asked with recall found.")
    parser.add_argument("--data", type=Path, help="folder of data sets; made data alone without")
    parser.add_argument("--scenes", nargs="+", default=[*REAL, *MADE], choices=[*REAL, *MADE])
    parser.add_argument("--questions", nargs="+", choices=list(QUESTIONS), metavar="NAME")
    parser.add_argument("--limits", nargs="+", type=int, default=LIMITS)
    parser.add_argument("--targets", nargs="+", type=float, default=TARGETS)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--worst", type=int, default=20, help="cells that are printed")
    parser.add_argument("--all", action="store_true", help="print every cell as it is measured")
    options = parser.parse_args()
    cells = []
    for scene in scenes(options.data, options.scenes, options.queries):
        for cell in measure(
            scene, limits=options.limits, targets=options.targets, names=options.questions
        ):
            cells.append(cell)
            if options.all:
                tell(described(cell))
    cells.sort(key=lambda cell: cell.deviations)
    tell(f"\nThe {options.worst} worst of {len(cells)} cells:")
    for cell in cells[: options.worst]:
        tell(described(cell))
    broken = sum(cell.deviations < _TOLERATED for cell in cells)
    tell(f"{broken} of {len(cells)} cells are under the target by more than two standard errors.")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
