"""Salvage: read the intact parts of a damaged file, row by row if pages are unreadable."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gcws_search.index.storage import schema
from gcws_search.index.storage.connection import connect, require_damage, sql_errors
from gcws_search.index.storage.schema import BackendRecord, LoadRecord, name_checksum
from gcws_search.index.storage.store import MetaName

_PROBLEMS: Final = 20


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A row as stored in the file, intact or not."""

    sequence: int
    id: bytes
    vector: bytes
    codes: bytes
    payload: bytes | None
    version: int
    expires: int | None
    checksum: int
    codes_checksum: int


class Salvage:
    """Reads a file that no other process has open.

    skips_unreadable: whether data that the disk cannot read counts as damaged.
    Raises DamagedFile (the file cannot even be opened), DiskFull, OutOfDescriptors, StorageFailed,
        DirectoryLocked. Every method may raise the last four: they are not damage.
    """

    def __init__(self, path: Path, name: str, *, skips_unreadable: bool = True) -> None:
        self._skips_unreadable = skips_unreadable
        self._path = path
        self._name = name
        with sql_errors(name, path):
            self._connection = connect(path, "trusted_schema = OFF")

    def _require_damage(self, error: sqlite3.Error) -> None:
        require_damage(error, self._name, self._path, unreadable_is_damage=self._skips_unreadable)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def problems(self) -> list[str]:
        """Return the problems that SQLite finds in the file's pages and indexes."""
        try:
            found = self._connection.execute(f"PRAGMA integrity_check({_PROBLEMS})").fetchall()
        except sqlite3.Error as error:
            self._require_damage(error)
            return [str(error)]
        return [line for (text,) in found for line in str(text).splitlines() if line != "ok"]

    def ids(self) -> dict[int, str]:
        """Return the ids in the file's index of ids, by sequence number."""
        return dict(self._all(schema.READ_IDS))

    def rows(self, last_sequence: int) -> Iterator[list[FoundRow]]:
        """Yield all readable rows in order of sequence numbers, in lists.

        last_sequence: no row has a greater sequence number.
        """
        after = 0
        while True:
            try:
                rows = self._connection.execute(schema.SALVAGE_SOME, (after,)).fetchall()
                if not rows:
                    return
            except sqlite3.Error as error:
                self._require_damage(error)
                if after >= last_sequence:
                    return
                stop = min(after + schema.SALVAGED_ROWS, last_sequence)
                rows = [
                    row for sequence in range(after + 1, stop + 1) for row in self._one(sequence)
                ]
                after = stop
            else:
                after = rows[-1][0]
            yield [FoundRow(*row) for row in rows]

    def _one(self, sequence: int) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(schema.SALVAGE_ONE, (sequence,)).fetchall()
        except sqlite3.Error as error:
            self._require_damage(error)
            return []

    def links(self) -> list[tuple[int, bytes]]:
        """Return the readable parts of links."""
        return self._all(schema.READ_LINKS)

    def meta(self, name: MetaName) -> str | None:
        """Return the metadata under a name; None if it is absent or unreadable."""
        found = self._all(schema.READ_META, (name,))
        return found[0][0] if found else None

    def backends(self) -> Iterator[tuple[BackendRecord, bool]]:
        """Yield the readable comparison backends, and whether each matches its checksum."""
        for name, kind, params, notes, checksum in self._all(schema.READ_BACKENDS):
            record = BackendRecord(name, kind, params, notes)
            yield record, record.checksum == checksum

    def loads(self) -> Iterator[tuple[LoadRecord, bool]]:
        """Yield the readable loads with keys, and whether each matches its checksum."""
        for key, changed, progress, checksum in self._all(schema.SALVAGE_LOADS):
            record = LoadRecord(key, changed, progress)
            yield record, record.checksum == checksum

    def names(self) -> Iterator[tuple[int, str, bool]]:
        """Yield the readable names of coordinates, and whether each matches its checksum."""
        for coordinate, name, checksum in self._all(schema.READ_NAMES):
            yield coordinate, name, name_checksum(coordinate, name) == checksum

    def _all(self, statement: str, parameters: Sequence[str] = ()) -> list[Any]:
        """Return the rows before the first unreadable one."""
        found = []
        try:
            for row in self._connection.execute(statement, parameters):
                found.append(row)  # rows before an error are kept
        except sqlite3.Error as error:
            self._require_damage(error)
        return found
