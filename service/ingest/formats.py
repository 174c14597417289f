"""The format of a body by its first bytes, for when no content type says it."""

from __future__ import annotations

import re
from typing import Final

from gcws_search.service.errors import MalformedBody, unsupported
from gcws_search.service.responses import ARROW, JSON, NDJSON, NPY

START_BYTES: Final = 8
"""As many as any magic number has."""

NAMES: Final = {JSON: "JSON", NDJSON: "NDJSON", NPY: ".npy data", ARROW: "an Arrow stream"}
"""Formats that are read, and their names in messages."""
LOADS_FILES: Final = "`gcws-search load FILE` loads it"

_TAKEN: Final = {b"\x93NUMPY": NPY, b"\xff\xff\xff\xff": ARROW}
_SEPARATED: Final = re.compile(rb"[^{\x00-\x08\x0e-\x1f][^\x00\n]*?[,;\t][^\n]")
_SVMLIGHT: Final = re.compile(rb"[-+.\d][-+.,\w]*(?: qid:\d+)?(?: +\d+:[-+.\w]+)+\s")


_FOREIGN: Final = {
    b"ARROW1": "an Arrow file",
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip archive, such as an .npz",
    b"\x28\xb5\x2f\xfd": "zstd data",
    b"FEA1": "a Feather file of version 1",
    b"\x1f\x8b": "gzip data",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ": "xz data",
    b"\x89HDF": "an HDF5 file",
    b"SQLite f": "an SQLite file",
    b"\x80": "a pickle",
}
"""First bytes of what is often sent by mistake, which no route reads."""
_LOADED: Final = frozenset(
    {
        "an Arrow file",
        "a Parquet file",
        "a zip archive, such as an .npz",
        "zstd data",
        "svmlight text",
        "CSV",
    }
)
"""What of these the command ``load`` reads."""


def media_type_of(start: bytes, text: str) -> str:
    """Return the content type of a body by its first `START_BYTES`; ``text`` where it is text.

    Refused names another format.
    """
    for magic, kind in _TAKEN.items():
        if start.startswith(magic):
            return kind
    found = _binary_format(start) or _text_format(start, text)
    if found is None:
        return text
    expected = [NAMES[kind] for kind in (text, NPY, ARROW)]
    raise unsupported(found, expected, LOADS_FILES if found in _LOADED else "")


def require_not_foreign(start: bytes, kind: str) -> None:
    """Raise MalformedBody where the first bytes are those of another format than ``kind``."""
    if any(start.startswith(magic) for magic, taken in _TAKEN.items() if taken != kind):
        raise MalformedBody(f"expected {NAMES[kind]}, got {start_words(start)}")
    if _binary_format(start) is not None:
        raise MalformedBody(f"expected {NAMES[kind]}, got {start_words(start)}")


def start_words(start: bytes) -> str:
    """Describe a body of the wrong format."""
    if not start:
        return "an empty body"
    for magic, kind in _TAKEN.items():
        if start.startswith(magic):
            return NAMES[kind]
    found = _binary_format(start) or _table_format(start)
    if found is not None:
        return f"{found}; {LOADS_FILES}" if found in _LOADED else found
    head = start[:START_BYTES]
    if all(byte in b"\t\r\n" or 32 <= byte < 127 for byte in head):  # noqa: PLR2004  # ASCII
        return f"text that starts with {head.decode()!r}"
    return f"other data, which starts with the bytes {head.hex(' ')}"


def _binary_format(start: bytes) -> str | None:
    return next((found for magic, found in _FOREIGN.items() if start.startswith(magic)), None)


def _text_format(start: bytes, text: str) -> str | None:
    """Return the format of a text that is neither JSON lines nor an object."""
    if text == NDJSON and start.lstrip().startswith(b"["):
        return "a JSON array; send one item a line"
    return _table_format(start)


def _table_format(start: bytes) -> str | None:
    """Return CSV or svmlight for a table in text; None for any other text."""
    line = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if _SVMLIGHT.match(line):
        return "svmlight text"
    if _SEPARATED.match(line) and not line.startswith(b"["):
        return "CSV"
    return None
