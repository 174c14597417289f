"""The README's table of numbers, out of the generated one: ``python -m benchmarks.rivals.summary``.

One row a data set: ours, and the best rival in each column.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.report import REPOSITORY, arguments, markdown, replace_block

PAGE = REPOSITORY / "docs" / "benchmarks.md"
NAME = "summary"

_OURS = "ours"
_COLUMNS = {
    "queries/s at 0.95, 1 thread": ("at 0.95", -1.0),
    "queries/s at 0.99, 1 thread": ("at 0.99", -1.0),
    "build, s": ("build, s", 1.0),
    "MB": ("MB", 1.0),
}
"""Columns of the generated table: what they are called here, and 1 where less is better."""


def summary(page: Path = PAGE) -> str:
    """Return the table as Markdown."""
    rows = _rows(page.read_text())
    lines = []
    for data in dict.fromkeys(row["data"] for row in rows):
        [ours] = [row for row in rows if row["data"] == data and row["method"] == _OURS]
        cells = [data]
        for column, (_, sign) in _COLUMNS.items():
            rivals = [row for row in rows if row["data"] == data and _is_rival(row, column)]
            figures = [sign * float(row[column].replace(",", "")) for row in rivals]
            best = rivals[figures.index(min(figures))] if rivals else None
            other = "not reached" if best is None else f"{best[column]} ({best['method']})"
            cells += [ours[column], other]
        lines.append(cells)
    head = [word for name, _ in _COLUMNS.values() for word in (name, "best rival")]
    return markdown(["data", *head], lines)


def _rows(text: str) -> list[dict[str, str]]:
    """Return the rows of the table of rivals, each by the names of its columns."""
    _, _, rest = text.partition("<!-- table: rivals -->")
    block, _, _ = rest.partition("<!-- end: rivals -->")
    lines = re.findall(r"^\| (.*) \|$", block, re.MULTILINE)
    head, _, *rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    return [dict(zip(head, row, strict=True)) for row in rows]


def _is_rival(row: dict[str, str], column: str) -> bool:
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
