"""svmlight: lines of a label, an optional query number, and coordinates with their values."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any, Final

from gcws_search.formats.files import BadFile
from gcws_search.formats.records import (
    Entry,
    head_lines,
    numbered_lines,
    read_number,
    read_records,
    show_line,
)
from gcws_search.formats.sources import Source

_LINE: Final = re.compile(
    rb"\s*(?P<label>[^\s:#]+)(?:[ \t]+qid:(?P<qid>\d{1,18}))?"
    rb"(?P<pairs>(?:[ \t]+\d{1,18}:[^\s:#]+)*)"
    rb"\s*(?:#.*)?",
    re.DOTALL,
)
_WHOLE: Final = re.compile("[+-]?[0-9]{1,300}")
_EXPECTED: Final = "expected 'label index:value …'"


def read_svmlight(source: Source) -> None:
    """Read svmlight. Coordinates count from 0 if the first lines have a 0, otherwise from 1."""
    file = source.only_file
    lines = [*head_lines(file)]
    if not lines:
        raise BadFile(f"{file.name}: expected lines of 'label index:value …', got none")
    has_zero, has_qid = False, False
    for line in lines:
        if found := _LINE.fullmatch(line):
            has_zero = has_zero or re.search(rb"\s0+:", found["pairs"]) is not None
            has_qid = has_qid or found["qid"] is not None
    told = source.choices.zero_based
    base = int(not (has_zero if told is None else told))
    is_guess = told is None and not has_zero
    words = "; the first lines have no 0, and --zero-based says otherwise" if is_guess else ""
    source.settled["zero_based"] = not base
    read_records(
        source,
        lambda: numbered_lines(file),
        partial(_entry, base=base),
        format_="svmlight",
        ids=None,
        vector=f"sparse, coordinates from {base}{words}",
        fields=["label", "qid"] if has_qid else ["label"],
        by_name=False,
        show=show_line,
    )


def _entry(line: bytes, base: int) -> Entry:
    """Return a parsed line with coordinates from 0 on."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise BadFile(f"{_EXPECTED}, got {show_line(line)!r:.60}")
    words = found["pairs"].decode().replace(":", " ").split()
    keys = [int(word) - base for word in words[::2]]
    if base and -1 in keys:
        raise BadFile("expected coordinates from 1 on, got 0; --zero-based counts from 0")
    try:
        values = [*map(read_number, words[1::2])]
        labels = [_label(word) for word in found["label"].decode().split(",")]
    except ValueError as error:
        raise BadFile(f"{_EXPECTED}, got an invalid number: {error}") from None
    payload: dict[str, Any] = {"label": labels[0] if len(labels) == 1 else labels}
    if found["qid"] is not None:
        payload["qid"] = int(found["qid"])
    return Entry(keys, values, None, payload)


def _label(word: str) -> int | float:
    """Return a label; a whole number keeps all its digits."""
    value = read_number(word)
    if math.isinf(value):
        raise ValueError(f"{word:.60}")
    return value if not value.is_integer() else int(word) if _WHOLE.fullmatch(word) else int(value)
