"""The README's table, from the generated one: ``python -m benchmarks.rivals.summary``.

One row per data set: ours, and the best rival in each column. Below it, the smallest gains.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from benchmarks.harness.report import REPOSITORY, arguments, markdown, replace_block

PAGE = REPOSITORY / "docs" / "benchmarks.md"
NAME = "summary"

_OURS = "ours"
_RATE = "queries/s at "
_COLUMNS = {
    "queries/s at 0.95, 1 thread": ("at 0.95", -1.0),
    "queries/s at 0.99, 1 thread": ("at 0.99", -1.0),
    "build, s": ("build, s", 1.0),
    "MB": ("MB", 1.0),
}
"""Columns of the generated table: what they are called here, and 1 where less is better."""


Row: TypeAlias = dict[str, str]
"""A method on a data set, by the names of the columns."""


def summary(page: Path = PAGE) -> str:
    """Return the table and the text below it as Markdown."""
    rows = _rows(page.read_text())
    sets = [
        [row for row in rows if row["data"] == data]
        for data in dict.fromkeys(row["data"] for row in rows)
    ]
    lines = []
    for some in sets:
        ours = _ours(some)
        cells = [ours["data"]]
        for column, (_, sign) in _COLUMNS.items():
            best = _best(some, column, sign)
            other = "not reached" if best is None else f"{best[column]} ({best['method']})"
            cells += [ours[column], other]
        lines.append(cells)
    head = [word for name, _ in _COLUMNS.values() for word in (name, "best rival")]
    return f"{markdown(['data', *head], lines)}\n\n{_losses(sets)}"


def _losses(sets: Sequence[Sequence[Row]]) -> str:
    """Return a text on our losses and the smallest gain of the search."""
    shares = [
        _number(best["MB"]) / _number(_ours(some)["MB"])
        for some in sets
        if (best := _best(some, "MB", 1.0)) is not None
    ]
    one, two = (_smallest_gain(sets, threads) for threads in ("1 thread", "2 threads"))
    return (
        f"**Where we lose:** memory. The smallest rival needs {100 * min(shares):.0f} to "
        f"{100 * max(shares):.0f} % of ours. On one thread the search gains least on {one}. "
        f"On two it gains least on {two}."
    )


def _smallest_gain(sets: Sequence[Sequence[Row]], threads: str) -> str:
    """Return the data set, the ratio to the best rival, and at which recall."""
    gains = [
        (
            _number(_ours(some)[column]) / _number(best[column]),
            f"times {best['method']} at {column[len(_RATE) :].partition(',')[0]}",
            best["data"],
        )
        for some in sets
        for column in some[0]
        if column.startswith(_RATE) and column.endswith(threads)
        if (best := _best(some, column, -1.0)) is not None
    ]
    ratio, beside, data = min(gains)
    return f"{data}: {ratio:.2f} {beside}"


def _ours(some: Sequence[Row]) -> Row:
    [ours] = [row for row in some if row["method"] == _OURS]
    return ours


def _best(some: Sequence[Row], column: str, sign: float) -> Row | None:
    """Return the rival that is best in a column; sign as in `_COLUMNS`."""
    rivals = [row for row in some if _is_rival(row, column)]
    return min(rivals, key=lambda row: sign * _number(row[column]), default=None)


def _number(figure: str) -> float:
    return float(figure.replace(",", ""))


def _rows(text: str) -> list[Row]:
    """Return the rows of the table of rivals, each by the names of its columns."""
    _, _, rest = text.partition("<!-- table: rivals -->")
    block, _, _ = rest.partition("<!-- end: rivals -->")
    lines = re.findall(r"^\| (.*) \|$", block, re.MULTILINE)
    head, _, *rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    return [dict(zip(head, row, strict=True)) for row in rows]


def _is_rival(row: Row, column: str) -> bool:
    return row["method"] != _OURS and row[column][:1].isdigit()  # or "not reached"


def main(given: Sequence[str] | None = None) -> None:
    """Print the table; with ``--write FILE`` also put it into its block of that file."""
    options = arguments("The README's table of numbers.", data=False).parse_args(given)
    text = summary()
    print(text)
    if options.write is not None:
        replace_block(options.write, NAME, text)


if __name__ == "__main__":
    main()
