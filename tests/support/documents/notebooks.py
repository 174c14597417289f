"""How-tos as notebooks: the prose and code of a page, as jupytext's py:percent format has them.

``python -m tests.support.documents.notebooks`` writes them again after a page has changed.
"""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.documents.markdown import DOCS

FOLDER: Final = DOCS / "notebooks"
PAGES: Final = ("duplicates", "molecules", "texts")

_PARTS: Final = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\((?=[\w./-]+\.(?:md|svg))")
_HEAD: Final = """\
# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---
"""


def notebook(page: str) -> str:
    """Return a page of Markdown as a notebook."""
    cells: list[str] = []
    for number, part in enumerate(_PARTS.split(page)):
        if number % 2:
            cells += [f"# %%\n{code}" for code in _cells(part)]
        elif part.strip():
            lines = _LINK.sub("](../", part.strip()).splitlines()
            cells.append("# %% [markdown]\n" + "\n".join(f"# {line}".rstrip() for line in lines))
    return _HEAD + "".join(f"\n{cell.rstrip()}\n" for cell in cells)


def _cells(conversation: str) -> Iterator[str]:
    """Yield code up to each answer: a notebook shows the last value of a cell."""
    code = ""
    for example in doctest.DocTestParser().get_examples(conversation):
        code += example.source
        if example.want:
            yield code
            code = ""
    if code:
        yield code


def write() -> list[Path]:
    """Write all notebooks; return where."""
    FOLDER.mkdir(exist_ok=True)
    written = []
    for name in PAGES:
        path = FOLDER / f"{name}.py"
        path.write_text(notebook((DOCS / f"{name}.md").read_text()))
        written.append(path)
    return written


if __name__ == "__main__":
    write()
