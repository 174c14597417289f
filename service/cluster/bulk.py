"""Bulk loads: files become a collection of a cluster, which becomes visible once it is complete.

The rows of the files are divided into parts. Each part is read and checked like a load through a
router, and copied into the table of a collection with a hidden name and no head. Routers and shards
do not list such a collection. The database records the progress of a part with each chunk, so the
same call resumes an interrupted load. After the last part the indexes are made, the collection gets
its head, the shards get bases, and a last transaction sets its name.

The key of an item is the key of its part plus its place there, so items keep the order of the
files. Of items with the same id the last one stays.
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

_UNKNOWN_ROWS: Final = 1 << 32  # keys reserved for a file whose row count is unknown
_MAX_LISTED: Final = 1000  # rejected rows that are listed for a part
_NEVER: Final = 1 << 40  # seconds after which parts are forgotten
_LONG_SECONDS: Final = 86_400.0  # time limit for making indexes
_RETRY_SECONDS: Final = 0.2
_JOB: Final = f"{BULK_KEYS}job"  # key of the record of what is loaded, and how
_DONE: Final = f"{BULK_KEYS}bulk"  # key of that record in a complete collection
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
    """Rows of a file, or of a folder that is one table, that one call stores in order."""

    key: str  # of its record in the database
    path: str
    is_folder: bool
    version: str  # of the file
    choices: Choices
    first: int
    end: int | None  # None: to the end of the file
    before: int  # the keys of its items start after this one


@dataclass(frozen=True, slots=True)
class Job:
    """The settings that all parts share."""

    settings: Settings | None  # None: the settings of the process that loads the part
    number: int
    config: dict[str, Any]
    encoding: str | None
    names: list[str] | None  # of the coordinates of a space with fixed dim
    are_numbered: bool  # whether rows lack ids and are numbered
    expires: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkLoad:
    """Files to load and the options of the load; the files are open."""

    name: str
    given: Sequence[InputFile | Folder]
    first: Source  # the first file
    config: ix.CollectionConfig
    metadata: bytes | None = None
    encoding: str | None = None
    expires: str | None = None
    replace: bool = False  # whether to replace an existing collection of the name
    part_rows: int = 1 << 17
    base_rows: int = HostOptions().base_rows  # a shard with fewer items has no base


@dataclass(frozen=True, slots=True)
class BulkLoaded:
    """The result; ``rejected_rows`` are places, codes and messages of the first rejected rows.

    ``rejected_files`` contain these rows. ``loaded_before``: an earlier call had completed the
    load.
    """

    items: int
    repeated: int  # rows that a later row with the same id replaced
    dropped: int
    rejected: int
    parts: int
    parts_before: int  # parts that an earlier call had loaded
    bases: int  # number of shards that got a base
    rejected_rows: Sequence[tuple[str, str, str]] = ()
    rejected_files: Sequence[str] = ()
    loaded_before: bool = False


def bulk_load(
    load: BulkLoad,
    settings: Settings,
    pool: TaskPool,
    *,
    has_settings: bool = True,  # whether calls get the settings; else each process uses its own
    tell: Tell = lambda _word, _share: None,
) -> BulkLoaded:
    """Load files into a new collection; the same call resumes an interrupted load.

    ClusterMismatch: the number of shards differs from that of the cluster. CollectionExists: the
    name is taken, or files or options differ from those of the interrupted load. BadFile: a file
    cannot be read, or a row is invalid. Refused: too many collections.
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
        if lost:  # a database that lost its last commits
            raise StoreUnavailable(f"{len(lost)} parts are missing; run the same command again")
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
        before = database.find(load.name) if load.replace else None  # created during the load
        database.rename(number, load.name, None if before is None else before.number, record)
        return replace(
            _answer(done, len(parts), len(parts) - len(missing), shards),
            rejected_rows=[row for at in parts for row in _rejected(load, at, states[at.key])],
            rejected_files=rejected_files,
        )


def _check_end(
    database: Database, load: BulkLoad, settings: Settings, *, writes_here: bool
) -> None:
    """Raise the errors of the final steps before any row is loaded."""
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
    """Return the result of an earlier identical call; with ``replace`` only if it is unchanged."""
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
    """Wait for all calls; BadFile with the message of one that failed."""
    for failure in failures:
        if failure:
            raise BadFile(failure)
        done += 1
        tell(done / every)


def bulk_drop(name: str, settings: Settings) -> bool:
    """Drop the rows of an interrupted bulk load; return whether there were any."""
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
    """Hold the lock of a name for this load; CollectionBusy if another load holds it."""
    with database.connections.lock(f"{database.identity}/bulk/{name}") as alone:
        if alone is None:
            raise ix.CollectionBusy(name, "a bulk load of it is under way")
        yield


# Beginning


def _divide(load: BulkLoad) -> Iterator[FilePart]:
    """Yield the parts of all files in row order."""
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
    """Return a text that changes when a file, or a file of a folder, changes."""
    return hashlib.sha256(repr(file.version).encode()).hexdigest()


def _key_of(load: BulkLoad, parts: Sequence[FilePart]) -> str:
    """Return a digest of the files, the options and the program version."""
    # Resuming may change how bad rows are treated, unless that changes the numbers of rows.
    like: dict[str, Any] = {} if load.first.choices.missing == "drop" else {"lenient": False}
    told = [each._replace(choices=replace(each.choices, **like)) for each in parts]
    config = json.dumps(load.config.to_dict())
    said = repr(told), config, load.expires, load.metadata, load.encoding, program_version()
    return hashlib.sha256(repr(said).encode()).hexdigest()


def _begin(database: Database, load: BulkLoad, key: str, names: list[str] | None, most: int) -> int:
    """Return the number of the collection to fill: a new one, or that of the same interrupted call.

    most: limit on the number of collections.
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
                    "half loaded, from other files or with other options;"
                    f" 'gcws-search bulk drop {load.name}' drops it",
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
    """Return the states of the complete parts."""
    records = [each for each in database.loads(number, 0) if each.key != _JOB]
    found = {each.key: LoadState.read(str(number), each) for each in records}
    return {key: each for key, each in found.items() if each.is_complete}


# A part: called in any process


def load_part(job: Job, part: FilePart) -> str:
    """Store the rows of a part that are missing; return an error message, or an empty text."""
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
    """Return a message about an invalid row of a file."""
    if hasattr(error, "expected"):
        words = source.error_words(error, row)
    else:
        words = f"{source.place(row)}: {_ROW.sub('', str(error))}"
    return f"{source.file.name}: {words}; --on-error skip leaves such rows out"


@contextmanager
def _of_part(database: Database, number: int, key: str) -> Iterator[Connection]:
    """Lend a connection with the lock of a part: an abandoned process may still be storing it."""
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
    """Return a file as items; consecutive parts are usually of one file."""
    place = place_of(path)
    file = Folder(place, encoding) if is_folder else InputFile(place, encoding)
    if _version(file) != version:
        raise BadFile(f"{file.name}: expected the file that the load began with, got another one")
    return source_of(file, choices)


class _Filling(ClusterCollection):
    """A collection with a hidden name, with the methods that `Load` calls; it stores one part."""

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
        self.stored = 0  # rows of the part stored so far

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
        """Return at once: the collection is not searched yet."""


def _read(
    source: Source,
    settings: Settings,
    clock: Callable[[], float],
    _bytes: object,
    _counting: object,
) -> Iterator[ItemRows]:
    """Yield the chunks of a part; rows are numbered as in the file."""
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
    """Yield the chunks of a body as the server reads it."""
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
    """Return a chunk whose rows are numbered as in the file.

    Unreadable rows before its last row are added as rejects; their bytes are not counted.
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
    """Remove and return the unreadable rows before a number; all if None."""
    rest = [each for each in source.unreadable if end is not None and each.row >= end]
    taken = [each for each in source.unreadable if end is None or each.row < end]
    source.unreadable[:] = rest
    return [Reject(each.row, BadFile(each.detail)) for each in taken]


def _rejected(load: BulkLoad, part: FilePart, state: LoadState) -> Iterator[tuple[str, str, str]]:
    for each in state.rejected:
        words = load.first.with_column(_ROW.sub("", each["detail"]))
        yield f"{part.path}: row {each['row']}", each["code"], words


def _write_rejected(
    load: BulkLoad, parts: Sequence[FilePart], states: Mapping[str, LoadState]
) -> list[str]:
    """Write rejected rows next to their files, each as it is in the file."""
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
    """Return rows of a part as they are in the file, by number."""
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
    """Make the indexes of the loaded items; give the collection its head and weights."""
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
    """Return a catalog without shards, in place of a router."""
    shards = SimpleNamespace(epoch=0, seconds=0.0, tell=lambda _: None, wait=lambda _: [])
    router = SimpleNamespace(database=database, shards=shards, renew=lambda _: None)
    return cast(ClusterCatalog, router)


def _shards(database: Database, load: BulkLoad, row: CollectionRow, settings: Settings) -> int:
    """Return the number of shards to build bases for; 0 if replicas use none."""
    shards = database.shards(settings.cell) or settings.shards
    few = database.count(row.number) < load.base_rows * shards
    return 0 if settings.base is None or few else shards


def build_base(
    settings: Settings | None, address: str, row: CollectionRow, shard: int, shards: int
) -> str:
    """Build the file of a shard like a replica, and make it the base; return an error message.

    A file that an interrupted call began here is completed.
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
    """Lend a collection with all items of a shard; BadFile if it cannot be filled."""
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
    """Return the folder in which the files of a collection are built."""
    return settings.data_dir / "bulk" / f"{database.identity}-c{number}"


def _remove_scratch(settings: Settings, database: Database) -> None:
    """Remove local files of collections that other processes have completed or dropped."""
    unfinished = "SELECT number FROM collections WHERE starts_with(name, %b)"
    with database.connections.use() as connection:
        wanted = {_scratch(settings, database, n) for n in connection.column(unfinished, BULK)}
    for folder in (settings.data_dir / "bulk").glob(f"{database.identity}-c*"):
        if folder not in wanted:
            shutil.rmtree(folder, ignore_errors=True)
