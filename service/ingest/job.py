"""One load, in its own thread: check, commit and count chunks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from gcws_search import index as ix
from gcws_search.index import Int64s
from gcws_search.service.contract import CollectionProtocol
from gcws_search.service.errors import IdempotencyMismatch, InvalidRequest
from gcws_search.service.ingest.load_keys import BodyCount, LoadKey, LoadState, Mark, iso_time
from gcws_search.service.ingest.names import Naming
from gcws_search.service.ingest.rows import ItemRows, Reject, RowError
from gcws_search.service.ingest.source import BodyAborted, Source
from gcws_search.service.problems import document
from gcws_search.service.responses import ids_json

Report = Callable[[int, int], None]
"""Called after every commit with the rows committed and rejected so far."""


class LoadFailed(Exception):  # carries the error that ended a load, and its account
    """The load ended before the body did, by ``error``; ``account`` has what was committed."""

    def __init__(self, error: Exception, account: Account) -> None:
        self.error = error
        self.account = account
        super().__init__(document(error)["detail"])

    @property
    def row(self) -> int | None:
        """Number of the row that ended the load; None if none did."""
        match self.error:
            case ix.InvalidInput(loc=("rows", int(row), *_)) | ix.ItemExists(row=row):
                return row
            case InvalidRequest() as found if found.errors[0][0][:1] == ("rows",):
                return int(found.errors[0][0][1])
            case RowError(row=row):
                return row
        return None


@dataclass(slots=True)
class Account:
    """A load under way.

    ``max_listed`` rejected rows are listed, all are counted. ``state`` is what has been committed,
    under a key by earlier attempts too, of which ``before`` is None where there were none.
    """

    max_listed: int
    count: BodyCount
    state: LoadState
    before: LoadState | None = None
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """How long the load has taken."""
        seconds = 0.0 if self.before is None else self.before.seconds
        return seconds + time.perf_counter() - self.started

    @property
    def committed(self) -> int:
        """Rows stored."""
        return self.state.inserted + self.state.updated

    def summary(self) -> dict[str, Any]:
        """Return the account as the API shows it."""
        state = self.state
        told: dict[str, Any] = {
            "inserted": state.inserted,
            "updated": state.updated,
            "rejected": state.rejected,
            "rejected_count": state.rejected_count,
            "seconds": round(self.seconds, 6),
        }
        if state.ids is not None:
            told["ids"] = ids_json(state.ids)
        if self.before is not None:
            told["loaded_before"] = {
                **replace(self.before, ids=None).counts(),
                "started": iso_time(self.before.started),
                "complete": self.before.is_complete,
            }
        return told

    def with_chunk(
        self, mark: Mark, rejects: Sequence[Reject], result: ix.WriteResult
    ) -> LoadState:
        """Return the state after a chunk that ends at a mark."""
        state, ids = self.state, result.ids
        rejected = sorted(rejects, key=lambda reject: reject.number)
        room = max(0, self.max_listed - len(state.rejected))
        return replace(
            state,
            mark=mark,
            inserted=state.inserted + result.inserted,
            updated=state.updated + result.updated,
            rejected=(*state.rejected, *map(_entry, rejected[:room])),
            rejected_count=state.rejected_count + len(rejected),
            seconds=self.seconds,
            ids=state.ids if ids is None else ((state.ids or ids)[0], ids[1]),
        )


def _entry(reject: Reject) -> dict[str, Any]:
    found = document(reject.error)
    return {"row": reject.number, "code": found["code"], "detail": found["detail"]}


Read: TypeAlias = Callable[[Source, Callable[[Source], Source]], Iterable[ItemRows]]


@dataclass(frozen=True, slots=True)
class _Staged:
    """A chunk ready to be committed: ``put`` is None where nothing of it can be stored."""

    chunk: ItemRows
    raw: ix.RawBatch
    put: Any
    rejects: list[Reject]
    mark: Mark


@dataclass(frozen=True, slots=True)
class Load:
    """A load: its collection, its options and its key.

    ``require_room`` raises where nothing more can be stored. Once ``stop`` is set the load ends
    soon, with `BodyAborted`.
    """

    collection: CollectionProtocol
    mode: Literal["upsert", "insert"]
    on_error: Literal["stop", "skip"]
    max_listed: int
    require_room: Callable[[], None]
    keeps_payloads: bool = False
    key: LoadKey | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def _rows_before(self) -> int:
        """Rows that were stored or rejected under the key before."""
        return 0 if self.key is None else self.key.before.mark.rows

    def begin(self) -> Account:
        """Return the account of a load that begins, or goes on."""
        if self.key is None:
            return Account(self.max_listed, BodyCount(None), LoadState(""))
        before = self.key.before
        state = replace(before, rejected=before.rejected[: self.max_listed])
        is_known = before.is_complete or before.mark.rows > 0
        return Account(self.max_listed, BodyCount(self.key), state, before if is_known else None)

    def run(self, read: Read, source: Source, report: Report, account: Account) -> None:
        """Commit every chunk of the source; LoadFailed: chunks committed before stay.

        ``read`` returns the chunks of a source, and counts its bytes by the function it is given.
        """
        try:
            self._commit_all(read, source, report, account)
            self.collection.wait_until_found()
            if self.key is not None and not self.key.before.is_complete:
                end = account.count.end(account.state.mark.rows)
                record = self._record(account, end, [], ix.WriteResult(0, 0), is_complete=True)
                self.collection.save_load(record, self.key.forgotten)
        except BodyAborted as error:
            raise LoadFailed(error, account) from error
        except Exception as error:
            try:
                account.count.require_same()
            except IdempotencyMismatch as mismatch:  # whatever is wrong with another body
                raise LoadFailed(mismatch, account) from mismatch
            except Exception:
                pass
            raise LoadFailed(error, account) from error

    def _commit_all(self, read: Read, source: Source, report: Report, account: Account) -> None:
        # A chunk is stored while the next one is read and hashed.
        with ThreadPoolExecutor(
            1, thread_name_prefix="gcws-load", initializer=ix.give_way
        ) as storage:
            storing: Future[None] | None = None
            try:
                for chunk in read(source, partial(self._count, account)):
                    self._go_on()
                    if chunk.end <= self._rows_before:
                        continue  # stored or rejected before
                    staged = self._stage(chunk, account)
                    if storing is not None:
                        storing.result()
                    storing = storage.submit(self._store, staged, account, report)
            finally:
                if storing is not None:
                    storing.result()  # raises what went wrong in an earlier chunk

    def _count(self, account: Account, source: Source) -> Source:
        """Return a source that is counted, and ends when the load is stopped."""
        counted = account.count.counting(source)

        def take() -> bytes:
            self._go_on()
            return counted()

        return take

    def _go_on(self) -> None:
        if self.stop.is_set():
            raise BodyAborted

    def _record(
        self,
        account: Account,
        mark: Mark,
        rejects: list[Reject],
        result: ix.WriteResult,
        *,
        is_complete: bool = False,
    ) -> ix.LoadRecord:
        """Return the record of a load's progress for the file."""
        if self.key is None:
            raise ValueError("a load without a key keeps nothing")
        state = account.with_chunk(mark, rejects, result)
        return self.key.record(replace(state, is_complete=is_complete))

    def _stage(self, whole: ItemRows, account: Account) -> _Staged:
        """Check and hash a chunk: whole, or what of it can be stored."""
        mark = account.count.mark(whole.end, whole.size)
        chunk = whole.after(self._rows_before)
        self._stop_at(chunk.rejects)
        good, raw, bad = self._check(chunk)
        self.require_room()
        return self._prepare(good, raw, [*chunk.rejects, *bad], mark, account)

    def _prepare(
        self, chunk: ItemRows, raw: ix.RawBatch, rejects: list[Reject], mark: Mark, account: Account
    ) -> _Staged:
        keep = None if self.key is None else partial(self._record, account, mark)
        while len(chunk):
            batch = ix.ItemBatch(ids=chunk.ids, vectors=raw, payloads=chunk.payloads)
            try:
                put = self.collection.prepare(
                    batch,
                    self.mode,
                    keeps_payloads=self.keeps_payloads,
                    progress=None if keep is None else partial(keep, rejects),
                )
            except ix.InvalidVector as error:  # what only the transform shows
                bad = self._bad_vectors(chunk, error, partial(self._transform, raw))
            except ix.ItemExists as error:
                bad = self._known_items(chunk, error)
            else:
                return _Staged(chunk, raw, put, rejects, mark)
            good = _others(len(chunk), bad)
            chunk, raw = chunk.part(good), raw[good]
            rejects += bad.values()
        return _Staged(chunk, raw, None, rejects, mark)

    def _store(self, staged: _Staged, account: Account, report: Report) -> None:
        """Commit a chunk: whole, or what of it is new where that is asked for."""
        result = ix.WriteResult(0, 0)
        while staged.put is not None:
            try:
                result = self.collection.commit(staged.put)
            except ix.ItemExists as error:
                bad = self._known_items(staged.chunk, error)
                good = _others(len(staged.chunk), bad)
                chunk, raw = staged.chunk.part(good), staged.raw[good]
                rejects = [*staged.rejects, *bad.values()]
                staged = self._prepare(chunk, raw, rejects, staged.mark, account)
            else:
                break
        account.state = account.with_chunk(staged.mark, staged.rejects, result)
        report(account.committed, account.state.rejected_count)

    def _check(self, chunk: ItemRows) -> tuple[ItemRows, ix.RawBatch, list[Reject]]:
        space, find = self.collection.space, Naming(self.collection, "store").coordinates
        try:
            return chunk, chunk.vectors.check(space, find), []
        except ix.InvalidVector as error:
            bad = self._bad_vectors(
                chunk, error, lambda rows: chunk.vectors.part(rows).check(space, find)
            )
        good = chunk.part(_others(len(chunk), bad))
        raw = good.vectors.check(space, find) if len(good) else space.from_items([])
        return good, raw, [*bad.values()]

    def _transform(self, raw: ix.RawBatch, rows: slice) -> None:
        self.collection.space.prepare(raw[rows])

    def _bad_vectors(
        self, chunk: ItemRows, error: ix.InvalidVector, check: Callable[[slice], object]
    ) -> dict[int, Reject]:
        """Return what is wrong with each row whose vector does not pass a check."""
        self._stop_at([_vector_reject(chunk, error)])
        bad = ix.bad_rows(len(chunk), check, ix.InvalidVector)
        if not bad:  # the store knows something the check does not
            raise error
        return {row: _vector_reject(chunk, found, row) for row, found in bad.items()}

    def _known_items(self, chunk: ItemRows, error: ix.ItemExists) -> dict[int, Reject]:
        """Return a reject for each row whose id is known, or stands before it."""
        self._stop_at([Reject.of(int(chunk.numbers[error.row]), error)])
        taken = {error.row: error}
        seen: set[str] = set()
        for row, item_id in enumerate(chunk.ids):
            if item_id is None:
                continue
            if item_id in seen or self._has(item_id):
                taken[row] = ix.ItemExists(item_id, row)
            seen.add(item_id)
        return {row: Reject.of(int(chunk.numbers[row]), found) for row, found in taken.items()}

    def _has(self, item_id: str) -> bool:
        try:
            self.collection.get(item_id)
        except ix.ItemNotFound:
            return False
        return True

    def _stop_at(self, rejects: list[Reject]) -> None:
        if rejects and self.on_error == "stop":
            raise min(rejects, key=lambda reject: reject.number).error


def _vector_reject(chunk: ItemRows, error: ix.InvalidVector, row: int | None = None) -> Reject:
    """Return the reject of a row, by default the one that begins the error's location."""
    at = int(error.loc[0]) if row is None and error.loc else row or 0
    bare = ix.InvalidVector(expected=error.expected, got=error.got, loc=error.loc[1:])
    return Reject.of(int(chunk.numbers[at]), bare, "vector")


def _others(count: int, rows: Collection[int]) -> Int64s:
    """Return the rows of range(count) that are not among ``rows``."""
    keep = np.ones(count, np.bool_)
    keep[list(rows)] = False
    return np.flatnonzero(keep)
