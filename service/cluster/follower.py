"""One collection of a shard: applies the changes in the database in the order of commits.

Deleted ids are applied first, then rows in chunks; each chunk's commit stores the position. Rows
are read in their current state, so deletes and rows may be applied again after a kill.

A router sends the changes of its commits. A collection that has everything before such a change
applies it without a query of the database. Changes that it misses are read from the database.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from gcws_search import index as ix
from gcws_search.formats.stores import StoreFailed
from gcws_search.service.cluster.bases import Base, Bases
from gcws_search.service.cluster.contract import (
    START,
    ChangeSet,
    CollectionRow,
    HistoryLost,
    Moment,
    Position,
    Row,
    buckets_of,
    items_of,
)
from gcws_search.service.cluster.database import Changes, Database
from gcws_search.service.errors import StoreUnavailable

_EMPTY: Final = -1  # position of a collection that has not been filled yet

_LAST: Final = 1 << 63  # greater than all keys

_RECORD_KEY: Final = "position"  # key of a file's position among the records of loads

_MORE_ROOM: Final = 1.1
# How long a file that did not fit is not refilled, unless more room becomes free.
_REFILL_SECONDS: Final = 600.0
_CHUNK_BYTES: Final = 1 << 25  # approximate bytes of vectors per commit
_CANNOT_STORE: Final = (ix.DiskFull, ix.StorageFailed, ix.OutOfDescriptors)

_log = logging.getLogger(__name__)


class Place(NamedTuple):
    """The part of a cluster that a file belongs to."""

    cluster: str  # the identity of the cluster
    shard: int
    shards: int
    buckets: int


class FilePosition(NamedTuple):
    """The position of a file."""

    position: Position
    whole: int  # the last key at which it was complete; -1 before the first
    epoch: int = 0  # number of the primary's epoch that was read last


def position_record(place: Place, followed: FilePosition) -> ix.LoadRecord:
    """Return the record of a position that a file stores."""
    key, commit, stamp = followed.position
    said = {**place._asdict(), "key": key, "commit": commit, "stamp": stamp.hex()}
    said |= {"whole": followed.whole, "epoch": followed.epoch}
    return ix.LoadRecord(_RECORD_KEY, int(time.time()), orjson.dumps(said).decode())


def read_position(collection: ix.StoredCollection, place: Place) -> FilePosition | None:
    """Return the position of a file; None if it is unusable for this place."""
    try:
        [record] = collection.loads(0, _RECORD_KEY)
        said = orjson.loads(record.progress)
        if Place(*(said[name] for name in Place._fields)) != place:
            return None
        position = Position(said["key"], said["commit"], bytes.fromhex(said["stamp"]))
        return FilePosition(position, said["whole"], said.get("epoch", 0))
    except (KeyError, TypeError, ValueError):
        return None


_NOTHING: Final = FilePosition(START, _EMPTY)


@dataclass(frozen=True, slots=True)
class HostOptions:
    """Options of a shard and of its followers."""

    address: str = ""  # of its HTTP server, for routers; empty: determined otherwise
    replica: int = 0  # its number among the replicas of the shard
    cell: str = "main"
    shares_memory: bool = False  # whether the replicas of its host share one memory limit
    compiles: bool = False  # whether to compile kernels before anything is read
    poll_seconds: float = 1.0  # how often the list of collections is read
    # how often the database deletes what no replica needs; listed replicas do so
    trim_seconds: float = 600.0
    chunk_rows: int = 4096  # rows of one commit
    base: str = ""  # address of the bases; empty: replicas read everything from the database
    base_rows: int = 10_000  # a collection with fewer items in a shard has no base
    base_seconds: float = 5.0  # interval of checks whether a base is due
    offload: bool = False  # whether to move vectors that bases have out of the database
    segment_bytes: int = 1 << 26  # of vectors in a file
    check_seconds: float = 10.0  # interval of queries for a collection whose head has not changed
    # limit of queued changes from routers; beyond it, all are read from the database
    queue_bytes: int = 1 << 26
    # how long to wait on a full disk before the file is dropped and filled again, and before a
    # backend that could not be attached is tried again
    full_seconds: float = 60.0
    # called with the share of memory that others sharing the limit use; returns why nothing more
    # can be stored, None if it can
    full: Callable[[float], Exception | None] = lambda _: None


class _Failure(NamedTuple):
    """Why a backend could not be attached, and when (`monotonic`) to try again."""

    row: ix.BackendRecord
    reason: str
    rests_until: float


class Follower:
    """Follows one collection; see the module."""

    def __init__(  # noqa: PLR0913
        self,
        row: CollectionRow,
        place: Place,
        database: Database,
        catalog: ix.Catalog,  # of the shard's files
        submit: Callable[[Callable[[], None]], object],  # runs a function in a thread
        options: HostOptions,
        *,
        # returns whether another replica of the shard has all items, and can store more
        has_sister: Callable[[], bool],
        bases: Bases | None,  # of the shard; None: everything is read from the database
    ) -> None:
        self._row = row
        self.number = row.number
        self.name = name_of(row.served)
        self.reached = _EMPTY  # all changes up to this key are applied; -1 during a fill
        self.head = row.head  # the last key seen in the database
        self._whole_at = time.monotonic()  # last time at which it was complete
        # Rows contain their own expiry.
        self._config = replace(ix.CollectionConfig.from_dict(row.config), ttl=None)
        self._weights = None if row.weights is None else ix.Weights.from_text(row.weights)
        self._place = place
        self._database = database
        self._catalog = catalog
        self._submit = submit
        self._options = options
        self._has_sister = has_sister
        self._bases = bases
        self._base_file = ""  # the last base that was read or tried
        self._full_since: float | None = None
        self._is_discarded = False
        self._tried_bytes = 0.0
        self._tried_at = 0.0
        self._position = START
        self._collection: ix.StoredCollection | None = None
        self._changed = threading.Condition()
        self._wanted = _EMPTY
        self._queue: list[ChangeSet] = []
        self._queued_bytes = 0
        self._is_running = False
        self._is_stopping = False
        self._is_damaged = False
        self._checked = float("-inf")
        self._last_error = ""
        self._listing = threading.Lock()
        self._listed: set[str] = set()  # backends that the database lists
        self._failed: dict[str, _Failure] = {}  # backends that could not be attached
        self._attaching: threading.Thread | None = None
        self.fills = 0  # number of times that the file was unusable and filled again
        self.base_reads = 0  # number of times that the file started from a base
        self.base_failures = 0  # number of unusable bases
        self.failures = 0  # number of failures to follow the database
        self.refusal = ""  # why nothing more can be stored; empty if it can
        # why queries are refused: the database of this epoch has lost changes that were applied
        self.dispute = ""
        self.epoch = 0  # number of the primary's epoch that was read last
        self._memory = database.connections.memory

    @property
    def collection(self) -> ix.StoredCollection | None:
        """The items; None while they are read or filled."""
        return self._collection if self.reached > _EMPTY else None

    def see(self, head: int) -> None:
        """Record the last key of the database."""
        if self.reached >= self.head:
            self._whole_at = time.monotonic()
        self.head = head

    @property
    def seconds_behind(self) -> float:
        """How long a change has been missing; 0 if all known changes are applied."""
        return 0.0 if self.reached >= self.head else time.monotonic() - self._whole_at

    # Asking

    def is_due(self, head: int) -> bool:
        """Return whether to query the database, by the key that it has reached."""
        idle = time.monotonic() - self._checked
        return self.reached != head or idle > self._options.check_seconds

    def wake(self, key: int = _LAST, *, here: bool = False) -> None:
        """Follow unless a key has been reached: in another thread, or in this one."""
        with self._changed:
            self._wanted = max(self._wanted, key)
            if self._is_running or self._is_stopping:
                return
            self._is_running = True
        try:
            if here:
                self._run()
            else:
                self._submit(self._run)
        except BaseException as error:  # the threads have ended, or this one is interrupted
            with self._changed:
                self._is_running = False
                self._changed.notify_all()
            if not isinstance(error, RuntimeError):
                raise

    def take(self, changes: Sequence[ChangeSet]) -> None:
        """Queue the changes of commits, in order; apply them when a message waits for them."""
        with self._changed:
            self._queue += changes
            self._queued_bytes += sum(each.nbytes for each in changes)
            if self._queued_bytes > self._options.queue_bytes:
                self._queue, self._queued_bytes = [], 0

    def _is_sent(self, key: int) -> bool:
        """Return whether all changes up to a key are queued: applying them is fast."""
        with self._changed:
            sent = self._queue
            is_next = bool(sent) and sent[0].before == self._position and self.reached > _EMPTY
            return is_next and sent[-1].after.key >= key

    def has(self, key: int, epoch: int | None = None) -> bool:
        """Return whether a key of an epoch has been reached; None: of the last known epoch.

        Data of a former primary is not served: its successor may not have it.
        """
        last = max(self._memory.number, epoch or 0)
        wanted = Moment(last, max(0, key) if epoch in (None, last) else 0)
        is_there = self.reached > _EMPTY and not self.dispute
        return is_there and Moment(self.epoch, self.reached) >= wanted

    def wait(self, key: int, seconds: float, epoch: int | None = None) -> bool:
        """Follow until a key of an epoch has been reached; return whether it has."""
        if not self.has(key, epoch):
            wanted = _LAST if self.epoch < self._memory.number else max(key, 0)
            self.wake(wanted, here=self._is_sent(wanted))
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_stopping or self.has(key, epoch), max(0.0, seconds)
                )
        return self.has(key, epoch)

    def note_damage(self) -> None:
        """Refill the file, which is damaged."""
        self._is_damaged = True
        self.wake()

    def stop(self) -> None:
        """Stop at the next chunk; return when the work has ended."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_running)

    def drop(self) -> None:
        """Remove the file."""
        self.stop()
        self._discard()

    # Following: one thread at a time

    def _run(self) -> None:
        while (wanted := self._next()) is not None:
            try:
                self._follow(wanted)
            except (CancelledError, ix.CollectionNotFound, ix.CollectionLoading):
                continue  # the list of collections will show its state
            except Exception as error:
                self._note(error)
            else:
                self._last_error = self.refusal = self.dispute = ""
                self._full_since, self._tried_bytes = None, 0.0

    def _next(self) -> int | None:
        """Return the key to follow to, `_LAST` for the database's last; None if there is no work.

        A later request starts a new run.
        """
        with self._changed:
            wanted, self._wanted = self._wanted, _EMPTY
            self._is_running = wanted > self.reached and not self._is_stopping
            self._changed.notify_all()
            return wanted if self._is_running else None

    def _note(self, error: Exception) -> None:
        """Log why the collection is not followed; repeated errors are logged once."""
        self.failures += 1
        text = f"{type(error).__name__}: {error}"
        if text != self._last_error:
            is_known = isinstance(error, StoreUnavailable | ix.StoreError)
            _log.warning(
                "collection %d is not followed now (%s)",
                self.number,
                text,
                exc_info=None if is_known else error,
            )
        self._last_error = text
        self.refusal = str(error) if isinstance(error, _CANNOT_STORE) else ""

    def _follow(self, wanted: int) -> None:
        """Follow; drop and refill a file that blocks its own growth."""
        if not self._is_discarded:
            try:
                self._follow_file(wanted)
            except ix.DiskFull:
                now = time.monotonic()
                self._full_since = self._full_since or now
                if now - self._full_since < self._options.full_seconds:
                    raise
                if self.reached > _EMPTY and not self._has_sister():
                    raise  # queries still need this file
            else:
                return
        self._fill_where_room()

    def _fill_where_room(self) -> None:
        """Drop the file; fill another one if there is more room than was insufficient before."""
        self._discard()
        room, now = self._catalog.free_bytes, time.monotonic()
        is_recent = now - self._tried_at < _REFILL_SECONDS
        if is_recent and room <= _MORE_ROOM * self._tried_bytes:
            raise ix.DiskFull(self.name)
        self._tried_bytes, self._tried_at = room, now
        try:
            self._apply_changes(self._empty("its disk was full"))
        except ix.DiskFull:
            self._discard()  # other files on this disk need the room
            raise

    def _discard(self) -> None:
        """Drop the file, if it exists."""
        self._is_discarded = True
        self.reached, self._collection = _EMPTY, None
        with suppress(ix.CollectionNotFound):
            self._catalog.drop(self.name)

    def _follow_file(self, wanted: int) -> None:
        """Apply the queued changes; read the others from the database."""
        collection = self._open()
        try:
            self._apply_queue(collection)
            if wanted <= self.reached:
                return
            self._apply_changes(collection)
        except HistoryLost as error:
            if not error.is_forgotten and 0 < self.epoch == self._memory.number:
                self.dispute = (
                    f"collection {self.number}: the database has forgotten a commit of"
                    f" {self._memory.last}; it may be an older copy of itself, which"
                    " 'gcws-search cluster adopt' has taken"
                )
                raise StoreUnavailable(self.dispute) from None
            self._apply_changes(self._empty(str(error)))
        except ix.DamagedFile as error:
            if error.name != self.name:  # of the database: not repaired here
                raise
            self._apply_changes(self._empty(error.reason))
        except ix.InvalidInput as error:
            if self._position == START:
                raise
            reason = f"it has other rows than the database had: {error}"
            self._apply_changes(self._empty(reason))
        self._checked = time.monotonic()

    def _open(self) -> ix.StoredCollection:
        """Return the collection; create a missing file."""
        if self._is_damaged:
            self._is_damaged = False
            return self._empty("an item read for a search was not what was written")
        if self._collection is not None:
            return self._collection
        try:
            found = self._catalog.get(self.name)
            known = read_position(found, self._place)
        except ix.CollectionNotFound:
            return self._fill()
        except (ix.DamagedFile, ix.IncompatibleFile) as error:
            return self._empty(str(error))
        # It was created just before a kill; one whose items were deleted has a record.
        if known is None and not (len(found) or found.loads(0, _RECORD_KEY)):
            known = _NOTHING
            self._use_weights(found)
        if known is None or found.config != self._config:
            return self._empty("it is of another cluster or shard")
        self._take(found, known)
        return found

    def _empty(self, reason: str) -> ix.StoredCollection:
        """Recreate the file without items."""
        _log.warning("collection %d is filled again: %s", self.number, reason)
        self.fills += 1
        self._discard()
        return self._fill()

    def _fill(self) -> ix.StoredCollection:
        """Create the file: from a usable base if there is one, else without items."""
        if (begun := self._read_base()) is None:
            begun = self._catalog.create(self.name, self._config)[0], _NOTHING
            self._use_weights(begun[0])
        self._take(*begun)
        return begun[0]

    def _read_base(self) -> tuple[ix.StoredCollection, FilePosition] | None:
        """Return the collection and the position of its base; None if no base is usable.

        No base is tried twice. If one was replaced and removed during the read, the next is tried.
        """
        while self._bases is not None:
            base = self._bases.current().get(self._row.served)
            if base is None or base.file == self._base_file:
                break
            if base.nbytes > self._catalog.free_bytes:
                raise ix.DiskFull(self.name)
            self._base_file = base.file
            try:
                found = self._catalog.receive(self.name, self._bases.read(base, self._require_run))
                known, reason = read_position(found, self._place), "it is of another shard"
                if known is not None and found.config == self._config:
                    self.base_reads += 1
                    return found, known
            except (StoreFailed, ix.DamagedFile, ix.IncompatibleFile) as error:
                reason = str(error)
            self._discard()
            self.base_failures += 1
            _log.warning("collection %d: base %s is of no use: %s", self.number, base.file, reason)
        return None

    def _require_run(self) -> None:
        """Raise CancelledError once this follower is to stop."""
        if self._is_stopping:
            raise CancelledError

    def write_base(self, base: Base | None, scratch: Path) -> None:
        """Replace the shard's base by a copy of the file if that is due.

        A running optimization of the index is waited for: the index is part of the file.
        """
        collection, key = self.collection, self.reached
        if self._bases is None or collection is None or self.dispute:
            return
        items = len(collection)
        is_due = items >= self._options.base_rows and self._bases.is_due(base, key, items)
        if not is_due or collection.optimizer.is_due():
            return
        began = time.monotonic()
        try:
            is_written = self._bases.write(self._row, key, collection, scratch, self._require_run)
        except (OSError, ix.GcwsError):
            if self.collection is not collection:  # its file was dropped since
                raise CancelledError from None
            raise
        if is_written:
            seconds = time.monotonic() - began
            _log.info("collection %d has a base of %d items (%.1f s)", self.number, items, seconds)

    def _use_weights(self, collection: ix.StoredCollection) -> None:
        """Give an empty collection the weights of its generation."""
        if self._weights is not None:
            collection.use_weights(self._weights)

    def _take(self, collection: ix.StoredCollection, known: FilePosition) -> None:
        self._is_discarded = False
        self._position, self.epoch = known.position, known.epoch
        self._failed, self._attaching, self._collection = {}, None, collection
        self._reach(known.whole)

    def _reach(self, key: int) -> None:
        with self._changed:
            self.reached = key
            self._changed.notify_all()

    def _apply_queue(self, collection: ix.StoredCollection) -> None:
        """Apply changes from routers while each starts where the last one ended."""
        with self._changed:
            changes, self._queue, self._queued_bytes = self._queue, [], 0
        after, deleted, rows = self._position, dict[str, None](), dict[str, Row]()
        for change in changes:
            if change.before != after:
                continue
            after = change.after
            for item_id in change.deleted:
                rows.pop(item_id, None)
                deleted[item_id] = None
            for row in change.rows:
                rows.pop(row.id, None)  # keeps them in the order of keys
                rows[row.id] = row
        if after != self._position:
            ordered, size = [*rows.values()], self._chunk_rows(collection)
            chunks = [ordered[at : at + size] for at in range(0, len(ordered), size)]
            self._apply(collection, (after, [*deleted], iter(chunks), self.epoch))
            self._reach(after.key)

    def _apply_changes(self, collection: ix.StoredCollection) -> None:
        place, known = self._place, self._position
        buckets = buckets_of(place.shard, place.shards, place.buckets)
        with self._database.changes(
            self.number, buckets, known, self._chunk_rows(collection)
        ) as changes:
            self._apply(collection, changes)
        head, _, _, epoch = changes
        if Moment(self.epoch, self.reached) != Moment(epoch, head.key):
            self.epoch = epoch
            self._reach(head.key)
        if known == START or self.is_due(self.reached):
            self.follow_backends()

    def _chunk_rows(self, collection: ix.StoredCollection) -> int:
        options, config = self._options, collection.config
        if config.form == "sparse" or config.dim is None:
            return options.chunk_rows
        return max(1, min(options.chunk_rows, _CHUNK_BYTES // (4 * config.dim)))

    def _apply(self, collection: ix.StoredCollection, changes: Changes) -> None:
        """Apply changes; the last commit stores the position after all of them."""
        head, deleted, chunks, epoch = changes
        chunk = next(chunks, None)
        if chunk is None:
            if self._position != head or self.epoch != epoch:
                self._require_run()
                known = position_record(self._place, FilePosition(head, head.key, epoch))
                if deleted:
                    collection.delete(deleted, known)
                else:
                    collection.save_load(known, 0)
                self._position = head
            return
        if deleted:
            collection.delete(deleted)
        while chunk is not None:
            self._require_run()
            following = next(chunks, None)
            if following is None:
                self._put(collection, chunk, FilePosition(head, head.key, epoch))
            else:
                position = Position(chunk[-1].key, head.commit, head.stamp)
                self._put(collection, chunk, FilePosition(position, self.reached, epoch))
            chunk = following

    def _put(
        self, collection: ix.StoredCollection, rows: Sequence[Row], reached: FilePosition
    ) -> None:
        """Put rows under their keys; the commit stores the position."""
        known = position_record(self._place, reached)
        write = collection.prepare(
            items_of(rows, collection.space),
            progress=lambda _: known,
            sequences=[row.key for row in rows],
        )
        collection.commit(write)
        self._position = reached.position

    # Backends: attached in the background

    def follow_backends(self) -> list[str]:
        """Drop unlisted backends, start to attach missing ones; return those that are ready."""
        collection = self._collection
        if collection is None:
            return []
        with self._listing:  # lists are applied in the order in which they were read
            wanted = {row.name: row for row in self._database.backends(self.number)}
            self._listed = {*wanted}
            self._failed = {
                name: each for name, each in self._failed.items() if wanted.get(name) == each.row
            }
            ready = collection.memory.view.attached
            there = {name: indexed.params for name, indexed in ready.items()}
            there |= {each.name: each.params for each in collection.attached_backends.building}
            for name, params in there.items():
                if name not in wanted or _params(wanted[name]) != params:
                    with suppress(ix.BackendNotFound):
                        collection.detach(name)
            now = time.monotonic()
            resting = (name for name, each in self._failed.items() if now < each.rests_until)
            known = {*there, *resting}
            missing = [row for name, row in wanted.items() if name not in known]
            if missing and (self._attaching is None or not self._attaching.is_alive()):
                self._attaching = threading.Thread(
                    target=self._attach, args=(collection, missing), daemon=True
                )
                self._attaching.start()
        return [*collection.memory.view.attached]

    @property
    def failed_backends(self) -> dict[str, str]:
        """Backends that could not be attached here, with the reasons."""
        return {name: each.reason for name, each in self._failed.items()}

    def expects_backend(self, name: str, seconds: float) -> bool:
        """Return whether the database lists a backend; wait while it is attached here."""
        with suppress(StoreUnavailable):  # the known list is used
            self.follow_backends()
        if name in self._listed and (thread := self._attaching) is not None:
            thread.join(seconds)
        return name in self._listed

    def _attach(self, collection: ix.StoredCollection, rows: Sequence[ix.BackendRecord]) -> None:
        for row in rows:
            began = time.monotonic()
            failed = dict[str, _Failure]()
            try:
                collection.attach(_params(row), row.name, row.notes)
            except (ix.CollectionNotFound, ix.CollectionLoading):
                return
            except (ix.BackendExists, ix.BackendNotFound):
                pass
            except Exception as error:
                # A replica without room spends at most half of the time on attempts.
                rest = max(self._options.full_seconds, time.monotonic() - began)
                reason = str(error) or type(error).__name__
                failed[row.name] = _Failure(row, reason, time.monotonic() + rest)
                if self.failed_backends.get(row.name) != reason:
                    text = "collection %r: backend %r cannot be attached (%s)"
                    _log.warning(text, collection.name, row.name, error)
            with self._listing:
                if collection is self._collection:
                    others = {n: each for n, each in self._failed.items() if n != row.name}
                    self._failed = others | failed


def name_of(number: int) -> str:
    """Return the name of a collection's file."""
    return f"c{number}"


def number_of(name: str) -> int | None:
    """Inverse of `name_of`; None for another file."""
    digits = name.removeprefix("c")
    is_ours = digits.isascii() and digits.isdecimal() and name == f"c{int(digits)}"
    return int(digits) if is_ours else None


def _params(row: ix.BackendRecord) -> ix.BackendParams:
    return ix.backend_params(row.kind, orjson.loads(row.params))
