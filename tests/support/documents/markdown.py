"""Reads pages of Markdown: prose, tables, fenced blocks, links and headings."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import REPOSITORY

README = REPOSITORY / "README.md"
DOCS = REPOSITORY / "docs"

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_GENERATED = re.compile(r"<!-- table: .*?<!-- end: [^>]*-->", re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+")
_NO_PROSE = ("|", "#", "    ", "![")
_SENTENCE_END = re.compile(r"(?<=[.!?])[)\"'*]*\s+(?=[(\"'*]*[A-Z0-9…])")


def pages() -> list[Path]:
    """Return the README and the pages of docs/."""
    return [README, *sorted(DOCS.rglob("*.md"))]


def blocks(text: str) -> list[tuple[str, str]]:
    """Return the language and the content of every fenced block."""
    return _FENCED.findall(text)


def links(text: str) -> list[str]:
    """Return the targets of all links and pictures."""
    return [target for _, target in _LINK.findall(_CODE.sub("", _FENCED.sub("", text)))]


def anchors(text: str) -> set[str]:
    """Return the anchors of all headings, as GitHub names them."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        words = re.sub(r"[^\w\- ]", "", _LINK.sub(r"\1", heading).lower()).replace(" ", "-")
        number = 0
        anchor = words
        while anchor in found:
            number += 1
            anchor = f"{words}-{number}"
        found.add(anchor)
    return found


def tables(text: str) -> list[list[dict[str, str]]]:
    """Return the tables, each a list of rows, each its cells by the names of its columns."""
    found = []
    for table in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        head, _, *rows = [_cells(line) for line in table.splitlines()]
        found.append([dict(zip(head, row, strict=True)) for row in rows])
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of the prose: no headings, tables, code or generated parts.

    A piece of code is one word.
    """
    plain = _COMMENT.sub("", _GENERATED.sub("", _FENCED.sub("", text)))
    for paragraph in _paragraphs(plain):
        words = _LINK.sub(r"\1", _CODE.sub("Code", paragraph)).replace("**", "")
        yield from _SENTENCE_END.split(words)


def _paragraphs(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        starts = _ITEM.match(line)
        if lines and (starts or not line.strip() or line.startswith(_NO_PROSE)):
            yield " ".join(lines)
            lines = []
        if line.strip() and not line.startswith(_NO_PROSE):
            lines.append(line[starts.end() :] if starts else line.strip())


def length(sentence: str) -> int:
    """Return the number of words of a sentence."""
    return sum(any(letter.isalnum() for letter in word) for word in sentence.split())
