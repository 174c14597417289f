"""``.npy``, versions 1 to 3: rows by the buffer, never one by one in Python."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from gcws_search import index as ix
from gcws_search.index import AnyArray
from gcws_search.service.guards.limits import Limits, require_count
from gcws_search.service.http.errors import BodyTooLarge, MalformedBody
from gcws_search.service.ingest import formats
from gcws_search.service.ingest.rows import DenseRows, ItemRows
from gcws_search.service.ingest.source import ByteReader

_MAGIC: Final = b"\x93NUMPY"
_LENGTH_BYTES: Final = {1: 2, 2: 4, 3: 4}
_MAX_HEADER_BYTES: Final = 1 << 16
_KEYS: Final = {"descr", "fortran_order", "shape"}
_NUMBERS: Final = re.compile(r"[<>=|]?[fiu]\d{1,2}")
_MATRIX: Final = 2


@dataclass(frozen=True, slots=True)
class Header:
    """What the head of a file says: ``shape`` (n, dim), type, and the order of the bytes."""

    shape: tuple[int, int]
    dtype: np.dtype[np.generic]
    fortran_order: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.shape[1] * self.dtype.itemsize


def read_header(reader: ByteReader, limits: Limits) -> Header:
    """Read the head of a file.

    Raises
    ------
    MalformedBody
        It is none, or cut short.
    InvalidVector
        The array is not two-dimensional, not of numbers, or its rows are too long.
    """
    magic = reader.read(len(_MAGIC) + 2)
    if magic[: len(_MAGIC)] != _MAGIC or len(magic) != len(_MAGIC) + 2:
        raise MalformedBody(f"expected .npy data, got {_described(bytes(magic))}")
    length_bytes = _LENGTH_BYTES.get(magic[-2])
    if length_bytes is None:
        raise MalformedBody(f"expected .npy of version 1 to 3, got version {magic[-2]}")
    length = int.from_bytes(_exactly(reader, length_bytes), "little")
    if length > _MAX_HEADER_BYTES:
        raise MalformedBody(f"expected a header of at most {_MAX_HEADER_BYTES} bytes, got {length}")
    coded = "utf-8" if magic[-2] > _MATRIX else "latin-1"
    header = _parsed(_exactly(reader, length).decode(coded))
    require_count(header.shape[1], limits)
    return header


def _described(start: bytes) -> str:
    if start and _MAGIC.startswith(start[: len(_MAGIC)]):
        return "a body that ends inside the first bytes"
    return formats.described(start)


def _exactly(reader: ByteReader, size: int) -> bytearray:
    data = reader.read(size)
    if len(data) != size:
        raise MalformedBody("expected a whole .npy header, the body ended inside it")
    return data


def _parsed(text: str) -> Header:
    try:
        fields = ast.literal_eval(text.strip())
        if set(fields) != _KEYS or not isinstance(fields["fortran_order"], bool):
            raise ValueError(text)
        shape = tuple(fields["shape"])
        if any(type(length) is not int or length < 0 for length in shape):
            raise ValueError(text)
        descr = str(fields["descr"])
        dtype = np.dtype(descr) if _NUMBERS.fullmatch(descr) else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, UnicodeError):
        raise MalformedBody(f"expected an .npy header, got {text[:80]!r}") from None
    if dtype is None:
        raise ix.InvalidVector(expected="an array of floats or integers", got=descr[:80])
    if len(shape) != _MATRIX:
        raise ix.InvalidVector(expected="an array of two dimensions", got=f"{len(shape)}")
    if shape[0] and not shape[1]:
        raise ix.InvalidVector(expected="rows of at least one value", got=f"shape {shape}")
    return Header((shape[0], shape[1]), dtype, fields["fortran_order"])


def _allocate(header: Header, rows: int) -> AnyArray:
    return np.empty((rows, header.shape[1]), header.dtype)


def read_matrix(reader: ByteReader, limits: Limits, *, max_bytes: int) -> AnyArray:
    """Return a whole file's array, of either order.

    Raises
    ------
    MalformedBody, InvalidVector, BodyTooLarge
    """
    header = read_header(reader, limits)
    rows, columns = header.shape
    if rows * header.row_bytes > max_bytes:
        raise BodyTooLarge(max_bytes, "an array")
    array = _allocate(header, rows)
    _fill(reader, array, header, 0)
    _require_end(reader, rows)
    if header.fortran_order:
        return array.reshape(-1).reshape(columns, rows).T
    return array


def _fill(reader: ByteReader, out: AnyArray, header: Header, first: int) -> None:
    if not out.size:
        return
    got = reader.readinto(out.reshape(-1).view(np.uint8).data)
    if got != out.nbytes:
        row = first + got // header.row_bytes
        raise MalformedBody(f"expected {header.shape[0]} rows, the body ended in row {row}")


def _require_end(reader: ByteReader, rows: int) -> None:
    if reader.read(1):
        raise MalformedBody(f"expected the body to end after {rows} rows, got more bytes")


@dataclass(frozen=True, slots=True)
class NpyRows:
    """The chunks of an ``.npy`` body.

    Parameters
    ----------
    limits : Limits
    id_start : int
        Id of the first row; the others count on.
    chunk_rows, chunk_bytes, max_row_bytes : int
    """

    reader: ByteReader
    limits: Limits
    id_start: int
    chunk_rows: int
    chunk_bytes: int
    max_row_bytes: int

    def __iter__(self) -> Iterator[ItemRows]:
        """Yield chunks of rows.

        Raises
        ------
        MalformedBody, InvalidVector, BodyTooLarge
        """
        header = read_header(self.reader, self.limits)
        total, columns = header.shape
        if header.fortran_order and total > 1 and columns > 1:
            raise ix.InvalidVector(
                expected="an array in C order, which can be read row by row", got="Fortran order"
            )
        if header.row_bytes > self.max_row_bytes:
            raise BodyTooLarge(self.max_row_bytes, "a row")
        size = max(1, min(self.chunk_rows, self.chunk_bytes // max(1, header.row_bytes)))
        for first in range(0, total, size):
            array = _allocate(header, min(size, total - first))
            _fill(self.reader, array, header, first)
            last = first + len(array)
            if last == total:
                _require_end(self.reader, total)
            start = self.id_start + first
            yield ItemRows(
                numbers=np.arange(first, last),
                ids=list(map(str, range(start, start + len(array)))),
                payloads=[None] * len(array),
                vectors=DenseRows(array),
            )
        if not total:
            _require_end(self.reader, 0)
