"""Detects the format of a body by its first bytes, for requests without a content type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gcws_search.service.errors import MalformedBody, unsupported
from gcws_search.service.responses import ARROW, CSV, JSON, NDJSON, NPY, TSV

START_BYTES: Final = 8
"""As many as any magic number has."""

NAMES: Final = {
    JSON: "JSON", NDJSON: "NDJSON", NPY: ".npy data", ARROW: "an Arrow stream", CSV: "CSV",
    TSV: "columns that tabs divide",
}  # fmt: skip
"""Formats that are read, and their names in messages."""
LOADS_FILES: Final = "`gcws-search load FILE` loads it"
_IS_CSV: Final = f"the content type {CSV} says that it is"

_TAKEN: Final = {b"\x93NUMPY": NPY, b"\xff\xff\xff\xff": ARROW}
_LOADED: Final = {
    b"ARROW1\x00": "an Arrow file",
    b"PAR1\x15": "a Parquet file",
    b"PK\x03\x04": "a zip archive, such as an .npz",
    b"\x28\xb5\x2f\xfd": "zstd data",
}
"""First bytes of files that the command ``load`` reads, and no route."""
_TABLES: Final = {
    "svmlight text": re.compile(rb"[-+.\d][-+.,\w]*(?: qid:\d+)?(?: +\d+:[-+.\w]+)+\s"),
    "CSV": re.compile(rb"[^{\x00-\x08\x0e-\x1f][^\x00\n]*?[,;\t][^\n]"),
}
_FOREIGN: Final = _LOADED | {
    b"FEA1\x00": "a Feather file of version 1",
    b"\x1f\x8b": "gzip data",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ": "xz data",
    b"\x89HDF": "an HDF5 file",
    b"SQLite f": "an SQLite file",
    **{bytes([0x80, protocol]): "a pickle" for protocol in range(2, 6)},
}
"""First bytes of all that is often sent by mistake; none that a table in text may begin with."""


def media_type_of(start: bytes, text: str, *, takes_csv: bool = False) -> str:
    """Return the content type of a body by its first `START_BYTES`; ``text`` for a text.

    Refused names another format. ``takes_csv``: CSV is read with its content type.
    """
    if (taken := _begins(start, _TAKEN)) is not None:
        return taken
    if text == NDJSON and start.lstrip().startswith(b"["):
        found: str | None = "a JSON array; send one item a line"
    else:
        found = _begins(start, _FOREIGN) or _table_format(start)
    if found is None:
        return text
    hint = _IS_CSV if takes_csv and found == "CSV" else _hint(found)
    raise unsupported(found, [NAMES[kind] for kind in (text, NPY, ARROW)], hint)


def require_not_foreign(start: bytes, kind: str) -> None:
    """Raise MalformedBody if the first bytes are those of another format than ``kind``."""
    taken = _begins(start, _TAKEN)
    if taken == kind:
        return
    if taken is not None or _begins(start, _FOREIGN):
        raise MalformedBody(f"expected {NAMES[kind]}, got {start_words(start)}")


def start_words(start: bytes) -> str:
    """Describe a body of the wrong format."""
    if not start:
        return "an empty body"
    if (taken := _begins(start, _TAKEN)) is not None:
        return NAMES[taken]
    if (found := _begins(start, _FOREIGN) or _table_format(start)) is not None:
        return "; ".join(filter(None, (found, _hint(found))))
    head = start[:START_BYTES]
    if all(byte in b"\t\r\n" or 32 <= byte < 127 for byte in head):  # noqa: PLR2004  # ASCII
        return f"text that starts with {head.decode()!r}"
    return f"other data, which starts with the bytes {head.hex(' ')}"


def _begins(start: bytes, formats: Mapping[bytes, str]) -> str | None:
    return next((found for magic, found in formats.items() if start.startswith(magic)), None)


def _hint(found: str) -> str:
    return LOADS_FILES if found in (*_LOADED.values(), *_TABLES) else ""


def _table_format(start: bytes) -> str | None:
    """Return svmlight or CSV for a table in text; None for any other text."""
    line = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if line.startswith(b"["):
        return None
    return next((name for name, pattern in _TABLES.items() if pattern.match(line)), None)
