"""Segments: immutable files of vectors that items of the database refer to.

A segment is a concatenation of vectors as clients sent them, of any shards and independent of
weights. The other columns of an item stay in the database. Its checksum there is compared when a
vector is read from a segment.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Final, TypeAlias

from gcws_search import index as ix
from gcws_search.formats.stores import StoredPath, StoreFailed, stored_path
from gcws_search.service.cluster.contract import Epoch, Row
from gcws_search.service.errors import StoreUnavailable

COLUMNS: Final = """
    key, id, vector, payload, checksum, version, expires, place, length,
    (SELECT s.file FROM segments AS s WHERE s.number = segment)
"""
"""Of items, as `Segments.rows` takes them."""
_GAP_BYTES: Final = 1 << 17  # parts of a file with smaller gaps are read together
_READS_AT_ONCE: Final = 16  # parallel reads of an object store


Part: TypeAlias = tuple[str, int, int]
"""Where the vector of an item is: the file, its first byte, and the one behind it."""


class Unread(Exception):  # no failure
    """Vectors have to be read from segments first."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__()
        self.parts = parts


class Segments:
    """Reads vectors from segments; any thread.

    ``address``: the folder or object store of all bases and segments; None: unknown. It is first
    opened when a vector is read.
    """

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._noted: set[str] = set()  # recorded by `note_use`

    @cached_property
    def root(self) -> StoredPath:
        """The place of the address; StoreUnavailable if it is unknown."""
        if not self._address:
            raise StoreUnavailable(
                "vectors were moved out of it: expected GCWS_BASE, the folder or the address of"
                " an object store that has them, got none"
            )
        try:
            return stored_path(self._address)
        except StoreFailed as error:
            raise StoreUnavailable(f"GCWS_BASE: {error}") from None

    def note_use(self, folder: str, epoch: Epoch) -> None:
        """Record that a database refers to segments of a folder in an epoch."""
        if (note := f"segments/{folder}/uses/{epoch.stamp}") not in self._noted:
            (self.root / note).write([f"database {epoch.cluster}, {epoch}\n".encode()])
            self._noted.add(note)

    def require_only(self, folder: str, stamps: Collection[str]) -> None:
        """Raise StoreFailed if segments of a folder are referred to in other epochs."""
        for note in (self.root / f"segments/{folder}/uses").files():
            if note.name.removesuffix(".part") not in stamps:  # a note that is being written
                words = "a successor or an adopted copy of this database may need its segments"
                raise StoreFailed(errno.EBUSY, words, str(note))

    def rows(
        self,
        number: int,
        found: Sequence[tuple[Any, ...]],
        known: Mapping[Part, bytes | Exception] | None = None,  # of `try_read`; None: read them
    ) -> list[Row]:
        """Return the items of a collection with their vectors from their `COLUMNS`.

        DamagedFile if one differs from what was written; StoreUnavailable if a segment cannot be
        read; Unread if a vector is not in ``known``.
        """
        parts = [_part(number, row) for row in found if row[2] is None]
        if known is None:
            known = dict(zip(parts, self._read(parts), strict=True))
        elif unknown := [part for part in parts if part not in known]:
            raise Unread(unknown)
        read = map(known.__getitem__, parts)
        rows = []
        for key, item_id, own, payload, checksum, version, expires, _, _, file in found:
            vector = next(read) if own is None else own
            if isinstance(vector, Exception):
                raise vector
            if ix.content_checksum(item_id, vector, payload) != checksum:
                name = str(number) if own is not None else file
                reason = f"row {key} of the database is damaged"
                raise ix.DamagedFile(name, reason)
            rows.append(Row(key, item_id.decode(), vector, payload, version, expires))
        return rows

    def try_read(self, parts: Sequence[Part]) -> dict[Part, bytes | Exception]:
        """Return the bytes of parts; if some cannot be read, the error for all of them."""
        try:
            return dict(zip(parts, self._read(parts), strict=True))
        except (StoreUnavailable, ix.DamagedFile) as error:
            return dict.fromkeys(parts, error)

    def _read(self, parts: Sequence[Part]) -> list[bytes]:
        """Return the bytes of parts; parts close to each other are read together."""
        if not parts:
            return []
        by_file = dict[str, list[tuple[int, int, int]]]()
        for number, (file, start, end) in enumerate(parts):
            by_file.setdefault(file, []).append((start, end, number))
        files, starts, ends, span_of = list[str](), list[int](), list[int](), [0] * len(parts)
        for file, found in by_file.items():
            last = -_GAP_BYTES - 1
            for start, end, number in sorted(found):
                if start > last + _GAP_BYTES:
                    files.append(file)
                    starts.append(start)
                    ends.append(end)
                ends[-1] = last = max(ends[-1], end)
                span_of[number] = len(ends) - 1
        if self.root.is_local:
            spans = [*map(self._read_span, files, starts, ends)]
        else:
            with ThreadPoolExecutor(min(_READS_AT_ONCE, len(files))) as threads:
                spans = [*threads.map(self._read_span, files, starts, ends)]
        return [
            spans[span][start - starts[span] : end - starts[span]]
            for span, (_, start, end) in zip(span_of, parts, strict=True)
        ]

    def _read_span(self, file: str, start: int, end: int) -> bytes:
        try:
            data = (self.root / file).read_range(start, end - start)
        except StoreFailed as error:
            raise StoreUnavailable(str(error)) from error
        if len(data) < end - start:
            reason = f"expected {end} bytes or more, got {start + len(data)}"
            raise ix.DamagedFile(file, reason)
        return data


def _part(number: int, row: tuple[Any, ...]) -> Part:
    """Return the location of a vector that is not in the database."""
    *_, place, length, file = row
    if file is None:
        reason = f"row {row[0]} of the database has no vector, nor a segment that has it"
        raise ix.DamagedFile(str(number), reason)
    return file, place, place + length
