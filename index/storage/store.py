"""The SQLite file of one collection: reads and writes rows of bytes, one transaction per write.

Each row put gets the next sequence number, which is never reused. An updated item gets a new one,
so rows ordered by sequence number are in insertion order.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from gcws_search.index.contracts.errors import (
    CollectionNotFound,
    DamagedFile,
    DiskFull,
    GcwsError,
    IncompatibleFile,
    OutOfDescriptors,
    StorageFailed,
    StoreError,
)
from gcws_search.index.contracts.saved_index import with_checksum
from gcws_search.index.storage import schema
from gcws_search.index.storage.connection import (
    MEMORY,
    Durability,
    change_settings,
    connect,
    leave_open,
    logged,
    sql_error,
    sql_errors,
    storage_error,
    storage_errors,
)
from gcws_search.index.storage.data_directory import bytes_of
from gcws_search.index.storage.lost_log import keep_lost_commits
from gcws_search.index.storage.opened_files import (
    FileChange,
    NamedFile,
    OpenedFiles,
    note_of,
    read_note,
    second_name,
    write_note,
)
from gcws_search.index.storage.schema import (
    OUTDATED,
    BackendRecord,
    Change,
    Identity,
    LoadRecord,
    Record,
    ReplaceCodes,
    RowBatch,
    check_mark,
    codes_checksum,
    content_checksum,
    create_tables,
    identity_of,
    life_checksum,
    mark,
    name_checksum,
    text_checksum,
)

MetaName = Literal["notes", "audit", "metadata", "next_id", "weights", "stamp"]
"""Notes of the index, what audits of queries found, what callers keep with the collection, the
number for the next item without an id, the weights that were learned."""

CHUNK_BYTES: Final = 1 << 20
"""Of rows that are read at a time, about."""
MAX_SEQUENCE: Final = 1 << 62
"""All sequence numbers are below it."""
_BACKGROUND_PAGES: Final = "wal_autocheckpoint = 500"
"""Half of what `write` lets the log grow to before it moves it into the file itself."""
_READING: Final = ("query_only = ON", "application_id")
"""The second reads, so that the log is opened with the file, not when its name may be another's."""
_MAX_ROWS_PER_CHUNK: Final = 1 << 11
"""With eight times as many, the tuples of a chunk leave the cache: reading took twice as long."""
_PARTS_A_READ: Final = 16
_log = logging.getLogger(__name__)

_LAST_NAMES: Final = "\U0010ffff" * 255
"""Behind a prefix: no name with that prefix is beyond it."""


class Store:
    """An open file; one thread at a time writes (the caller ensures it), any thread reads.

    One other thread may write links and notes at the same time. Writes raise DiskFull,
    DirectoryLocked, OutOfDescriptors, StorageFailed or DamagedFile; reads raise the last three.

    path: `MEMORY`: nothing is on disk, and all is lost when it is closed.
    durability: "full": a write is on disk when it returns; otherwise it survives only a crash of
        the process.
    identity: of a store in memory.
    owned: the lock file of the folder; writes stop if it is replaced.
    despite_note: whether to open a file that may lack acknowledged writes.
    Raises DamagedFile, IncompatibleFile.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        *,
        durability: Durability = "full",
        identity: Identity | None = None,
        owned: NamedFile | None = None,
        despite_note: bool = False,
    ) -> None:
        self.path = path
        self.name = name
        # A store in memory has one connection, which one thread uses at a time.
        self._reading = threading.RLock()
        self._alone = self._reading if path == MEMORY else nullcontext()
        with storage_errors(name):
            note = None if path == MEMORY or despite_note else read_note(path)
            is_link = path.is_symlink()
            second = "" if despite_note else second_name(path)
        if note is not None:
            raise DamagedFile(name, note)
        if second:
            raise IncompatibleFile(name, "a file with one name", second)
        if is_link:  # this process owns the folder of the link, not that of the file
            got = f"a symbolic link to {os.path.realpath(path)}; move that here, or link its folder"
            raise IncompatibleFile(name, "a file in the data folder", got)
        if path != MEMORY and not despite_note:
            with storage_errors(name):
                lost = keep_lost_commits(path)
            if lost is not None:
                _log.warning("collection %r: %s", name, lost)
        self._durability: Durability = durability
        self._owned = owned
        self._open(identity)
        self._file_change: FileChange | None = None  # a change of the files by another program
        self.background_connection: sqlite3.Connection | None = None
        self._refusal: Callable[[], GcwsError] | None = None
        self._in_doubt = False  # whether the log may have more than was acknowledged
        self._bytes = 0

    def _open(self, identity: Identity | None = None) -> None:
        """Open the file, or create it in memory."""
        path = self.path
        self._files: OpenedFiles | None = None
        with sql_errors(self.name, path):
            self.connection = connect(path)
            try:
                if identity is not None:
                    self.connection.execute("PRAGMA temp_store = MEMORY")
                    mark(self.connection)
                    create_tables(self.connection, identity)
                self._prepare()
                self._reader = self.connection if path == MEMORY else connect(path, *_READING)
            except BaseException:
                self.connection.close()
                raise
        try:
            if path != MEMORY:
                with storage_errors(self.name):
                    self._files = OpenedFiles(path, self._owned)
        except BaseException:
            self._reader.close()
            self.connection.close()
            raise

    def _prepare(self) -> None:
        check_mark(self.connection, self.name)
        change_settings(self.connection, *logged(self._durability))
        self.identity = identity_of(self.connection, self.name)
        last = 0
        for sequence in self.connection.execute(schema.LAST_SEQUENCES).fetchone():
            if sequence is None:
                continue
            if not isinstance(sequence, int) or not 0 <= sequence < MAX_SEQUENCE:
                last_row = f"{str(sequence)[:40]!r} is the sequence number of its last row"
                raise DamagedFile(self.name, last_row)
            last = max(last, sequence)
        self.next_sequence = last + 1  # of the next row put without one

    @staticmethod
    def create(path: Path, name: str, identity: Identity) -> None:
        """Write a new empty file and close it; it is on disk on return.

        Raises DiskFull, OutOfDescriptors, StorageFailed.
        """
        with storage_errors(name), path.open("wb"):
            pass  # for an error message that names the cause, unlike SQLite's
        with sql_errors(name, path):
            connection = connect(path)
            try:
                mark(connection)
                change_settings(connection, *logged("full"))
                create_tables(connection, identity)
            finally:
                connection.close()

    def __len__(self) -> int:
        with self._reading, sql_errors(self.name, self.path):
            count: int = self._reader.execute(schema.COUNT).fetchone()[0]
        return count

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of the file and its log; the last known value if they cannot be read."""
        with suppress(OSError):
            self._bytes = bytes_of(self.path)
        return self._bytes

    def write(
        self,
        changes: Sequence[Change],
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Make changes, in order, in one transaction.

        changes: the ids of rows to put are new, or those of removed rows. Given sequence
            numbers ascend and were never used before.
        turn: entered for processor work, not while waiting for a lock or the disk.
        Raises DiskFull, DirectoryLocked, OutOfDescriptors, StorageFailed (nothing was stored. After
            any other error it is unknown whether all was stored or nothing).
        """
        sequence = self.next_sequence
        if len(changes) == 1 and changes[0].is_one_row:
            # A single statement is a transaction by itself; BEGIN and COMMIT would be two more.
            with self._committing():
                [sequence] = changes[0].rows.sequences or (sequence,)
                self._insert((sequence,), changes[0].rows)
            self.next_sequence = sequence + 1
            return
        if len(changes) == 1 and changes[0].is_one_payload:
            with self._committing():
                self._replace_payloads(changes[0].payloads)
            return
        with self._transaction(), turn():
            for change in changes:
                if change.removed:
                    self._delete(change.removed)
                rows = change.rows
                sequences = rows.sequences or range(sequence, sequence + len(rows.ids))
                self._insert(sequences, rows)
                sequence = sequences[-1] + 1 if sequences else sequence
                if change.payloads:
                    self._replace_payloads(change.payloads)
                if change.names:
                    self._add_names(change.names)
                if change.load is not None:
                    self._write_load(change.load)
                if change.next_id is not None:
                    text = with_checksum(b"%d" % change.next_id)
                    self.connection.execute(schema.WRITE_META, ("next_id", text))
        self.next_sequence = sequence

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit all changes of a block in one transaction, or none."""
        with self._committing(), self._begun():
            yield

    @contextmanager
    def _begun(self) -> Iterator[None]:
        """Begin a transaction; commit it after the block, or roll it back."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    @contextmanager
    def _committing(self) -> Iterator[None]:
        """Let a block commit, and remove traces of the commit if the storage fails.

        Errors are those of `sql_errors`.

        A log that could not be synced may contain a complete transaction that was refused. The next
        start would take it as committed, unless another one has overwritten it.
        """
        self.require_same_files()
        if self._in_doubt:
            self._overwrite_doubtful()
        try:
            try:
                with self._alone:
                    yield
            except sqlite3.Error as error:
                raise sql_error(error, self.name, self.path) from error
        except StorageFailed:
            self._in_doubt = True
            with suppress(StoreError):  # before the next commit at the latest
                self._overwrite_doubtful()
            raise
        if self._files is not None and not self._files.are_named:
            with suppress(DiskFull, OutOfDescriptors, StorageFailed):  # the next write checks again
                self.require_same_files()

    def require_same_files(self) -> None:
        """Raise unless commits go to the files that the next start will open.

        Otherwise, acknowledged writes are moved into the collection's file, wherever its name is
        now. If that fails, or another file has its name, a note informs the next start.

        Raises DamagedFile (a file was removed, replaced or truncated; writes are refused until
            the store is reopened), OutOfDescriptors, StorageFailed (the files cannot be examined).
        """
        if self._files is None:
            return
        if self._file_change is None:
            try:
                self._file_change = self._files.find_change()
            except OSError as error:
                raise storage_error(error, self.name) from error
            if self._file_change is None:
                return
            _log.error(
                "collection %r takes no more writes: %s was %s while it was open",
                self.name,
                self._file_change.name,
                self._file_change.what,
            )
            self._rescue(self._files, self._file_change)
        raise DamagedFile(
            self.name, f"{self._file_change.text}; nothing is stored until it is opened again"
        )

    def _rescue(self, files: OpenedFiles, change: FileChange) -> None:
        """Move the log into the file; leave a note unless the next start will find everything."""
        try:
            files.mend_index()
            is_moved = change.is_sound and self._is_log_emptied()
            if is_moved and change.is_in_place:
                files.set_foreign_log_aside()
                note_of(self.path).unlink(missing_ok=True)
            elif files.is_in_own_folder:
                write_note(self.path, change.text)
        except OSError as error:
            _log.error("collection %r: the next start is not told of it (%s)", self.name, error)

    def _is_log_emptied(self) -> bool:
        """Move the log into the opened file, wherever both are; return whether it is empty."""
        try:
            with self._reading:
                self._reader.execute("PRAGMA busy_timeout = 0")
                return bool(self._reader.execute(schema.EMPTY_LOG).fetchone()[0] == 0)
        except sqlite3.Error as error:
            _log.error("collection %r: its log could not be moved (%s)", self.name, error)
            return False

    def _overwrite_doubtful(self) -> None:
        with sql_errors(self.name, self.path), self._begun():
            for statement in schema.CHANGE_NOTHING:
                self.connection.execute(statement)
        self._in_doubt = False

    def _delete(self, sequences: Sequence[int]) -> None:
        removed = self.connection.execute(schema.DELETE, (orjson.dumps(list(sequences)).decode(),))
        if removed.rowcount != len(sequences):
            reason = f"of {len(sequences)} rows to be removed it has {removed.rowcount}"
            raise DamagedFile(self.name, reason)

    def _replace_payloads(self, payloads: Sequence[tuple[int, bytes | None]]) -> None:
        """Replace the payloads of rows whose content matches its checksum."""
        for piece in schema.pieces(len(payloads)):
            new = dict(payloads[piece])
            found = self.connection.execute(schema.READ_AT, (orjson.dumps([*new]).decode(),))
            records = [self._record(row) for row in found.fetchall()]
            if len(records) != len(new):
                reason = f"of {len(new)} rows to be changed it has {len(records)}"
                raise DamagedFile(self.name, reason)
            cells = list[Any]()
            for record in records:
                payload = new[record.sequence]
                version = record.version + 1
                content = content_checksum(record.id.encode(), record.vector, payload)
                cells += (
                    record.sequence,
                    payload,
                    version,
                    life_checksum(content, version, record.expires),
                )
            self.connection.execute(schema.UPDATES[len(new)], cells)

    def _insert(self, sequences: Sequence[int], rows: RowBatch) -> None:
        count = len(rows.ids)
        life = (rows.versions or [1] * count, rows.expires or [None] * count)
        texts = (rows.ids, rows.vectors, rows.codes, rows.payloads)
        columns = (sequences, *texts, *life, rows.checksums, rows.codes_checksums)
        if count == 1:  # most writes
            self.connection.execute(schema.INSERTS[1], [column[0] for column in columns])
            return
        for piece in schema.pieces(count):
            cells = zip(*map(itemgetter(piece), columns), strict=True)
            statement = schema.INSERTS[piece.stop - piece.start]
            self.connection.execute(statement, tuple(chain.from_iterable(cells)))

    @contextmanager
    def replacing_codes(self, algorithm_version: int) -> Iterator[ReplaceCodes]:
        """Replace the codes of all rows by those of another hash, in one transaction.

        Raises DiskFull, DirectoryLocked, DamagedFile (nothing was stored).
        """
        with self._transaction():
            yield self._write_codes
            self.connection.execute(schema.SET_ALGORITHM, (str(algorithm_version),))
        self.identity = replace(self.identity, algorithm_version=algorithm_version)

    def replace_codes(self, sequences: Sequence[int], codes: Sequence[bytes]) -> bool:
        """Replace the codes of the rows that exist; they are on disk on return.

        Raises DiskFull, DirectoryLocked, DamagedFile (nothing was stored).
        """
        with self._transaction():
            self._write_codes(sequences, codes)
        return True

    def _write_codes(self, sequences: Sequence[int], codes: Sequence[bytes]) -> None:
        for piece in schema.pieces(len(sequences)):
            some = codes[piece]
            rows = zip(sequences[piece], some, map(codes_checksum, some), strict=True)
            self.connection.execute(schema.NEW_CODES[len(some)], [*chain.from_iterable(rows)])

    def confirm_codes(self, algorithm_version: int) -> bool:
        """Record that the codes of all rows are those of a hash; on disk on return."""
        self._change(schema.SET_ALGORITHM, (str(algorithm_version),))
        self.identity = replace(self.identity, algorithm_version=algorithm_version)
        return True

    def replace_weights(self, config: dict[str, Any], weights: str) -> None:
        """Store other weights, and the configuration that specifies them; on disk on return.

        Links and notes of indexes are removed. The codes of all rows are out of date. The next
        start computes them, unless `replace_codes` replaced all and `confirm_codes` recorded it.

        Raises DiskFull, DirectoryLocked, DamagedFile (nothing was stored).
        """
        identity = Identity(config, OUTDATED)
        text = orjson.dumps(config).decode()
        meta = {"config": text, "config_checksum": str(text_checksum(text)), "weights": weights}
        with self._transaction():
            self.connection.executemany(schema.WRITE_META, meta.items())
            self.connection.execute(schema.SET_ALGORITHM, (str(OUTDATED),))
            self.connection.execute(schema.DELETE_META, ("notes",))
            self.connection.execute(schema.DELETE_ALL_LINKS)
            self.connection.execute(schema.FORGET_BACKEND_NOTES)
        self.identity = identity

    def chunks(self, chunk_bytes: int = CHUNK_BYTES) -> Iterator[RowBatch]:
        """Yield all rows in order of sequence numbers, in batches.

        Nothing may be written meanwhile, except codes of rows that have been read.

        Raises DamagedFile (also if a row does not match its checksum, or rows are missing).
        """
        count = len(self)
        found = named = 0
        share = chunk_bytes * count // (self.bytes_on_disk + 1)
        size = max(1, min(_MAX_ROWS_PER_CHUNK, share))
        for rows in self._batches(schema.READ_ALL, size):
            chunk = self._check_rows(rows)
            if chunk.sequences[0] < 1:
                raise DamagedFile(self.name, f"a row has sequence number {chunk.sequences[0]}")
            found += len(rows)
            named += sum(map(hash, zip(chunk.sequences, chunk.ids, strict=True)))
            yield chunk
        if found != count:
            raise DamagedFile(self.name, f"it has {found} rows, and {count} ids")
        self._check_ids(named)

    def _check_ids(self, named: int) -> None:
        """Raise DamagedFile unless the index of ids, which finds rows, has the same rows."""
        last = ""
        for rows in self._batches(schema.READ_IDS, _MAX_ROWS_PER_CHUNK):
            named -= sum(map(hash, rows))
            ids = [last, *(item_id for _, item_id in rows)]
            with self._types():
                if ids != sorted(ids):
                    raise DamagedFile(self.name, "its ids are out of order")
            last = ids[-1]
        if named:
            raise DamagedFile(self.name, "its ids are not those of its rows")

    def _check_rows(self, read: Sequence[tuple[Any, ...]]) -> RowBatch:
        """Return the columns of rows; DamagedFile unless all match their checksums."""
        sequences, ids, vectors, codes, payloads, *others = zip(*read, strict=True)
        versions, expires, *expected = others
        if versions.count(1) == len(versions):
            versions = ()
        if expires.count(None) == len(expires):
            expires = ()
        with self._types():
            rows = RowBatch(ids, vectors, codes, payloads, sequences, versions, expires)
            checksums = rows.checksums, rows.codes_checksums
        for found, wanted in zip(checksums, expected, strict=True):
            if found != [*wanted]:
                pairs = zip(found, wanted, strict=True)
                at = next(i for i, pair in enumerate(pairs) if pair[0] != pair[1])
                raise DamagedFile(self.name, f"row {sequences[at]} is damaged")
        return rows

    @contextmanager
    def _types(self) -> Iterator[None]:
        """Treat values of types that were never written as damage."""
        try:
            yield
        except (TypeError, AttributeError, ValueError) as error:
            raise DamagedFile(self.name, f"a row is damaged ({error})") from error

    def links(self) -> Iterator[tuple[int, bytes]]:
        """Yield all parts of links, by number (`storage.graph_parts`), read one by one."""
        return chain.from_iterable(self._batches(schema.READ_LINKS, _PARTS_A_READ))

    def _batches(self, statement: str, size: int) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a statement, ``size`` at a time; other reads may come between."""
        cursor: sqlite3.Cursor | None = None
        while True:
            with self._reading, sql_errors(self.name, self.path):
                if self._refusal is not None:
                    raise self._refusal()
                cursor = cursor or self._reader.execute(statement)
                rows = cursor.fetchmany(size)
            if not rows:
                return
            yield rows

    def write_links(self, part: int, data: bytes | None) -> None:
        """Replace a part of links, or remove it (None); does not wait for the disk."""
        delete, write = (schema.DELETE_LINKS, (part,)), (schema.WRITE_LINKS, (part, data))
        self._write_unsynced(*(delete if data is None else write))

    def meta(self, name: MetaName) -> str | None:
        """Return the file's metadata under a name; None if there is none."""
        rows = self._read(schema.READ_META, (name,))
        return rows[0][0] if rows else None

    def write_meta(self, name: MetaName, value: str | None) -> None:
        """Replace the metadata under a name, or remove it (None).

        It is on disk on return, except notes of the index.
        """
        change = self._write_unsynced if name == "notes" else self._change
        delete, write = (schema.DELETE_META, (name,)), (schema.WRITE_META, (name, value))
        change(*(delete if value is None else write))

    def names(self) -> Iterator[tuple[int, str]]:
        """Yield all coordinates that have names, in order, with their names."""
        for coordinate, name, checksum in self._read(schema.READ_NAMES, ()):
            if name_checksum(coordinate, name) != checksum:
                reason = f"the name of coordinate {coordinate} is damaged"
                raise DamagedFile(self.name, reason)
            yield coordinate, name

    def find_names(self, prefix: str, limit: int) -> list[tuple[int, str]]:
        """Return the first coordinates that have names; with a prefix, by name."""
        if not prefix:
            return self._read(schema.READ_NAMES_PAGE, (limit,))
        return self._read(schema.FIND_NAMES, (prefix, prefix + _LAST_NAMES, limit))

    def replace_names(self, names: Sequence[tuple[int, str]]) -> None:
        """Store these names and no others; on disk on return."""
        with self._transaction():
            self.connection.execute(schema.DELETE_NAMES)
            self._add_names(names)

    def remove_names(self, coordinates: Sequence[int]) -> None:
        """Remove the names of some coordinates; on disk on return."""
        with self._transaction():
            rows = ((each,) for each in coordinates)
            self.connection.executemany(schema.DELETE_NAME, rows)

    def _add_names(self, names: Sequence[tuple[int, str]]) -> None:
        rows = ((at, name, name_checksum(at, name)) for at, name in names)
        self.connection.executemany(schema.ADD_NAME, rows)

    def loads(self, since: int, key: str | None = None) -> list[LoadRecord]:
        """Return the loads with keys that have changed since a time, the latest first."""
        found = []
        asked = (schema.READ_LOADS, (since,)) if key is None else (schema.READ_LOAD, (key, since))
        for *columns, checksum in self._read(*asked):
            record = LoadRecord(*columns)
            if record.checksum != checksum:
                raise DamagedFile(self.name, f"load {record.key!r} is damaged")
            found.append(record)
        return found

    def save_load(self, record: LoadRecord, forgotten: int) -> None:
        """Store the progress of a load; on disk on return.

        forgotten: seconds since 1970; loads not changed since then are removed.
        """
        with self._transaction():
            self.connection.execute(schema.DELETE_LOADS, (forgotten,))
            self._write_load(record)

    def _write_load(self, record: LoadRecord) -> None:
        columns = (record.key, record.changed, record.progress, record.checksum)
        self.connection.execute(schema.WRITE_LOAD, columns)

    def backends(self) -> list[BackendRecord]:
        """Return the comparison backends in the order in which they were attached."""
        records = []
        for *columns, checksum in self._read(schema.READ_BACKENDS, ()):
            record = BackendRecord(*columns)
            texts = (record.name, record.kind, record.params, record.notes or "")
            is_text = all(isinstance(each, str) for each in texts)
            if not is_text or record.checksum != checksum:
                raise DamagedFile(self.name, f"backend {record.name!r} is damaged")
            records.append(record)
        return records

    def add_backend(self, record: BackendRecord) -> None:
        """Add a comparison backend with a new name; on disk on return."""
        columns = (record.name, record.kind, record.params, record.notes, record.checksum)
        self._change(schema.ADD_BACKEND, columns)

    def note_backend(self, name: str, notes: str | None) -> None:
        """Replace the notes of a comparison backend's index."""
        self._change(schema.NOTE_BACKEND, (notes, name))

    def remove_backend(self, name: str) -> None:
        """Remove a comparison backend; on disk on return."""
        self._change(schema.DELETE_BACKEND, (name,))

    def _change(self, statement: str, parameters: Sequence[Any]) -> None:
        with self._transaction():
            self.connection.execute(statement, parameters)

    def _write_unsynced(self, statement: str, parameters: Sequence[Any]) -> None:
        """Commit one statement; it reaches the disk with the next synced commit."""
        if self.path == MEMORY:
            self._change(statement, parameters)
            return
        self.require_same_files()
        with sql_errors(self.name, self.path):
            if self.background_connection is None:
                # The other connection waits for the disk, and should not also have to move these
                # pages out of the log.
                self.background_connection = connect(
                    self.path, *logged("normal"), _BACKGROUND_PAGES
                )
            self.background_connection.execute(statement, parameters)

    def fetch(self, ids: Sequence[str]) -> dict[str, Record]:
        """Return the existing rows with these ids, by id."""
        found: dict[str, Record] = {}
        for piece in schema.pieces(len(ids)):
            rows = self._read(schema.READS[piece.stop - piece.start], ids[piece])
            found.update((row[1], self._record(row)) for row in rows)
        return found

    def at(self, sequences: Sequence[int]) -> list[Record]:
        """Return the existing rows with these sequence numbers, in order."""
        numbers = orjson.dumps(list(sequences)).decode()
        return [self._record(row) for row in self._read(schema.READ_AT, (numbers,))]

    def _record(self, row: tuple[Any, ...]) -> Record:
        record = Record(*row[:-1])
        with self._types():
            content = content_checksum(record.id.encode(), record.vector, record.payload)
            found = life_checksum(content, record.version, record.expires)
        if found != row[-1]:
            raise DamagedFile(self.name, f"row {record.sequence} is damaged")
        return record

    def copy_to(self, path: Path) -> None:
        """Write a copy of the file as of this moment to a new file; others may write meanwhile.

        Free pages are left out. The caller syncs the file.

        Raises DiskFull, DamagedFile, CollectionNotFound (it was closed).
        """
        if self._refusal is not None:
            raise self._refusal()  # another file may have its name by now
        in_memory = nullcontext(self.connection) if self.path == MEMORY else None
        self.require_same_files()  # otherwise another file might be copied
        with (
            self._alone,
            sql_errors(self.name, self.path),
            in_memory or closing(connect(self.path)) as connection,
        ):
            # The second one is for the copy.
            change_settings(connection, "trusted_schema = OFF", "auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM INTO ?", (str(path),))

    def close(self, refusal: Callable[[], GcwsError] | None = None) -> None:
        """Close the file; its log is moved into it.

        refusal: returns the error that reads raise from now on; None for CollectionNotFound.
        """
        with suppress(StoreError):
            self.require_same_files()
        files, self._files = self._files, None
        if files is not None and self._file_change is not None:
            self._rescue(files, self._file_change)  # readers may have prevented it before
        with self._reading:
            self._refusal = refusal or partial(CollectionNotFound, self.name)
            self._reader.close()
        if self.background_connection is not None:
            self.background_connection.close()
        with suppress(StoreError):
            if self._in_doubt and self._file_change is None:
                self._overwrite_doubtful()
        if files is not None and files.is_misnamed:
            leave_open(self.connection)
        else:
            with suppress(sqlite3.Error):  # commits in the log are found at the next start
                self.connection.close()
        if files is not None:
            files.close()

    def move(self, path: Path, move_file: Callable[[], None]) -> None:
        """Rename the file; nothing reads or writes it meanwhile.

        move_file: renames the closed file, which has no log.
        Raises DiskFull, OutOfDescriptors, StorageFailed (the store is closed).
        """
        self.close()
        move_file()
        with self._reading:
            self.path = path
            self.background_connection = None
            self._open()
            self._refusal = None

    def _read(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        with self._reading, sql_errors(self.name, self.path):
            if self._refusal is not None:
                raise self._refusal()
            return self._reader.execute(statement, parameters).fetchall()
