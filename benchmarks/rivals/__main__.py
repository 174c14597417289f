"""Ours and other libraries' graphs: ``python -m benchmarks.rivals --data DIR``.

Every method searches the same L1-normalised rows for the same held-out queries, each in a separate
process; they answer in turns. Their hits are scored exactly, and recall is measured as in
`benchmarks.library.recall`.
"""

import argparse
import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.report import Table, arguments
from benchmarks.rivals.frontier import Point, Truth, rate_at
from benchmarks.rivals.methods import METHODS, Method, Ours, installed
from benchmarks.rivals.process import BUILD_SECONDS, MIN_SECONDS, Built, Runner, normalised, running
from gcws_search.index.hashing.banding import FIRST_TABLES

SETS: Final = (
    "fashion_mnist", "dailysports_frames", "covtype93k", "synthetic, clustered", "letter",
    "news20 words", "news20 sentences", "muv_ecfp4", "news20 tf-idf",
)  # fmt: skip
LARGE_SETS: Final = ("synthetic, a million",)
"""Measured instead with ``--large``: some rivals build them for ten minutes."""
SPARSE: Final = ("muv_ecfp4", "news20 tf-idf")
RECALLS: Final = (0.95, 0.99)
THREADS: Final = (1, 2)
BUILD_THREADS: Final = 2
REPEATS: Final = 3
OTHER_LIBRARIES: Final = ("pynndescent", "usearch", "nmslib")
"""Rivals that the header does not name."""
COLUMNS: Final = (
    "data", "method",
    *(f"queries/s at {recall}, {threads} thread{'s' * (threads > 1)}"
      for threads in THREADS for recall in RECALLS),
    "ratio to the best rival", "build, s", "build ratio", "tables alone, s", "their ratio",
    "compiling, s", "MB",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """One method on one data set."""

    method: str
    built: Built
    points: Sequence[Point]

    def rates(self, *, by_cpu: bool) -> list[float | None]:
        """Return the speeds of the table, in the order of its columns.

        A method that cannot use several threads is as fast as on one.

        Parameters
        ----------
        by_cpu : bool
            Count the processor's seconds on one thread, which other work disturbs less.
        """
        return [
            self._rate(recall, threads, by_cpu=by_cpu and threads == 1)
            for threads in THREADS
            for recall in RECALLS
        ]

    def _rate(self, recall: float, threads: int, *, by_cpu: bool) -> float | None:
        used = max((p.threads for p in self.points if p.threads <= threads), default=0)
        points = [
            (p.recall, p.cpu_rate if by_cpu else p.rate) for p in self.points if p.threads == used
        ]
        return rate_at(recall, points)

    def to_dict(self) -> dict[str, Any]:
        """Return everything that was measured, JSON-able."""
        points = [
            {**asdict(p), "rate": p.rate, "best_rate": p.best_rate, "cpu_rate": p.cpu_rate}
            for p in self.points
        ]
        return {"method": self.method, "built": asdict(self.built), "points": points}


def measured(
    name: str, folder: Path, methods: Sequence[type[Method]], repeats: int
) -> list[Measured]:
    """Build all methods' indexes of one data set, one after the other, and ask them in turns."""
    truth = Truth.of(*normalised(name, folder))
    with ExitStack() as stack:
        runners = [
            stack.enter_context(running(method, name, folder, BUILD_THREADS)) for method in methods
        ]
        points: dict[str, list[Point]] = {runner.method.NAME: [] for runner in runners}
        for threads in THREADS:
            able = [runner for runner in runners if runner.get_ready(threads)]
            for runner, some in zip(able, in_turns(able, threads, repeats), strict=True):
                points[runner.method.NAME] += [as_point(truth, threads, *each) for each in some]
        return [Measured(r.method.NAME, r.built, points[r.method.NAME]) for r in runners]


def in_turns(
    runners: Sequence[Runner], threads: int, repeats: int
) -> list[list[tuple[float, list[Any]]]]:
    """Return of each runner its settings, each with the answers of all repetitions."""
    answers = [[(float(s), list[Any]()) for s in runner.method.SETTINGS] for runner in runners]
    for _ in range(repeats):
        for runner, settings in zip(runners, answers, strict=True):
            for setting, some in settings:
                some.append(runner.answer(threads, setting))
    return answers


def as_point(truth: Truth, threads: int, setting: float, answers: Sequence[Any]) -> Point:
    """Judge the answers to one setting by the first of them."""
    return Point(
        threads,
        setting,
        len(truth.hits),
        truth.recall(answers[0].rows),
        [answer.seconds for answer in answers],
        [answer.cpu_seconds for answer in answers],
    )


def usable(name: str) -> list[type[Method]]:
    """Return the methods that can index this data set here."""
    form = "sparse" if name in SPARSE else "dense"
    return [
        method
        for method in METHODS
        if form in method.FORMS and name not in method.REFUSED and installed(method)
    ]


def add_rows(table: Table, name: str, some: Sequence[Measured], *, by_cpu: bool) -> None:
    """Add one row a method; ours with its ratio to the best rival."""
    rivals = [each for each in some if each.method != Ours.NAME]
    rates = {each.method: each.rates(by_cpu=by_cpu) for each in some}
    for each in some:
        ratio, build_ratio, table_ratio = "", "", ""
        tables = each.built.table_seconds
        if each.method == Ours.NAME and rivals:
            ratio = " · ".join(
                against(mine, [rival for rival in theirs if rival is not None])
                for mine, *theirs in zip(*(rates[m.method] for m in (each, *rivals)), strict=True)
            )
            fastest = min(rival.built.seconds for rival in rivals)
            build_ratio = f"{fastest / each.built.seconds:.1f} ×"
            if tables is not None:
                table_ratio = f"{fastest / tables:.1f} ×"
        table.add(
            name,
            each.method,
            *("not reached" if rate is None else rate for rate in rates[each.method]),
            ratio,
            each.built.seconds,
            build_ratio,
            "" if tables is None else tables,
            table_ratio,
            each.built.compile_seconds,
            each.built.bytes_ / 1e6,
        )


def against(mine: float | None, theirs: Sequence[float]) -> str:
    """Return how many times faster ours is than the fastest rival that gets there."""
    if mine is None:
        return "behind" if theirs else "-"
    return f"{mine / max(theirs):.2f} ×" if theirs else "alone"


def notes(names: Sequence[str]) -> list[str]:
    """Return what a reader must know."""
    refused = [
        f"{method.NAME} is left out on {name}: {reason}."
        for method in METHODS
        for name, reason in method.REFUSED.items()
        if name in names
    ]
    missing = [f"{method.NAME} was not installed." for method in METHODS if not installed(method)]
    versions = [
        f"{library} {metadata.version(library)}"
        for library in OTHER_LIBRARIES
        if find_spec(library) is not None
    ]
    return [
        "- Queries/s: 1,000 held-out queries in one call. The call is repeated for at least "
        f"{MIN_SECONDS} s; the median counts. All methods get L1-normalised rows, on which L1 "
        "ranks as GMM does. Between two measured settings, the logarithm of the speed is "
        "interpolated; nothing is extrapolated. The speed on one thread stands for methods that "
        "cannot use two. Ratios are in the order of the columns.\n"
        f"- Build: on {BUILD_THREADS} threads. Builds are repeated for {BUILD_SECONDS:.0f} s, and "
        "the median counts. Ratios are to the fastest graph.\n"
        f"- Tables alone: the first {FIRST_TABLES} tables of dense rows, with the time to hash "
        "them. Sparse rows are hashed only for a graph.\n"
        "- Compiling: the time that each new process spends on it when numba's cache is full.\n"
        "- Memory: the growth of the process, rows included.\n\n"
        f"{', '.join(versions)}. " + " ".join([*refused, *missing])
    ]


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = arguments("Ours and other libraries' graphs.")
    names = [method.NAME for method in METHODS]
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS, metavar="NAME")
    parser.add_argument("--large", action="store_true", help="a million rows, into another block")
    parser.add_argument("--methods", nargs="+", default=names, choices=names, metavar="NAME")
    parser.add_argument("--repeats", type=int, default=REPEATS, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every measured point, too")
    parser.add_argument(
        "--cpu", action="store_true", help="count processor time on one thread: others are busy"
    )
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = parsed()
    table = Table("large rivals", COLUMNS) if options.large else Table("rivals", COLUMNS)
    names = LARGE_SETS if options.large else options.sets
    everything: dict[str, Any] = {}
    for name in names:
        methods = [method for method in usable(name) if method.NAME in options.methods]
        some = measured(name, options.data, methods, options.repeats)
        add_rows(table, name, some, by_cpu=options.cpu)
        everything[name] = [each.to_dict() for each in some]
        if options.json is not None:
            options.json.write_text(json.dumps(everything, indent=1))
    table.notes.extend(notes(names))
    table.publish(options, threads="threads as stated" + ", processor time on one" * options.cpu)


if __name__ == "__main__":
    main()
