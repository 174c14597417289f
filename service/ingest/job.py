"""One load, in its own thread: chunks checked, committed and counted; keys of loads.

With each chunk of a load with an idempotency key, the collection's file stores the number of rows
and bytes read of the body, and the CRC-32 of these bytes. A body that is sent again with the key is
read from its beginning, but its first rows are stored already. An equal CRC shows that it is the
same body.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from gcws_search import index as ix
from gcws_search.service.errors import IdempotencyMismatch
from gcws_search.service.ingest.source import BodyAborted, ItemRows, Reject, Source
from gcws_search.service.problems import document
from gcws_search.service.responses import ids_json

MAX_ENDED: Final = 20
"""Loads of a collection that are remembered."""
_MAX_KEY: Final = 255

Report = Callable[[int, int], None]
"""Called after every commit with the rows committed and rejected so far."""
Read: TypeAlias = Callable[[Source, Callable[[Source], Source]], Iterable[ItemRows]]
"""Returns the chunks of a source, whose plain bytes it counts by the function it is given."""


class Mark(NamedTuple):
    """A position in a body: rows and bytes before it, and the CRC-32 of these bytes."""

    rows: int
    size: int
    crc: int


_START: Final = Mark(0, 0, 0)
_NO_NUMBERS: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class LoadState:
    """The committed state of a load.

    ``parameters``: those of the request, except how bad rows are treated. ``mark``: after the last
    row that was stored or rejected; if ``is_complete``, the end of the body. ``started``: seconds
    since 1970. ``ids``: the first and the last one assigned to rows without ids. ``similar``: rows
    left out as similar to others. ``dropped_count``: rows left out on request.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    parameters: str = ""
    mark: Mark = _START
    inserted: int = 0
    updated: int = 0
    rejected_count: int = 0
    rejected: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0
    started: float = 0.0
    is_complete: bool = False
    ids: tuple[str, str] | None = None
    similar: tuple[dict[str, Any], ...] | None = None
    similar_count: int | None = None
    dropped_count: int | None = None

    def counts(self) -> dict[str, Any]:
        """Return the counts as the API shows them; ``ids`` if rows came without."""
        told: dict[str, Any] = {
            "inserted": self.inserted,
            "updated": self.updated,
            "rejected_count": self.rejected_count,
        }
        if self.ids is not None:
            told["ids"] = ids_json(self.ids)
        if self.dropped_count is not None:
            told["dropped_count"] = self.dropped_count
        return told

    def text(self) -> str:
        """Return the text that `read` parses; older programs ignore its last fields."""
        return _STATES.dump_json(self, exclude_none=True).decode()

    @staticmethod
    def read(name: str, record: ix.LoadRecord) -> LoadState:
        """Return the state of a load of a collection; DamagedFile if its record is unreadable."""
        try:
            return _STATES.validate_json(record.progress)
        except ValidationError as error:
            reason = f"load {record.key!r} is unreadable ({error})"
            raise ix.DamagedFile(name, reason) from error


_STATES: Final = TypeAdapter(LoadState)


class Account:
    """A running or ended load: what was read of its body, and what is committed.

    ``max_listed`` rejected rows are listed, all are counted. ``total_bytes``: of the whole body;
    None if unknown. ``state``: what is committed, including earlier loads with the key. ``before``:
    what these had committed. ``is_of_key``: it is the load of its key, and no different one.
    """

    def __init__(
        self,
        key: str | None,
        max_listed: int,
        total_bytes: int | None = None,
        *,
        tells_similar: bool = False,
    ) -> None:
        self.tells_similar = tells_similar
        self.key = key
        self.max_listed = max_listed
        self.total_bytes = total_bytes
        self.state = self.before = LoadState()
        self.size = 0
        self.started = time.time()
        self.status: Literal["running", "done", "failed", "interrupted"] = "running"
        self.error: str | None = None
        self.is_of_key = True
        self._keep_seconds = 0
        self._clock = time.perf_counter()
        self._seconds: float | None = None
        self._awaited: Mark | None = None
        self._source: Source = bytes
        self._piece = b""
        self._size_before = self._crc_before = self._crc = 0

    @classmethod
    def of_record(cls, collection: ix.StoredCollection, record: ix.LoadRecord) -> Account:
        """Return the account of a load before this start of the service; raises DamagedFile."""
        state = LoadState.read(collection.name, record)
        found = cls(record.key, 0, state.mark.size if state.is_complete else None)
        found.state, found.size, found.started = state, state.mark.size, state.started
        found.status = "done" if state.is_complete else "interrupted"
        found._seconds = max(state.seconds, 1e-9)
        return found

    def go_on(self, collection: ix.StoredCollection, parameters: str, keep_seconds: int) -> None:
        """Continue from the state stored under the key.

        IdempotencyMismatch: the earlier load had other parameters.
        """
        self._keep_seconds = keep_seconds
        found = collection.loads(self.forgotten, self.key)
        if not found:
            self.state = self.before = LoadState(parameters, started=time.time())
            return
        before = LoadState.read(collection.name, found[0])
        if before.parameters != parameters:
            self.is_of_key = False
            raise IdempotencyMismatch(
                f"expected the parameters {before.parameters!r} that were sent under the key "
                f"{self.key!r} at {iso_time(before.started)}, got {parameters!r}"
            )
        self.before = before
        self.state = replace(before, rejected=before.rejected[: self.max_listed])
        self._awaited = before.mark if before.mark.size else None

    def lists(self, earlier: Account) -> bool:
        """Whether it is the load of an `earlier` account, and as far or still running."""
        is_same = self.is_of_key and self.key == earlier.key
        return is_same and (self.status == "running" or self.state.mark == earlier.state.mark)

    def end(self, error: str | None) -> None:
        """Record the end of the load."""
        self._seconds = time.perf_counter() - self._clock
        self.status, self.error = ("done", None) if error is None else ("failed", error)

    @property
    def rate(self) -> float:
        """Rows per second, without rows of earlier loads."""
        seconds = self._seconds or time.perf_counter() - self._clock
        return (self.state.mark.rows - self.before.mark.rows) / max(seconds, 1e-9)

    @property
    def committed(self) -> int:
        """Rows stored."""
        return self.state.inserted + self.state.updated

    def summary(self) -> dict[str, Any]:
        """Return the account as the API shows it."""
        state, before = self.state, self.before
        told = {
            "inserted": state.inserted,
            "updated": state.updated,
            "rejected": state.rejected,
            "rejected_count": state.rejected_count,
            "seconds": round(self._all_seconds(), 6),
        } | state.counts()
        if self.tells_similar:
            told |= {"similar": state.similar or (), "similar_count": state.similar_count or 0}
        stored = self.committed + (state.similar_count or 0) + (state.dropped_count or 0)
        if repeated := state.mark.rows - stored - state.rejected_count:
            told["repeated_count"] = repeated
        if before.is_complete or before.mark.rows:
            told["loaded_before"] = {
                **replace(before, ids=None, dropped_count=None).counts(),
                "started": iso_time(before.started),
                "complete": before.is_complete,
            }
        return told

    def with_chunk(
        self,
        mark: Mark,
        rejects: Sequence[Reject],
        result: ix.WriteResult,
        numbers: ix.Int64s = _NO_NUMBERS,
        dropped: int = 0,
    ) -> LoadState:
        """Return the state after a chunk that ends at a mark.

        ``numbers``: those of its rows. ``dropped``: the count of other rows, which were left out.
        """
        state, ids = self.state, result.ids
        rejected = sorted(rejects, key=lambda reject: reject.number)
        room = max(0, self.max_listed - len(state.rejected))
        told: dict[str, Any] = {}
        if self.tells_similar:
            listed = state.similar or ()
            similar = result.similar[: max(0, self.max_listed - len(listed))]
            rows = (each._replace(row=int(numbers[each.row]))._asdict() for each in similar)
            count = (state.similar_count or 0) + len(result.similar)
            told = {"similar": (*listed, *rows), "similar_count": count}
        if dropped:
            told["dropped_count"] = (state.dropped_count or 0) + dropped
        return replace(
            state,
            mark=mark,
            inserted=state.inserted + result.inserted,
            updated=state.updated + result.updated,
            rejected=(*state.rejected, *map(_reject_json, rejected[:room])),
            rejected_count=state.rejected_count + len(rejected),
            seconds=self._all_seconds(),
            ids=state.ids if ids is None else ((state.ids or ids)[0], ids[1]),
            **told,
        )

    def _all_seconds(self) -> float:
        return self.before.seconds + time.perf_counter() - self._clock

    # The key

    def record(self, state: LoadState) -> ix.LoadRecord:
        """Return the record that the file stores under the key."""
        if self.key is None:
            raise ValueError("a load without a key keeps nothing")
        return ix.LoadRecord(self.key, int(time.time()), state.text())

    @property
    def forgotten(self) -> int:
        """Keys unused since this second are deleted."""
        return int(time.time()) - self._keep_seconds

    def counting(self, source: Source) -> Source:
        """Return a source that is counted; with a key it is compared with the earlier body.

        It raises IdempotencyMismatch at different bytes, fewer, or more than a whole body had.
        """
        self._source = source
        return self._take

    def _take(self) -> bytes:
        piece = self._source()
        if self.key is None:
            self.size += len(piece)
            return piece
        if not piece:
            if self._awaited is not None:
                raise self._mismatch(is_whole=True)
            return piece
        self._piece, self._size_before, self._crc_before = piece, self.size, self._crc
        self.size += len(piece)
        self._crc = zlib.crc32(piece, self._crc)
        mark = self.before.mark
        if self._awaited is not None and self.size >= mark.size:
            if self._crc_of(mark.size) != mark.crc:
                raise self._mismatch()
            self._awaited = None
        if self.before.is_complete and self.size > mark.size:
            raise self._mismatch()
        return piece

    def _crc_of(self, size: int) -> int:
        """Return the CRC-32 of the first ``size`` bytes, which end in the last piece."""
        return zlib.crc32(self._piece[: size - self._size_before], self._crc_before)

    def require_same(self) -> None:
        """Read the body up to the committed mark; IdempotencyMismatch if it differs."""
        while self._awaited is not None:
            self._take()

    def mark(self, rows: int, size: int) -> Mark:
        """Return the position after ``rows`` rows and ``size`` bytes."""
        return Mark(rows, size, 0 if self.key is None else self._crc_of(size))

    def end_mark(self) -> Mark:
        """Return the position at the end of the body, after all rows are committed."""
        return Mark(self.state.mark.rows, self.size, self._crc)

    def _mismatch(self, *, is_whole: bool = False) -> IdempotencyMismatch:
        """Return the error for a different body after ``size`` bytes."""
        self.is_of_key = False
        announced = self.total_bytes or 0
        got = f"another one of {max(self.size, announced)} bytes"
        if not is_whole and self.size > announced:
            got = f"another one of {self.size} bytes or more"
        mark = self.before.mark
        size = f"of {mark.rows} rows in {mark.size} bytes"
        if not self.before.is_complete:
            size = f"whose first {mark.rows} rows in {mark.size} bytes are stored,"
        return IdempotencyMismatch(
            f"expected the body {size} that was sent under the key {self.key!r} at "
            f"{iso_time(self.before.started)}, got {got} at {iso_time(time.time())}"
        )


def require_key(key: str) -> None:
    """Raise InvalidParameter unless a key is 1 to 255 characters of printable ASCII."""
    if not (1 <= len(key) <= _MAX_KEY and key.isascii() and key.isprintable()):
        raise ix.InvalidParameter(
            expected=f"1 to {_MAX_KEY} characters of printable ASCII",
            got=repr(key)[:80],
            loc=("Idempotency-Key",),
        )


def iso_time(seconds: float) -> str:
    """Return a time in ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _reject_json(reject: Reject) -> dict[str, Any]:
    found = document(reject.error)
    return {"row": reject.number, "code": found["code"], "detail": found["detail"]}


class Loads:
    """The running loads of all collections, and the last ended ones; on the event loop alone."""

    def __init__(self) -> None:
        self._ended: WeakKeyDictionary[object, deque[Account]] = WeakKeyDictionary()
        self._running: list[tuple[object, Account]] = []

    @contextmanager
    def running(self, collection: ix.StoredCollection, account: Account) -> Iterator[None]:
        """List a load as running, and afterwards as ended.

        CollectionBusy: another load with its key is running.
        """
        key = account.key
        if key is not None and any(other.key == key for other in self._of(collection)):
            raise ix.CollectionBusy(collection.name, f"a load under the key {key!r} is under way")
        running = collection, account
        self._running.append(running)
        error: str | None = None
        try:
            yield
        except BaseException as found:
            error = str(found) or "the request ended early"
            raise
        finally:
            account.end(error)
            self._running.remove(running)
            self._ended.setdefault(collection, deque(maxlen=MAX_ENDED)).append(account)

    def of(self, collection: ix.StoredCollection) -> list[Account]:
        """Return the loads of a collection, latest first, running ones before others."""
        ended = self._ended.get(collection, ())
        return [*reversed(self._of(collection)), *reversed(ended)]

    def _of(self, collection: ix.StoredCollection) -> list[Account]:
        return [account for owner, account in self._running if owner is collection]


class LoadFailed(Exception):  # carries the error that ended a load, and its account
    """The load ended before its body, with ``error``; ``account`` has what was committed.

    ``row``: the number of the row that ended it; None without one.
    """

    def __init__(self, error: Exception, account: Account, row: int | None = None) -> None:
        self.error = error
        self.account = account
        self.row = row
        super().__init__("" if isinstance(error, BodyAborted) else document(error)["detail"])


@dataclass(slots=True)
class _Staged:
    """A chunk ready to be committed: ``put`` is None if nothing of it can be stored."""

    chunk: ItemRows
    rejects: list[Reject]
    mark: Mark
    dropped: int
    put: Any = None

    def leave_out(self, bad: dict[int, Reject]) -> None:
        keep = np.ones(len(self.chunk), np.bool_)
        keep[[*bad]] = False
        self.chunk = self.chunk.part(np.flatnonzero(keep))
        self.rejects += bad.values()


@dataclass(frozen=True, slots=True)
class Load:
    """A load: its collection, its options, its account.

    ``require_room`` raises if nothing more can be stored. After ``stop`` is set the load soon ends
    with `BodyAborted`. ``expires``: for rows without their own. ``settle`` is called after the last
    row is stored.
    """

    collection: ix.StoredCollection
    account: Account
    mode: ix.Mode
    on_error: Literal["stop", "skip"]
    require_room: Callable[[], None]
    keeps_payloads: bool = False
    expires: str | None = None
    settle: Callable[[], None] = lambda: None
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, read: Read, source: Source, report: Report) -> None:
        """Commit each chunk of the source; LoadFailed: chunks committed before stay."""
        account = self.account
        try:
            with self.collection.names.reading():
                self._commit_all(read, source, report)
            self.collection.wait_until_found()
            if account.key is not None and not account.before.is_complete:
                state = account.with_chunk(account.end_mark(), [], ix.WriteResult(0, 0))
                record = account.record(replace(state, is_complete=True))
                self.collection.save_load(record, account.forgotten)
        except BodyAborted as error:
            raise LoadFailed(error, account) from error
        except Exception as error:
            try:
                account.require_same()
            except IdempotencyMismatch as mismatch:  # before any other error of a different body
                raise LoadFailed(mismatch, account) from mismatch
            except Exception:
                pass
            if isinstance(error, Reject):
                error.__traceback__ = None  # its frames and the chunk are a cycle
                raise LoadFailed(error.error, account, error.number) from error
            raise LoadFailed(error, account) from error

    def _commit_all(self, read: Read, source: Source, report: Report) -> None:
        # A chunk is stored while the next one is read and hashed.
        with ThreadPoolExecutor(
            1, thread_name_prefix="gcws-load", initializer=ix.give_way
        ) as storage:
            storing = deque[Future[None]]()  # removed before its error is raised
            try:
                for chunk in read(source, self.account.counting):
                    if self.stop.is_set():
                        raise BodyAborted
                    if chunk.end <= self.account.before.mark.rows:
                        continue  # stored or rejected before
                    staged = self._stage(chunk)
                    if storing:
                        storing.pop().result()
                    storing.append(storage.submit(self._store, staged, report))
            finally:
                try:
                    if storing:
                        storing.pop().result()  # raises the error of an earlier chunk
                finally:
                    self.settle()

    def _stage(self, whole: ItemRows) -> _Staged:
        """Check and hash a chunk: the whole chunk, or its valid rows."""
        mark = self.account.mark(whole.end, whole.size)
        chunk = whole.after(self.account.before.mark.rows)
        self._stop_at(chunk.rejects)
        self.require_room()
        staged = _Staged(chunk, [*chunk.rejects], mark, len(chunk.dropped))
        self._prepare(staged)
        return staged

    def _prepare(self, staged: _Staged) -> None:
        def progress(result: ix.WriteResult) -> ix.LoadRecord:
            return self.account.record(self._state_after(staged, result))

        staged.put = None
        while len(staged.chunk):
            chunk = staged.chunk
            try:
                raw = self._check(chunk.vectors)
                staged.put = self.collection.prepare(
                    ix.ItemBatch(chunk.ids, raw, chunk.payloads, expires=self._expires(chunk)),
                    self.mode,
                    keeps_payloads=self.keeps_payloads,
                    progress=None if self.account.key is None else progress,
                )
            except ix.InvalidVector as error:
                staged.leave_out(self._bad_vectors(chunk, error))
            except ix.ItemExists as error:
                staged.leave_out(self._known_items(chunk, error))
            else:
                return

    def _store(self, staged: _Staged, report: Report) -> None:
        """Commit a chunk: the whole chunk, or its new rows if requested."""
        result = ix.WriteResult(0, 0)
        while (put := staged.put) is not None:
            staged.put = None  # releases the staged items
            try:
                result = self.collection.commit(put)
                break
            except ix.ItemExists as error:
                staged.leave_out(self._known_items(staged.chunk, error))
                self._prepare(staged)
        account = self.account
        account.state = self._state_after(staged, result)
        report(account.committed, account.state.rejected_count)

    def _state_after(self, staged: _Staged, result: ix.WriteResult) -> LoadState:
        return self.account.with_chunk(
            staged.mark, staged.rejects, result, staged.chunk.numbers, staged.dropped
        )

    def _expires(self, chunk: ItemRows) -> Sequence[int | None]:
        if self.expires is None:
            return chunk.expires
        at = ix.expiry_ms(self.expires, now=self.collection.clock())
        return [at if own is None else own for own in chunk.expires or [None] * len(chunk)]

    def _check(self, vectors: ix.InputVectors) -> ix.RawBatch:
        return vectors.check(self.collection.space, self.collection.names.reserve)

    def _bad_vectors(self, chunk: ItemRows, error: ix.InvalidVector) -> dict[int, Reject]:
        def check(rows: slice) -> None:  # only the transform shows that some vectors are invalid
            self.collection.space.prepare(self._check(chunk.vectors.part(rows)))

        word = self.collection.space.word
        self._stop_at([_vector_reject(chunk, error, int(error.loc[0]) if error.loc else 0, word)])
        bad = ix.bad_rows(len(chunk), check, ix.InvalidVector)
        if not bad:  # the store checks more than this function
            raise error
        return {row: _vector_reject(chunk, found, row, word) for row, found in bad.items()}

    def _known_items(self, chunk: ItemRows, error: ix.ItemExists) -> dict[int, Reject]:
        """Return a reject for each row whose id exists, or occurs before it."""
        self._stop_at([Reject(int(chunk.numbers[error.row]), error)])
        taken = ix.taken_rows(chunk.ids, error, self.collection.get)
        return {
            row: Reject(int(chunk.numbers[row]), ix.ItemExists(item_id, row))
            for row, item_id in taken.items()
        }

    def _stop_at(self, rejects: list[Reject]) -> None:
        if rejects and self.on_error == "stop":
            raise min(rejects, key=lambda reject: reject.number)


def _vector_reject(chunk: ItemRows, error: ix.InvalidVector, row: int, word: str) -> Reject:
    """Return the reject of a row; the error's place begins with its number in a check."""
    bare = ix.InvalidVector(expected=error.expected, got=error.got, loc=error.loc[1:])
    return Reject(int(chunk.numbers[row]), bare, word)
