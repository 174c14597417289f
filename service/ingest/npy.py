"""``.npy``, versions 1 to 3: rows are read as buffers, never one by one in Python."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from tokenize import TokenError
from typing import Final

import numpy as np
from numpy.lib import format as npy

from gcws_search import index as ix
from gcws_search.index import AnyArray
from gcws_search.service.errors import BodyTooLarge, MalformedBody
from gcws_search.service.ingest import formats
from gcws_search.service.ingest.source import ByteReader, ItemRows
from gcws_search.service.limits import require_at_most, require_count
from gcws_search.service.settings import Settings

_MAGIC: Final = b"\x93NUMPY"
_READERS: Final = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
    # Another encoding, which only concerns names of fields.
    (3, 0): npy.read_array_header_2_0,
}
_UNREADABLE: Final = (ValueError, TypeError, SyntaxError, TokenError, MemoryError, RecursionError)
"""What numpy raises at a head that is none."""
_MAX_HEADER_BYTES: Final = 1 << 16
_MATRIX: Final = 2


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file: ``shape`` (n, dim), type, and byte order."""

    shape: tuple[int, int]
    dtype: np.dtype[np.generic]
    fortran_order: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.shape[1] * self.dtype.itemsize


def read_header(reader: ByteReader, settings: Settings, *, is_one: bool = False) -> Header:
    """Read the header of a file; if ``is_one``, an array of one dimension is a row.

    MalformedBody: invalid, or truncated. InvalidVector: no matrix of numbers.
    """
    magic = bytes(reader.read(npy.MAGIC_LEN))
    if len(magic) < npy.MAGIC_LEN or not magic.startswith(_MAGIC):
        raise MalformedBody(f"expected .npy data, got {_start_words(magic)}")
    version = magic[-2], magic[-1]
    read = _READERS.get(version)
    if read is None:
        raise MalformedBody(f"expected .npy of version 1 to 3, got version {version[0]}")
    length = reader.read(2 if version == (1, 0) else 4)
    try:
        if int.from_bytes(length, "little") > _MAX_HEADER_BYTES:
            raise ValueError(f"expected at most {_MAX_HEADER_BYTES} bytes")
        head = bytes(length + reader.read(int.from_bytes(length, "little")))
        shape, fortran_order, dtype = _parse_head(read, head)
    except _UNREADABLE as error:
        text = str(error).partition("\n")[0][:80]
        raise MalformedBody(f"expected an .npy header, got another: {text}") from None
    if is_one and len(shape) == 1:
        shape = (1, *shape)
    header = _header(shape, dtype, fortran_order)
    require_count(header.shape[1], settings)
    return header


@lru_cache(maxsize=64)
def _parse_head(
    read: Callable[..., tuple[tuple[int, ...], bool, np.dtype[np.generic]]], head: bytes
) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return shape, order and type of a header; cached: most are equal, parsing takes 45 µs."""
    return read(io.BytesIO(head), _MAX_HEADER_BYTES)


def _start_words(start: bytes) -> str:
    if start and _MAGIC.startswith(start[: len(_MAGIC)]):
        return "a body that ends inside the first bytes"
    return formats.start_words(start)


def _header(shape: tuple[int, ...], dtype: np.dtype[np.generic], fortran_order: bool) -> Header:
    if any(type(length) is not int or length < 0 for length in shape):
        raise MalformedBody(f"expected an .npy header, got one with the shape {shape}"[:120])
    if dtype.kind not in "fiub" or dtype.hasobject:
        raise ix.InvalidVector(
            expected="an array of floats, integers or bools", got=str(dtype)[:80]
        )
    if len(shape) != _MATRIX:
        raise ix.InvalidVector(expected="an array of two dimensions", got=f"{len(shape)}")
    if shape[0] and not shape[1]:
        raise ix.InvalidVector(expected="rows of at least one value", got=f"shape {shape}")
    return Header((shape[0], shape[1]), dtype, fortran_order)


def read_matrix(
    reader: ByteReader, settings: Settings, *, max_bytes: int, is_one: bool = False
) -> AnyArray:
    """Return a whole file's array, of either order; if ``is_one``, it may have one dimension."""
    header = read_header(reader, settings, is_one=is_one)
    require_at_most(header.shape[0], settings.max_queries_per_request, "queries")
    if header.shape[0] * header.row_bytes > max_bytes:
        raise BodyTooLarge(max_bytes, "an array")
    return _whole(reader, header)


def _whole(reader: ByteReader, header: Header) -> AnyArray:
    rows, columns = header.shape
    array = _read(reader, header, rows, 0)
    _require_end(reader, rows)
    if header.fortran_order:
        return array.reshape(-1).reshape(columns, rows).T
    return array


def _read(reader: ByteReader, header: Header, rows: int, first: int) -> AnyArray:
    array = np.empty((rows, header.shape[1]), header.dtype)
    if array.size:
        got = reader.readinto(array.reshape(-1).view(np.uint8).data)
        if got != array.nbytes:
            row = first + got // header.row_bytes
            raise MalformedBody(f"expected {header.shape[0]} rows, the body ended in row {row}")
    # A byte of a body may have other values than 0 and 1, which numpy assumes.
    return array.view(np.uint8) != 0 if header.dtype == np.bool_ else array


def _require_end(reader: ByteReader, rows: int) -> None:
    if reader.read(1):
        raise MalformedBody(f"expected the body to end after {rows} rows, got more bytes")


def read_npy(reader: ByteReader, settings: Settings, id_start: int | None) -> Iterator[ItemRows]:
    """Yield the chunks of an ``.npy`` body; ids count up from ``id_start``, if given."""
    header = read_header(reader, settings)
    if header.row_bytes > settings.max_line_bytes:
        raise BodyTooLarge(settings.max_line_bytes, "a row")
    step = max(
        1, min(settings.load_chunk_rows, settings.load_chunk_bytes // max(1, header.row_bytes))
    )
    total, whole = header.shape[0], None
    if header.fortran_order and min(header.shape) > 1:  # a row is complete only at the end
        if (size := total * header.row_bytes) > settings.max_arrow_batch_bytes:
            raise ix.InvalidVector(
                expected=f"an array in C order, or one in Fortran order of at most "
                f"{settings.max_arrow_batch_bytes} bytes (numpy.ascontiguousarray makes one in C "
                "order)",
                got=f"Fortran order and {size} bytes",
            )
        whole = _whole(reader, header)
    elif not total:
        _require_end(reader, 0)
    for first in range(0, total, step):
        last = min(first + step, total)
        if whole is not None:
            array = whole[first:last]
        else:
            array = _read(reader, header, last - first, first)
            if last == total:
                _require_end(reader, total)
        ids: list[str | None] = [None] * len(array)
        if id_start is not None:
            ids = [*map(str, range(id_start + first, id_start + last))]
        vectors = ix.InputVectors(array)
        yield ItemRows(np.arange(first, last), ids, [None] * len(array), vectors, size=reader.taken)
