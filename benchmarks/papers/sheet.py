"""The result of an experiment: a page of Markdown tables and a picture, in a chosen folder."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final, TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.harness.report import Table, header, markdown, replace_block
from benchmarks.papers.kept import Kept

INCHES: Final = (4.6, 3.8)
"""Size of one panel of a picture."""
DOTS: Final = 110


@dataclass(frozen=True, slots=True)
class Options:
    """How an experiment is to be run.

    Attributes
    ----------
    data : Path or None
        Folder of the data sets; None for generated data (a quick run).
    quick : bool
        Small sizes: to see that all of it runs, not for the figures.
    threads : int
    out : Path or None
        Folder in which long runs store their results; None stores nothing.
    """

    data: Path | None = None
    quick: bool = False
    threads: int = 1
    out: Path | None = None

    def kept(self, name: str) -> Kept:
        """Return what an earlier run of this experiment has measured."""
        return Kept(None if self.out is None else self.out / f"{name}.jsonl")


@dataclass(frozen=True, slots=True)
class Sheet:
    """The result of one experiment.

    Attributes
    ----------
    name : str
        Of the experiment; its files are ``name.md`` and ``name.png``.
    title : str
    tables : list of Table
        In the order they are shown; a table's notes follow it.
    figure : Figure
    """

    name: str
    title: str
    figure: Figure
    tables: list[Table] = field(default_factory=list)

    def text(self) -> str:
        """Return the tables as Markdown."""
        parts: list[str] = []
        for table in self.tables:
            parts += [markdown(table.columns, table.rows), *table.notes]
        return "\n\n".join(parts)

    def write(self, out: Path, *, threads: int, page: Path | None = None) -> None:
        """Write both files into ``out``; the tables and the picture's place into ``page``, too."""
        out.mkdir(parents=True, exist_ok=True)
        figures = f"*{header(f'{threads} thread' + 's' * (threads > 1))}*\n\n{self.text()}"
        picture = f"{self.name}.png"
        (out / f"{self.name}.md").write_text(
            f"# {self.title}\n\n{figures}\n\n![{self.title}]({picture})\n"
        )
        self.figure.savefig(out / picture, dpi=DOTS)
        if page is not None:
            replace_block(page, self.name, figures)
        print(f"# {self.title}\n\n{figures}\n")


Run: TypeAlias = Callable[[Options], Sheet]
"""An experiment."""


def panels(columns: int, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Return an empty picture with this number of panels, and its axes row by row."""
    width, height = INCHES
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def wide(columns: Sequence[float], *, base: float = 2) -> tuple[float, float]:
    """Return limits that leave a margin around values on a logarithmic axis."""
    return min(columns) / base**0.5, max(columns) * base**0.5


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options every experiment has."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--data", type=Path, metavar="DIR", help="folder of the data sets")
    made.add_argument("--out", type=Path, required=True, metavar="DIR", help="where results go")
    made.add_argument("--quick", action="store_true", help="small; synthetic data without --data")
    made.add_argument("--threads", type=int, default=1, metavar="N")
    made.add_argument(
        "--write", type=Path, metavar="FILE", help="put the tables into their block of this file"
    )
    return made


def main(runs: Run | Sequence[Run], description: str, *, needs_data: bool) -> None:
    """Run experiments from the command line, and write each result as it comes."""
    command = parser(description)
    given = command.parse_args()
    if needs_data and given.data is None and not given.quick:
        command.error("--data is needed, except with --quick")
    options = Options(given.data, given.quick, given.threads, given.out)
    for run in runs if isinstance(runs, Sequence) else [runs]:
        began = perf_counter()
        sheet = run(options)
        sheet.write(given.out, threads=given.threads, page=given.write)
        print(f"{sheet.name}: {perf_counter() - began:,.0f} s", flush=True)
