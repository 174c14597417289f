"""Bulk loads: files become a collection of a cluster, which nobody sees before it is whole.

The rows of the files are divided into parts. Each part is read and checked as a load through a
router is, and copied into the table of a collection under a hidden name, without a head: neither
routers nor shards list it. With each chunk the database keeps how far its part has come, so that
the same call goes on where it was interrupted. Indexes are made once all parts are there; then the
collection gets its head, its shards their bases, and a last transaction gives it its name.

An item has the key of its part and its place there, so that the order is that of the files; of
items of one id the last stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
from psycopg import errors

from gcws_search import index as ix
from gcws_search.formats.files import (
    BadFile,
    Folder,
    InputFile,
    rejected_path,
    require_distinct,
    require_same,
)
from gcws_search.formats.items import ARROW, NPY, LoadBody
from gcws_search.formats.payloads import write_json
from gcws_search.formats.sources import Choices, Source, require_form, source_of
from gcws_search.formats.stores import place_of, stored_path
from gcws_search.service.cluster import schema
from gcws_search.service.cluster.bases import Bases
from gcws_search.service.cluster.catalog import ClusterCatalog
from gcws_search.service.cluster.collection import ClusterCollection
from gcws_search.service.cluster.committer import HIGHEST, PreparedPut
from gcws_search.service.cluster.connections import LOCK, Connection
from gcws_search.service.cluster.contract import CollectionRow
from gcws_search.service.cluster.database import (
    BULK,
    BULK_KEYS,
    STAMP_COMMIT,
    Database,
    add_names,
    open_database,
    write_load,
)
from gcws_search.service.cluster.follower import Follower, HostOptions, Place
from gcws_search.service.errors import ServiceError, StoreUnavailable, require_place
from gcws_search.service.ingest.arrow import read_arrow
from gcws_search.service.ingest.job import Account, Load, LoadFailed, LoadState, Mark
from gcws_search.service.ingest.ndjson import read_ndjson
from gcws_search.service.ingest.npy import read_npy
from gcws_search.service.ingest.source import ByteReader, ItemRows, Reject
from gcws_search.service.settings import Settings
from gcws_search.tasks import TaskPool, results
from gcws_search.version import program_version

_UNKNOWN_ROWS: Final = 1 << 32  # for which a file has keys that does not tell how many it has
_MAX_LISTED: Final = 1000  # rejected rows of a part
_NEVER: Final = 1 << 40  # seconds after which parts are forgotten
_LONG_SECONDS: Final = 86_400.0  # that indexes may take
_RETRY_SECONDS: Final = 0.2
_JOB: Final = f"{BULK_KEYS}job"  # key of what is loaded, and how
_DONE: Final = f"{BULK_KEYS}bulk"  # key of that in a collection that is whole
_ROW: Final = re.compile(r"^row \d+: ")

_NUMBER: Final = "SELECT number FROM collections WHERE name = %b"
_CREATE: Final = """
INSERT INTO collections (name, config, algorithm_version, metadata) VALUES (%b, %b, %b, %b)
RETURNING number
"""
_HAS_INDEXES: Final = """
SELECT 1 FROM pg_index WHERE indrelid = to_regclass('items_' || %b) AND indisprimary
"""
_DELETE_REPLACED: Final = """
DELETE FROM items_{number} AS i USING (
    SELECT bucket, id, max(key) AS key FROM items_{number}
    GROUP BY bucket, id HAVING count(*) > 1
) AS last
WHERE i.bucket = last.bucket AND i.id = last.id AND i.key < last.key
"""
_COUNT: Final = "SELECT count(*), coalesce(max(key), 0) FROM items_{number}"
_ADD_HEAD: Final = """
INSERT INTO heads (collection, head, items, free_id) VALUES (%b, %b, %b, %b)
ON CONFLICT DO NOTHING RETURNING true
"""

Tell: TypeAlias = Callable[[str, float | None], None]
"""Called with a word for what is done, and the share of it that is, None where it is not known."""


class FilePart(NamedTuple):
    """Rows of a file, or of a folder that is one table, that are stored one after the other."""

    key: str  # of its record in the database
    path: str
    is_folder: bool
    version: str  # of the file
    choices: Choices
    first: int
    end: int | None  # None: to the end of the file
    before: int  # the key after which its items have theirs


@dataclass(frozen=True, slots=True)
class Job:
    """What all parts have in common."""

    settings: Settings | None  # None: those of the process that does it
    number: int
    config: dict[str, Any]
    encoding: str | None
    names: list[str] | None  # of the coordinates of a space of fixed dim
    are_numbered: bool  # whether rows have no ids
    expires: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkLoad:
    """What is to become of some files; ``given`` are open."""

    name: str
    given: Sequence[InputFile | Folder]
    first: Source  # the first of them
    config: ix.CollectionConfig
    metadata: bytes | None = None
    encoding: str | None = None
    expires: str | None = None
    replace: bool = False  # whether a collection of the name is replaced
    part_rows: int = 1 << 17
    base_rows: int = HostOptions().base_rows  # of a shard, with fewer of which there are no bases


@dataclass(frozen=True, slots=True)
class BulkLoaded:
    """What became of them; ``rejected_rows`` are places, codes and words of the first.

    ``rejected_files`` have these rows. ``loaded_before``: the collection was whole when it began.
    """

    items: int
    repeated: int  # rows that a later one of their id replaced
    dropped: int
    rejected: int
    parts: int
    parts_before: int  # that an earlier call had loaded
    bases: int  # of shards
    rejected_rows: Sequence[tuple[str, str, str]] = ()
    rejected_files: Sequence[str] = ()
    loaded_before: bool = False


def bulk_load(
    load: BulkLoad,
    settings: Settings,
    pool: TaskPool,
    *,
    has_settings: bool = True,  # whether calls are told the settings; else they have their own
    tell: Tell = lambda _word, _share: None,
) -> BulkLoaded:
    """Load files into a new collection; the same call goes on with one that was interrupted.

    ClusterMismatch: bases would be those of another number of shards than there are.
    CollectionExists: there is one, or files or options differ from those of a load that was
    interrupted. BadFile: a file cannot be read, or a row of it is not taken. Refused: there are too
    many collections.
    """
    ix.check_name(load.name)
    began = time.time()
    with open_database(settings, _LONG_SECONDS) as database, _alone(database, load.name):
        taken = database.find(load.name)
        parts = [*_divide(load)]
        key = _key_of(load, parts)
        if taken is not None:
            if (done := _done_before(database, taken, key, load)) is not None:
                shards = _shards(database, load, taken, settings)
                answer = _answer(done, len(parts), len(parts), shards)
                return replace(answer, loaded_before=True)
            if not load.replace:
                text = "already; --replace puts the files in its place"
                raise ix.CollectionExists(load.name, text)
        _check_end(database, load, settings, writes_here=has_settings)
        names = load.first.names
        if names is None or len(names) != load.config.dim:
            names = (load.first.export or {}).get("names") if load.config.dim else None
        most = settings.max_collections + (taken is not None)
        number = _begin(database, load, key, names, most)
        job = Job(
            settings if has_settings else None,
            number,
            load.config.to_dict(),
            load.encoding,
            names,
            not load.first.has_ids,
            load.expires,
        )
        states = _states(database, number)
        missing = [part for part in parts if part.key not in states]
        loads = results(pool, load_part, ((job, part) for part in missing), in_order=False)
        _wait(loads, partial(tell, "loading"), len(parts) - len(missing), len(parts))
        states = _states(database, number)
        lost = [part for part in parts if part.key not in states]
        if lost:  # by a database whose last commits are gone
            raise StoreUnavailable(f"{len(lost)} parts are not there; the same command goes on")
        require_same(load.given)
        row = _finish(database, load, number, tell)
        shards = _shards(database, load, row, settings)
        told = job.settings, settings.base, row
        calls = ((*told, each, shards) for each in range(shards))
        builds = results(pool, build_base, calls, in_order=False)
        _wait(builds, partial(tell, "building"), 0, shards)
        counts = [states[part.key] for part in parts]
        rejected = sum(each.rejected_count for each in counts)
        dropped = sum(each.dropped_count or 0 for each in counts)
        done = LoadState(
            parameters=f"{key} {row.head}",
            mark=Mark(sum(each.inserted for each in counts) + rejected + dropped, 0, 0),
            inserted=database.count(number),
            rejected_count=rejected,
            dropped_count=dropped,
            seconds=time.time() - began,
            started=began,
            is_complete=True,
        )
        rejected_files = _write_rejected(load, parts, states)
        record = ix.LoadRecord(_DONE, int(time.time()), done.text())
        before = database.find(load.name) if load.replace else None  # one that was made meanwhile
        database.rename(number, load.name, None if before is None else before.number, record)
        return replace(
            _answer(done, len(parts), len(parts) - len(missing), shards),
            rejected_rows=[row for at in parts for row in _rejected(load, at, states[at.key])],
            rejected_files=rejected_files,
        )


def _check_end(
    database: Database, load: BulkLoad, settings: Settings, *, writes_here: bool
) -> None:
    """Raise at once what would be wrong once all rows are there."""
    for file in load.given if load.first.choices.lenient else ():
        path = rejected_path(file)
        path.touch()
        path.unlink()
    if settings.base is not None:
        database.require_shards(settings.cell, settings.shards)
        if writes_here:
            probe = stored_path(settings.base) / f"{database.identity}/bulk-{load.name}"
            probe.write(iter(()))
            probe.remove()


def _done_before(
    database: Database, row: CollectionRow, key: str, load: BulkLoad
) -> LoadState | None:
    """Return what the same call has made of a collection, which is not replaced unless changed."""
    for record in database.loads(row.number, 0, _DONE):
        state = LoadState.read(row.name, record)
        known, head = state.parameters.split()
        if known == key and (not load.replace or int(head) == row.head):
            return state
    return None


def _answer(done: LoadState, parts: int, parts_before: int, bases: int) -> BulkLoaded:
    left_out = done.rejected_count + (done.dropped_count or 0)
    return BulkLoaded(
        items=done.inserted,
        repeated=done.mark.rows - left_out - done.inserted,
        dropped=left_out - done.rejected_count,
        rejected=done.rejected_count,
        parts=parts,
        parts_before=parts_before,
        bases=bases,
    )


def _wait(failures: Iterator[str], tell: Callable[[float], None], done: int, every: int) -> None:
    """Wait for calls, of which some were done before; BadFile with what is wrong with one."""
    for failure in failures:
        if failure:
            raise BadFile(failure)
        done += 1
        tell(done / every)


def bulk_drop(name: str, settings: Settings) -> bool:
    """Drop what an interrupted bulk load has stored; return whether there was any."""
    with open_database(settings) as database, _alone(database, name):
        with database.connections.use() as connection:
            numbers = connection.column(_NUMBER, BULK + name)
        for number in numbers:
            database.drop(number)
        _remove_scratch(settings, database)
        if settings.base is not None:
            Bases(settings.base, database, 0, 1).remove_useless()
    return bool(numbers)


@contextmanager
def _alone(database: Database, name: str) -> Iterator[None]:
    """Be the only one that loads into a name; CollectionBusy where somebody does."""
    with database.connections.lock(f"{database.identity}/bulk/{name}") as alone:
        if alone is None:
            raise ix.CollectionBusy(name, "a bulk load of it is under way")
        yield


# Beginning


def _divide(load: BulkLoad) -> Iterator[FilePart]:
    """Yield the parts of all files, in the order of their rows."""
    before, first = 0, load.first
    require_distinct(load.given)
    for number, file in enumerate(load.given):
        settled = first.settled if file.format == first.file.format else {}
        choices = replace(first.choices, **settled)
        source = first if number == 0 else source_of(file, choices)
        require_form(source, first.file.name, is_text=first.is_text, dim=first.dim)
        if file.path is None:
            raise BadFile("standard input: expected files, which are read again after a stop")
        rows, is_folder = source.rows, isinstance(file, Folder)
        path = str(file.path.resolve() if hasattr(file.path, "resolve") else file.path)
        given = path, is_folder, _version(file), choices
        is_whole = rows is None or not source.divides or choices.missing == "mean"
        starts = [0] if is_whole or rows is None else range(0, rows, load.part_rows)
        for start in starts:
            end = None if is_whole or rows is None else min(rows, start + load.part_rows)
            yield FilePart(f"{BULK_KEYS}{number}/{start}", *given, start, end, before + start)
        before += _UNKNOWN_ROWS if rows is None else rows


def _version(file: InputFile | Folder) -> str:
    """Return what changes with the bytes of a file, or of the files of a folder."""
    return hashlib.sha256(repr(file.version).encode()).hexdigest()


def _key_of(load: BulkLoad, parts: Sequence[FilePart]) -> str:
    """Return the same for the same files, options and program."""
    # Whether bad rows are left out may change, unless rows are counted otherwise then.
    like: dict[str, Any] = {} if load.first.choices.missing == "drop" else {"lenient": False}
    told = [each._replace(choices=replace(each.choices, **like)) for each in parts]
    config = json.dumps(load.config.to_dict())
    said = repr(told), config, load.expires, load.metadata, load.encoding, program_version()
    return hashlib.sha256(repr(said).encode()).hexdigest()


def _begin(database: Database, load: BulkLoad, key: str, names: list[str] | None, most: int) -> int:
    """Return the number of the collection that is filled: a new one, or that of the same call.

    most: how many collections there may be.
    """
    with database.connections.transaction() as connection:
        connection.run("SELECT pg_advisory_xact_lock(%b)", LOCK)
        found = connection.column(_NUMBER, BULK + load.name)
        if found:
            [number] = found
            known = "SELECT progress FROM loads WHERE collection = %b AND key = %b"
            if connection.column(known, number, _JOB) != [key]:
                raise ix.CollectionExists(
                    load.name,
                    "half loaded, from other files or by other options;"
                    f" 'gcws-search bulk drop {load.name}' drops that",
                )
            return int(number)
        require_place(connection.column("SELECT count(*) FROM collections")[0], most)
        config = json.dumps(load.config.to_dict())
        values = BULK + load.name, config, ix.ALGORITHM_VERSION, load.metadata
        [number] = connection.column(_CREATE, *values)
        connection.execute(schema.ITEMS.format(number=number).encode())
        if names:
            named = ix.check_names(names, load.config.dim)
            add_names(connection, number, named, stored=True)
        write_load(connection, number, ix.LoadRecord(_JOB, int(time.time()), key))
    return int(number)


def _states(database: Database, number: int) -> dict[str, LoadState]:
    """Return what became of the parts that are whole."""
    records = [each for each in database.loads(number, 0) if each.key != _JOB]
    found = {each.key: LoadState.read(str(number), each) for each in records}
    return {key: each for key, each in found.items() if each.is_complete}


# A part: called in any process


def load_part(job: Job, part: FilePart) -> str:
    """Store the rows of a part, or those that are missing; return what is wrong, if anything."""
    settings = job.settings or Settings()
    try:
        with (
            open_database(settings) as database,
            _of_part(database, job.number, part.key) as connection,
            closing(_Filling(database, connection, job, part)) as filling,
        ):
            account = Account(part.key, _MAX_LISTED)
            account.go_on(cast(Any, filling), "", _NEVER)
            if account.before.is_complete:
                return ""
            source = _open(part.path, part.is_folder, part.version, part.choices, job.encoding)
            source.only(part.first, part.end)
            if source.names is not None:
                source.arrange(dict(enumerate(job.names or ())), filling.config.dim)
            on_error: Any = "skip" if part.choices.lenient else "stop"
            work = Load(
                cast(Any, filling), account, "upsert", on_error, lambda: None, expires=job.expires
            )
            filling.stored = account.before.inserted
            try:
                work.run(partial(_read, source, settings, database.clock), bytes, lambda *_: None)
            except LoadFailed as failed:
                if failed.row is None:
                    raise failed.error from None
                return _words(source, failed.error, failed.row)
        return ""
    except (BadFile, ix.GcwsError, ServiceError, OSError) as error:
        return ix.error_words(error)


def _words(source: Source, error: Exception, row: int) -> str:
    """Say what is wrong with a row of a file."""
    if hasattr(error, "expected"):
        words = source.error_words(error, row)
    else:
        words = f"{source.place(row)}: {_ROW.sub('', str(error))}"
    return f"{source.file.name}: {words}; --on-error skip leaves such rows out"


@contextmanager
def _of_part(database: Database, number: int, key: str) -> Iterator[Connection]:
    """Lend a connection that alone stores a part: one that was left alone may still do so."""
    while True:
        with database.connections.lock(f"{database.identity}/bulk/{number}/{key}") as connection:
            if connection is not None:
                yield connection
                return
        time.sleep(_RETRY_SECONDS)


@lru_cache(maxsize=1)
def _open(
    path: str, is_folder: bool, version: str, choices: Choices, encoding: str | None
) -> Source:
    """Return a file as items; parts that follow each other are mostly of one."""
    place = place_of(path)
    file = Folder(place, encoding) if is_folder else InputFile(place, encoding)
    if _version(file) != version:
        raise BadFile(f"{file.name}: expected the file that the load began with, got another one")
    return source_of(file, choices)


class _Filling(ClusterCollection):
    """A collection under a hidden name as `Load` calls it, one part of which is stored."""

    def __init__(
        self, database: Database, connection: Connection, job: Job, part: FilePart
    ) -> None:
        row = CollectionRow(job.number, str(job.number), job.config, 0)
        super().__init__(row, _router(database))
        if job.names is not None:
            self.names.load(ix.check_names(job.names, self.config.dim))
        self._connection = connection
        self._are_numbered = job.are_numbered
        self._before = part.before
        self.stored = 0  # rows of the part

    def commit(self, write: PreparedPut) -> ix.WriteResult:
        for row, item_id in enumerate(write.ids):
            if (item_id is None) != self._are_numbered:
                expected = "no id" if self._are_numbered else "an id"
                got = "none" if item_id is None else repr(item_id)[:60]
                raise ix.InvalidId(expected=f"{expected}, as in the first row", got=got, loc=(row,))
        result = self.committer.append(self._connection, write, self._before + self.stored)
        self._note_stored(write)
        self.stored += result.inserted
        return result

    def wait_until_found(self) -> None:
        """Return at once: nobody looks yet."""


def _read(
    source: Source,
    settings: Settings,
    clock: Callable[[], float],
    _bytes: object,
    _counting: object,
) -> Iterator[ItemRows]:
    """Yield the chunks of a part, whose rows have the numbers that they have in the file."""
    is_lenient = source.choices.lenient
    bodies = source.segments() if is_lenient else [source.whole(lambda _: None)]
    first, _ = source.part
    for body in bodies:
        end = first
        for chunk in _chunks(body, settings, clock):
            end = first + chunk.end
            yield _renumber(chunk, body.numbers, first, source if is_lenient else None)
        first = end
    if source.unreadable:
        empty = ItemRows(np.empty(0, np.int64), [], [], ix.InputVectors(mixed=[]))
        yield replace(empty, rejects=_take_unreadable(source, None))


def _chunks(body: LoadBody, settings: Settings, clock: Callable[[], float]) -> Iterator[ItemRows]:
    """Yield the chunks of a body as a server reads it."""
    pieces = filter(len, body.pieces())
    take = lambda: bytes(next(pieces, b""))  # noqa: E731
    reader = ByteReader(take, max_read_bytes=settings.max_arrow_batch_bytes)
    if body.content_type == ARROW:
        return read_arrow(reader, settings, clock=clock)
    if body.content_type == NPY:
        return read_npy(reader, settings, body.id_start)
    return read_ndjson(take, settings, clock)


def _renumber(
    chunk: ItemRows, numbers: Sequence[int] | None, first: int, source: Source | None
) -> ItemRows:
    """Return a chunk with the numbers that its rows have in the file.

    With it are rows before its last one that could not be read; its bytes are not counted.
    """

    def number_of(row: int) -> int:
        return first + row if numbers is None else numbers[row]

    for each in chunk.rejects:
        each.number = number_of(each.number)
    found = np.array([number_of(row) for row in chunk.numbers.tolist()], np.int64)
    known = replace(chunk, numbers=found, size=0)
    if source is not None and source.unreadable:
        known = replace(known, rejects=[*known.rejects, *_take_unreadable(source, known.end)])
    return known


def _take_unreadable(source: Source, end: int | None) -> list[Reject]:
    """Take rows up to a number, all for None, off those that could not be read."""
    taken = [each for each in source.unreadable if end is None or each.row < end]
    source.unreadable[:] = [each for each in source.unreadable if each not in taken]
    return [Reject(each.row, BadFile(each.detail)) for each in taken]


def _rejected(load: BulkLoad, part: FilePart, state: LoadState) -> Iterator[tuple[str, str, str]]:
    for each in state.rejected:
        words = load.first.with_column(_ROW.sub("", each["detail"]))
        yield f"{part.path}: row {each['row']}", each["code"], words


def _write_rejected(
    load: BulkLoad, parts: Sequence[FilePart], states: Mapping[str, LoadState]
) -> list[str]:
    """Write rows that were left out beside their files, each as it stands there."""
    written = dict[str, None]()
    for part in parts:
        if not (rejected := states[part.key].rejected):
            continue
        source = _open(part.path, part.is_folder, part.version, part.choices, load.encoding)
        source.only(part.first, part.end)
        items = _items_at(source, {each["row"] for each in rejected})
        path = rejected_path(source.file)
        with path.open("ab") as to:
            for each in rejected:
                told = each | {"detail": _ROW.sub("", each["detail"]), "item": items[each["row"]]}
                to.write(write_json(told, str) + b"\n")
        written[str(path)] = None
    return [*written]


def _items_at(source: Source, wanted: set[int]) -> dict[int, Any]:
    """Return rows of a part as they stand in the file, by their numbers."""
    found, first = dict[int, Any].fromkeys(wanted), source.part[0]
    for body in source.segments():
        end = first + (body.rows or 0)
        for place, number in enumerate(body.numbers or range(first, end)):
            if number in wanted and body.original is not None:
                found[number] = body.original(place)
        first = end
    return found | {each.row: each.text for each in source.unreadable if each.row in wanted}


# The end


def _finish(database: Database, load: BulkLoad, number: int, tell: Tell) -> CollectionRow:
    """Make the indexes of the items that are there; give the collection head and weights."""
    with database.connections.use(load.name) as connection:
        tell("indexes", None)
        while not connection.column(_HAS_INDEXES, number):
            try:
                with connection.transaction():
                    connection.execute(schema.INDEXES.format(number=number).encode())
            except errors.UniqueViolation:
                connection.run(_DELETE_REPLACED.format(number=number))
        [(items, head)] = connection.run(_COUNT.format(number=number)).fetchall()
        if not items:
            raise BadFile(f"{load.first.file.name}: expected rows that can be stored, got none")
        [highest] = connection.column(HIGHEST.format(number=number))
        with connection.transaction():
            values = number, head, items, 0 if highest is None else highest + 1
            if connection.column(_ADD_HEAD, *values):
                connection.run(STAMP_COMMIT, number, head, os.urandom(16))
    find = partial(database.find, BULK + load.name)
    row = cast(CollectionRow, find())
    if isinstance(load.config.transform.weights, str) and row.weights is None:
        tell("weights", None)
        with closing(ClusterCollection(row, _router(database))) as collection:
            collection.fit(None)
        row = cast(CollectionRow, find())
    return row


def _router(database: Database) -> ClusterCatalog:
    """Return what stands for a router, of no shards, where there is none."""
    shards = SimpleNamespace(epoch=0, seconds=0.0, tell=lambda _: None, wait=lambda _: [])
    router = SimpleNamespace(database=database, shards=shards, renew=lambda _: None)
    return cast(ClusterCatalog, router)


def _shards(database: Database, load: BulkLoad, row: CollectionRow, settings: Settings) -> int:
    """Return for how many shards bases are built; 0 where replicas do without."""
    shards = database.shards(settings.cell) or settings.shards
    few = database.count(row.number) < load.base_rows * shards
    return 0 if settings.base is None or few else shards


def build_base(
    settings: Settings | None, address: str, row: CollectionRow, shard: int, shards: int
) -> str:
    """Build the file of a shard as a replica does, and make it the base; return what is wrong.

    A file that was begun here is gone on with.
    """
    settings = settings or Settings()
    folder = settings.data_dir
    try:
        with open_database(settings, _LONG_SECONDS) as database:
            _remove_scratch(settings, database)
            bases = Bases(address, database, shard, shards)
            folder = _scratch(settings, database, row.number) / f"{shard}-of-{shards}"
            if row.served not in bases.current():
                with _filled(database, row, folder, shard, shards, settings.threads) as follower:
                    collection = follower.collection
                    assert collection is not None
                    collection.finish_background_work()
                    copy = folder / "copy"
                    if not bases.write(row, follower.reached, collection, copy, lambda: None):
                        raise StoreUnavailable(f"another process writes the base of shard {shard}")
            shutil.rmtree(folder, ignore_errors=True)
        return ""
    except ix.DiskFull:
        return f"{folder}: no space left on the disk for the base of shard {shard}"
    except (BadFile, ix.GcwsError, ServiceError, OSError) as error:
        return ix.error_words(error)


@contextmanager
def _filled(
    database: Database,
    row: CollectionRow,
    folder: Path,
    shard: int,
    shards: int,
    threads: int | None,
) -> Iterator[Follower]:
    """Lend what has all items of a shard in a file; BadFile where it cannot be filled."""
    expirations = partial(ix.Expirations, database.clock, are_deleted=False)
    with closing(
        ix.Catalog.open(folder, durability="normal", threads=threads, expirations=expirations)
    ) as catalog:
        catalog.load()
        follower = Follower(
            row,
            Place(database.identity, shard, shards, database.buckets),
            database,
            catalog,
            lambda follow: follow(),
            HostOptions(),
            has_sister=lambda: False,
            bases=None,
        )
        try:
            if not follower.wait(row.head, 0.0):
                words = follower.refusal or "its rows could not be read from the database"
                raise BadFile(f"{folder}: shard {shard}: {words}")
            yield follower
        finally:
            follower.stop()


def _scratch(settings: Settings, database: Database, number: int) -> Path:
    """Return where the files of a collection are built."""
    return settings.data_dir / "bulk" / f"{database.identity}-c{number}"


def _remove_scratch(settings: Settings, database: Database) -> None:
    """Remove the files here of collections that are whole or dropped: others have built them."""
    unfinished = "SELECT number FROM collections WHERE starts_with(name, %b)"
    with database.connections.use() as connection:
        wanted = {_scratch(settings, database, n) for n in connection.column(unfinished, BULK)}
    for folder in (settings.data_dir / "bulk").glob(f"{database.identity}-c*"):
        if folder not in wanted:
            shutil.rmtree(folder, ignore_errors=True)
