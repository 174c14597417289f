"""The saved index: links of the graph and notes, stored beside the codes of the items."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson

from gcws_search.index.contracts.arrays import AnyArray, Int32s
from gcws_search.index.contracts.links import LinkArray

NO_ROW: Final = -1
"""An entry of `SavedIndex.links` that names no row."""
UNKNOWN: Final = -2
"""The first entry of a row whose links are not known and must be found again."""


@dataclass(frozen=True, slots=True)
class SavedIndex:
    """The part of an index state that is saved because rebuilding it is slow.

    links: (n, R), row numbers, `NO_ROW` for none; row i's list, in the backend's order. R is any
        number from 1 on. A backend may omit the lists of the last rows. A backend that loads it
        gets an array of all rows, and may change it in place; lists have no gaps, and a row whose
        list is unknown has `UNKNOWN` as its first entry.
    notes: measurements of the rows, as JSON; may include NumPy's numbers and arrays (which return
        as Python's); all finite. If links change without new or removed rows, they are written only
        if the notes change, too.
    """

    links: Int32s | LinkArray
    notes: dict[str, Any]


def text_of(notes: dict[str, Any]) -> str:
    """Return notes in stored form: a checksum (because kernels trust them), a space, and JSON."""
    return with_checksum(orjson.dumps(notes, option=orjson.OPT_SERIALIZE_NUMPY))


def notes_of(text: str) -> dict[str, Any]:
    """Inverse of `text_of`; ValueError if the text is damaged."""
    return fields_of(orjson.loads(without_checksum(text)))


def with_checksum(document: bytes) -> str:
    """Return JSON text after its checksum and a space."""
    return f"{zlib.crc32(document):08x} {document.decode()}"


def without_checksum(text: str) -> bytes:
    """Inverse of `with_checksum`; ValueError if the text is damaged."""
    if not isinstance(text, str):
        raise ValueError("no text")
    checksum, _, rest = text.partition(" ")
    document = rest.encode()
    if checksum != f"{zlib.crc32(document):08x}":
        raise ValueError("the checksum does not match")
    return document


def next_id_of(text: str) -> int:
    """Return the number for the next item without an id; ValueError if the text is damaged."""
    number = int(without_checksum(text))
    if number < 0:
        raise ValueError(f"{number} is not an id")
    return number


# These functions check the content of files before it is used.


def fields_of(value: object) -> dict[str, Any]:
    """Return a JSON object; ValueError for anything else."""
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {_shown(value)}")
    return value


def list_of(value: object, *, max_count: int) -> list[Any]:
    """Return a JSON array of at most ``max_count`` elements; ValueError for anything else."""
    if not isinstance(value, list) or len(value) > max_count:
        raise ValueError(f"expected a list of at most {max_count} elements, got {_shown(value)}")
    return value


def number_of(value: object, low: float, high: float) -> float:
    """Return a JSON number within a range; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"expected a number from {low:g} to {high:g}, got {_shown(value)}")
    return float(value)


def count_of(value: object, low: int, high: int) -> int:
    """Return a JSON integer within a range; ValueError for anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"expected a whole number from {low} to {high}, got {_shown(value)}")
    return value


def array_text(array: AnyArray, kind: str) -> str:
    """Return an array as base64 of its little-endian numbers of a type, such as ``<f4``."""
    return base64.b64encode(np.ascontiguousarray(array, kind).tobytes()).decode()


def array_of(text: object, kind: str) -> AnyArray:
    """Inverse of `array_text`, in native byte order; ValueError for anything else."""
    if not isinstance(text, str):
        raise ValueError(f"expected an array, got {_shown(text)}")
    little = np.frombuffer(bytearray(base64.b64decode(text, validate=True)), kind)
    return little.astype(little.dtype.newbyteorder("="), copy=False)


def _shown(value: object) -> str:
    return repr(value)[:60]
