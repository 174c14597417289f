"""Rows of a file as columns of bytes, and their checksums.

A CRC-32 beside each row shows damage that the file system does not report.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final


def content_checksum(item_id: bytes, vector: bytes, payload: bytes | None) -> int:
    """Return the CRC-32 of an item as it is stored, its sequence number and codes left out."""
    size = -1 if payload is None else len(payload)
    head = zlib.crc32(b"%d %d %d %b" % (len(item_id), len(vector), size, item_id))
    found = zlib.crc32(vector, head)
    return zlib.crc32(payload, found) if payload else found


def codes_checksum(codes: bytes) -> int:
    """Return the CRC-32 of an item's codes, which its vector gives again."""
    return zlib.crc32(codes)


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Columns of rows as they are written and read, all of one length, and their checksums.

    ``sequences`` is empty where the store numbers the rows itself.
    """

    ids: Sequence[str]
    vectors: Sequence[bytes]
    codes: Sequence[bytes]
    payloads: Sequence[bytes | None]
    sequences: Sequence[int] = ()
    checksums: Sequence[int] = field(init=False)
    codes_checksums: Sequence[int] = field(init=False)

    def __post_init__(self) -> None:
        """Compute the checksums, while no other write waits for it."""
        columns = zip(self.ids, self.vectors, self.payloads, strict=True)
        checksums = [
            content_checksum(item_id.encode(), vector, payload)
            for item_id, vector, payload in columns
        ]
        object.__setattr__(self, "checksums", checksums)
        object.__setattr__(self, "codes_checksums", [*map(zlib.crc32, self.codes)])

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """How far a load has come that was sent under a key.

    changed: seconds since 1970.
    """

    key: str
    changed: int
    progress: str

    @property
    def checksum(self) -> int:
        """Of all three."""
        return text_checksum("\n".join((self.key, str(self.changed), self.progress)))


def name_checksum(coordinate: int, name: str) -> int:
    """Return the CRC-32 of a coordinate's name."""
    return text_checksum(f"{coordinate} {name}")


_NO_ROWS: Final = RowBatch((), (), (), ())


@dataclass(slots=True)
class Change:
    """Rows to be removed, by sequence number, and rows to be put after that.

    ``names`` are coordinates and names that are new with the rows; ``load`` says how far a load has
    come by them; ``next_id`` follows the numbers that rows without ids were given, None where all
    had one.
    """

    removed: Sequence[int] = ()
    rows: RowBatch = _NO_ROWS
    names: Sequence[tuple[int, str]] = ()
    load: LoadRecord | None = None
    next_id: int | None = None

    @property
    def is_one_row(self) -> bool:
        """Whether it is a new row, and no more."""
        is_more = self.removed or self.names or self.load or self.next_id is not None
        return len(self.rows.ids) == 1 and not is_more

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return not (self.removed or self.rows.ids or self.load)


@dataclass(frozen=True, slots=True)
class Record:
    """One row without its codes."""

    sequence: int
    id: str
    vector: bytes
    payload: bytes | None


ReplaceCodes = Callable[[Sequence[int], Sequence[bytes]], None]
"""Takes sequence numbers of rows and the new codes of each."""


def backend_checksum(name: str, kind: str, params: str) -> int:
    """Return the CRC-32 of a comparison backend, what is kept of its index left out."""
    return text_checksum("\n".join(map(str, (name, kind, params))))


def text_checksum(text: str) -> int:
    """Return the CRC-32 of a text."""
    return zlib.crc32(text.encode())
