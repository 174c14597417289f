"""Rows as a store takes and gives them: columns of bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gcws_search.index.storage.checksums import codes_checksum, content_checksums


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Columns of rows to be put, all of one length, and the checksums they are kept with."""

    ids: Sequence[str]
    vectors: Sequence[bytes]
    codes: Sequence[bytes]
    payloads: Sequence[bytes | None]
    checksums: Sequence[int] = field(init=False)
    codes_checksums: Sequence[int] = field(init=False)

    def __post_init__(self) -> None:
        """Compute the checksums, while no other write waits for it."""
        checksums = content_checksums(self.ids, self.vectors, self.payloads)
        object.__setattr__(self, "checksums", checksums)
        object.__setattr__(self, "codes_checksums", [*map(codes_checksum, self.codes)])


@dataclass(frozen=True, slots=True)
class Change:
    """Rows to be removed, by key, and rows to be put after that."""

    gone: Sequence[int]
    rows: RowBatch


@dataclass(frozen=True, slots=True)
class Chunk:
    """Columns of consecutive rows as read, in order of their keys."""

    keys: Sequence[int]
    ids: Sequence[str]
    vectors: Sequence[bytes]
    codes: Sequence[bytes]
    payloads: Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class Record:
    """One row without its codes."""

    key: int
    id: str
    vector: bytes
    payload: bytes | None


ReplaceCodes = Callable[[Sequence[int], Sequence[bytes]], None]
"""Takes keys of rows and the new codes of each."""
