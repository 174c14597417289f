"""Links of the neighbour graph as stored in a file.

Rows are named by sequence number, because row numbers change at a compaction or a restart. A part
holds the rows of `PART_SEQUENCES` sequence numbers; it is decoded and verified by itself. Parts
are written at different times, so a part may name deleted rows, and lack rows inserted later. The
lists of deleted rows stay in the file as long as they are in memory. So the next start finds the
rows behind them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, Int32s, Int64s, UInt8s, growable
from gcws_search.index.contracts.saved_index import NO_ROW, UNKNOWN

PART_SEQUENCES: Final = 1024
"""Part p holds rows from sequence number p × PART_SEQUENCES to (p + 1) × PART_SEQUENCES − 1."""

_MAGIC: Final = b"GWL1"
_HEAD: Final = struct.Struct("<4s4I")
"""Magic, bytes a sequence number, rows, entries a row, checksum of what is before and after it."""
_CHECKSUM: Final = struct.Struct("<I")
_NUMBER_TYPES: Final[dict[int, np.dtype[Any]]] = {4: np.dtype("<u4"), 8: np.dtype("<i8")}
_NO_SEQUENCE: Final = 0  # sequence numbers start at 1
MAX_ENTRIES: Final = 64
"""No row has more links: memory for all of them is reserved by the widest part."""
MAX_SEQUENCE: Final = 1 << 62
"""No sequence number is beyond it."""
_PARTS_AT_A_TIME: Final = 16
"""2 MB of links, which fit into a cache."""
_TABLE_ENTRIES_A_ROW: Final = 16  # largest table for looking up rows, in entries per row


@dataclass(frozen=True, slots=True)
class Part:
    """The links of some rows.

    sequences: (m,) uint32 or int64, ascending.
    named: (m, R) uint32 or int64, the sequence numbers in a row's list, 0 for none.
    """

    sequences: AnyArray
    named: AnyArray


def parts_of(sequences: Int64s) -> list[int]:
    """Return the numbers of the parts that have the rows, ascending."""
    found: list[int] = np.unique(sequences // PART_SEQUENCES).tolist()
    return found


def rows_of_part(part: int, sequences: Int64s) -> slice:
    """Return which of the (n,) ascending sequence numbers are in a part."""
    borders = [min(max(each * PART_SEQUENCES, 0), MAX_SEQUENCE) for each in (part, part + 1)]
    start, stop = np.searchsorted(sequences, np.array(borders, np.int64)).tolist()
    return slice(start, stop)


def pack(rows: slice, sequences: Int64s, alive: UInt8s, own_links: Int32s) -> bytes | None:
    """Return a part's bytes, None if none of its rows has a list; dead rows only if it names some.

    rows: the part's rows, from `rows_of_part`.
    sequences: (n,) int64, of all rows, ascending.
    alive: (n,) uint8.
    own_links: (m, R) int32, row numbers, for each of the part's rows, in the form of
        `saved_index.SavedIndex`.
    """
    known = (own_links[:, 0] != UNKNOWN) & (alive[rows].view(np.bool_) | (own_links[:, 0] >= 0))
    own_links = own_links[known]
    if not len(own_links):
        return None
    named = np.where(own_links >= 0, sequences[own_links], _NO_SEQUENCE)
    own = sequences[rows][known]
    width = 4 if max(int(named.max()), int(own[-1])) < 1 << 32 else 8
    stored = _NUMBER_TYPES[width]
    body: bytes = own.astype(stored).tobytes() + named.astype(stored).tobytes()
    head = _HEAD.pack(_MAGIC, width, *own_links.shape, 0)[: -_CHECKSUM.size]
    return head + _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))) + body


def unpack(number: int, data: bytes) -> Part:
    """Inverse of `pack` for a part number; ValueError if the bytes are not such a part.

    The named sequence numbers are in the valid range, but rows with them may not exist.
    """
    if not isinstance(data, bytes):
        raise ValueError("no bytes")
    if len(data) < _HEAD.size:
        raise ValueError(f"{len(data)} bytes are too few")
    magic, width, rows, entries, checksum = _HEAD.unpack_from(data)
    head, body = data[: _HEAD.size - _CHECKSUM.size], memoryview(data)[_HEAD.size :]
    if magic != _MAGIC:
        raise ValueError("not a part of a graph")
    if zlib.crc32(body, zlib.crc32(head)) != checksum:
        raise ValueError("the checksum does not match")
    if width not in _NUMBER_TYPES:
        raise ValueError(f"sequence numbers of {width} bytes")
    if not (1 <= rows <= PART_SEQUENCES and 1 <= entries <= MAX_ENTRIES):
        raise ValueError(f"{rows} rows of {entries} entries")
    if len(body) != rows * (1 + entries) * width:
        raise ValueError(f"{len(body)} bytes are not {rows} rows of {entries} entries")
    values = np.frombuffer(body, _NUMBER_TYPES[width])
    part = Part(values[:rows], values[rows:].reshape(rows, entries))
    _check_sequences(number, part)
    return part


def _check_sequences(number: int, part: Part) -> None:
    """Raise ValueError unless rows ascend within the part, each linked once to other rows."""
    sequences, named = part.sequences, part.named
    if (sequences[1:] <= sequences[:-1]).any():
        raise ValueError("sequence numbers are not increasing")
    lowest, end = max(1, number * PART_SEQUENCES), (number + 1) * PART_SEQUENCES
    if not lowest <= sequences[0] <= sequences[-1] < end:
        raise ValueError("sequence numbers of another part")
    if int(named.min()) < _NO_SEQUENCE or int(named.max()) >= MAX_SEQUENCE:
        raise ValueError("a list has an invalid sequence number")


def join_parts(sequences: Int64s, parts: Iterable[Part]) -> tuple[Int32s, Int32s]:
    """Return the links of rows with these sequence numbers, and of deleted rows behind them.

    The first is (n, R) in the form of `index.contracts.saved_index.SavedIndex`, but a number from n
    on is a deleted row; R is that of the widest part. The second is (g, R), the lists of rows n to
    n + g - 1, empty for rows without a list in the file.
    """
    links = growable((len(sequences), 0), np.int32)
    numbers = _RowNumbers(sequences)
    deleted = []
    for part in _in_batches(parts):
        if part.named.shape[1] > links.shape[1]:
            links = _widen(links, part.named.shape[1])
        rows, own_links = numbers.of(part.sequences), numbers.of(part.named)
        _close_gaps(own_links)
        remains = rows < len(sequences)
        links[rows[remains], : own_links.shape[1]] = own_links[remains]
        if not remains.all():
            deleted.append((rows[~remains], own_links[~remains]))
    if not links.shape[1]:
        links = _widen(links, 1)
    lists = np.full((numbers.deleted, links.shape[1]), NO_ROW, np.int32)
    for rows, own_links in deleted:
        lists[rows - len(sequences), : own_links.shape[1]] = own_links
    return links, lists


class _RowNumbers:
    """Rows by sequence number; deleted rows are numbered in the order in which they are met.

    sequences: (n,) int64, of the rows, ascending.
    """

    def __init__(self, sequences: Int64s) -> None:
        self._rows_of = _lookup(sequences)
        self._count = len(sequences)
        self._deleted = np.empty(0, np.int64)  # ascending
        self._numbers = np.empty(0, np.int32)

    @property
    def deleted(self) -> int:
        """Number of deleted rows met so far."""
        return len(self._deleted)

    def of(self, wanted: AnyArray) -> Int32s:
        """Return the row of each sequence number; n or more if deleted, NO_ROW for none."""
        found = self._rows_of(wanted)
        missing = (found < 0) & (wanted != _NO_SEQUENCE)
        if missing.any():
            found[missing] = self._of_deleted(wanted[missing].astype(np.int64))
        return found

    def _of_deleted(self, wanted: Int64s) -> Int32s:
        new = np.setdiff1d(wanted, self._deleted)
        places = np.searchsorted(self._deleted, new)
        first = self._count + self.deleted
        self._deleted = np.insert(self._deleted, places, new)
        self._numbers = np.insert(self._numbers, places, np.arange(first, first + len(new)))
        return self._numbers[np.searchsorted(self._deleted, wanted)]


def _in_batches(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield up to `_PARTS_AT_A_TIME` consecutive parts of one width as one part.

    Another thread maps ids to rows in Python meanwhile, and each short call waits for it.
    """
    remaining = iter(parts)
    while batch := [*islice(remaining, _PARTS_AT_A_TIME)]:
        for _, group in groupby(batch, lambda part: part.named.shape[1]):
            same_width = [*group]
            yield Part(
                np.concatenate([part.sequences for part in same_width]),
                np.concatenate([part.named for part in same_width]),
            )


def _widen(links: Int32s, width: int) -> Int32s:
    """Return (n, R) links as (n, width) links; rows without an entry are unknown."""
    wider = growable((len(links), width), np.int32)
    wider.fill(NO_ROW)
    if links.shape[1]:
        wider[:, : links.shape[1]] = links
    else:
        wider[:, 0] = UNKNOWN
    return wider


def _lookup(sequences: Int64s) -> Callable[[AnyArray], Int32s]:
    """Return a function from sequence numbers to rows; NO_ROW if there is no row."""
    count = len(sequences)
    last = int(sequences[-1]) if count else 0
    if last <= _TABLE_ENTRIES_A_ROW * count:
        table = np.full(last + 2, NO_ROW, np.int32)  # the last entry is for all greater numbers
        table[sequences] = np.arange(count, dtype=np.int32)
        return lambda wanted: table.take(wanted, mode="clip")
    padded = np.append(sequences, np.iinfo(np.int64).max)

    def search(wanted: AnyArray) -> Int32s:
        places = np.searchsorted(padded, wanted)
        return np.where(padded[places] == wanted, places, NO_ROW).astype(np.int32)

    return search


def _close_gaps(own_links: Int32s) -> None:
    """Move the rows of each list to its front, in place and in order."""
    none = own_links < 0
    gaps = (none[:, :-1] & ~none[:, 1:]).any(axis=1)
    order = np.argsort(none[gaps], axis=1, kind="stable")
    own_links[gaps] = np.take_along_axis(own_links[gaps], order, axis=1)
