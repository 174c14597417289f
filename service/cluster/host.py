"""One replica of a shard: its part of each collection, and its answers to messages."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Final

from gcws_search import index as ix
from gcws_search.service.cluster.bases import Base, Bases
from gcws_search.service.cluster.contract import (
    Behind,
    ClusterMismatch,
    CollectionRow,
    Epoch,
    Replica,
    decode_changes,
    encode_error,
)
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.follower import Follower, HostOptions, Place, name_of, number_of
from gcws_search.service.cluster.offload import due, offload, remove_useless, segment_bytes
from gcws_search.service.cluster.operations import LONG, OPERATIONS
from gcws_search.service.errors import AnswerTooLarge, StoreUnavailable
from gcws_search.service.limits import unmapped_bytes
from gcws_search.service.messages import Malformed, Message, encode
from gcws_search.service.startup import Startup

AWAITED_SECONDS: Final = 30.0  # how long a generation is prepared while nobody waits for it
_FORMER_SECONDS: Final = 10.0  # how long a former generation is kept
_BASE_REST_SECONDS: Final = 300.0  # pause after a failure to write a base
_FOLLOWERS: Final = 8  # collections that are followed in parallel
# Errors of messages that are not logged.
_EXPECTED: Final = (
    ix.InvalidInput,
    ix.ItemNotFound,
    ix.BackendNotFound,
    ix.CollectionNotFound,
    AnswerTooLarge,
    Behind,
    Malformed,
    CancelledError,
    StoreUnavailable,
)

_log = logging.getLogger(__name__)


class ShardHost:
    """A replica of one shard; ClusterMismatch without such a shard, or with too few buckets."""

    def __init__(
        self,
        database: Database,  # stays open when the host closes
        folder: Path,  # for the files of this replica alone
        shard: int,  # its number, and the number of shards
        shards: int,
        *,
        # threads for kernels; None: as many as the process may use
        threads: int | None = None,
        policies: ix.Policies = ix.POLICIES,
        options: HostOptions = HostOptions(),  # noqa: B008  # it is frozen
    ) -> None:
        if not 1 <= shards <= database.buckets:
            raise ClusterMismatch("shards", f"1 to {database.buckets}, the buckets", str(shards))
        if not 0 <= shard < shards:
            raise ClusterMismatch("shard", f"0 to {shards - 1}", str(shard))
        self.place = Place(database.identity, shard, shards, database.buckets)
        self._instant: ContextVar[int | None] = ContextVar("instant", default=None)
        self.catalog = ix.Catalog.open(
            folder,
            durability="normal",
            threads=threads,
            policies=policies,
            expirations=partial(ix.Expirations, self._clock, are_deleted=False),
        )
        self._scratch = folder / "bases"  # for copies that are being sent
        shutil.rmtree(self._scratch, ignore_errors=True)
        self.startup = Startup(self.catalog) if options.compiles else None
        self._memory = database.connections.memory
        self._memory.watch(self._enter_epoch)
        self._database = database
        self._options = options
        self._followers: dict[int, Follower] = {}  # by the number that routers use
        self._served: set[int] = set()  # numbers of current generations
        self._left: dict[int, float] = {}  # when collections that will be dropped were last listed
        self._changed = threading.Condition()
        self._polling = threading.Event()
        self._is_stopping = False
        self._is_loaded = False
        self._poll_number = self._last_poll = 0
        self._absent: set[int] = set()  # requested numbers that the database did not have
        self._is_announced = False
        self._other = ""
        self._others_share = 0.0
        self._is_leaving = False
        self._withdrawn = threading.Event()
        self._trimmed = time.monotonic()
        self._last_error = ""
        self._bases = Bases(options.base, database, shard, shards) if options.base else None
        self._current_bases: dict[int, Base] = {}  # as last listed
        self._base_thread = ThreadPoolExecutor(
            1, thread_name_prefix="shard-bases", initializer=ix.give_way
        )
        self.segment_bytes: dict[int, int] = {}  # of each collection, as last listed
        self.base_failures = 0  # number of failures to write one
        self._writing_bases: Future[None] | None = None
        self._next_bases = time.monotonic() + options.base_seconds
        self._threads = ThreadPoolExecutor(_FOLLOWERS, thread_name_prefix="shard-follower")
        self._thread = threading.Thread(target=self._run, name="shard-host", daemon=True)

    def start(self) -> None:
        """Read the files, and start to follow."""
        self._thread.start()

    def close(self) -> None:
        """Stop running work at its next step, and close the files."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self._polling.set()
        if self.startup is not None:
            self.startup.stop()
        self.catalog.closing = True
        if self._thread.is_alive():
            self._thread.join()
        if self._is_announced and self.is_reachable:
            with suppress(StoreUnavailable):  # routers then notice its silence
                self._database.withdraw(self._listing())
        for follower in self.followers:
            follower.stop()
        self._threads.shutdown()
        self._base_thread.shutdown()
        self.catalog.close()

    def withdraw(self, seconds: float) -> bool:
        """Make routers ask other replicas; return whether the database recorded it in time."""
        self._is_leaving = True
        self._polling.set()
        return self._withdrawn.wait(seconds)

    def _clock(self) -> float:
        """Return the instant of the message being answered, or now, in seconds since 1970."""
        asked = self._instant.get()
        # Half a ms is added so that rounding cannot yield an earlier instant.
        return self._database.clock() if asked is None else (asked + 0.5) / 1000

    # State

    @property
    def followers(self) -> Sequence[Follower]:
        """The followers of all collections."""
        return [*self._followers.values()]

    @property
    def positions(self) -> dict[int, int]:
        """The key that each collection has reached, by number; -1 during a fill."""
        served, followers = self._served, self._followers
        return {each.number: each.reached for n, each in followers.items() if n in served}

    @property
    def base_ages(self) -> dict[int, float]:
        """Age of each collection's base, by number; 0 if it has all changes."""
        found, followers = dict[int, float](), self._followers
        for served in self._served & followers.keys():
            follower, base = followers[served], self._current_bases.get(served)
            lacks = base is not None and follower.reached > base.key
            found[follower.number] = base.seconds if base and lacks else 0.0
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the collections use."""
        found = (each.collection for each in self.followers)
        return sum(each.memory.nbytes() for each in found if each is not None)

    @property
    def is_reachable(self) -> bool:
        """Whether the database answered the last query."""
        return not self._last_error

    @property
    def is_ready(self) -> bool:
        """Whether all collections can be queried."""
        return self._is_loaded and all(reached >= 0 for reached in self.positions.values())

    @property
    def refusal(self) -> str:
        """Why nothing more can be stored; empty if it can."""
        refused = next((each.refusal for each in self.followers if each.refusal), "")
        return refused or str(self._options.full(self._others_share) or "")

    @property
    def is_listed(self) -> bool:
        """Whether routers find it in the database."""
        return self._is_announced and not self._is_leaving

    def follower(self, number: int, seconds: float = 0.0) -> Follower | None:
        """Return the follower of a collection; CollectionNotFound if the database has none."""
        found = self._followers.get(number)
        if found is None and number not in self._absent:
            asked = self._poll_number
            self._polling.set()
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self._is_stopping or number in self._followers or self._last_poll > asked
                    ),
                    seconds,
                )
                found = self._followers.get(number)
                if found is None and self._last_poll > asked:
                    self._absent.add(number)
        if found is None and number in self._absent:
            raise ix.CollectionNotFound(self._database.label(number))
        return found

    def collection(
        self, number: int, key: int, seconds: float, epoch: int | None = None
    ) -> ix.StoredCollection:
        """Return a collection that has reached a key of an epoch; see `Follower.has`.

        Behind if it has not after these seconds.
        """
        end = time.monotonic() + seconds
        follower = self.follower(number, seconds)
        if follower is None:
            raise Behind(key, -1)
        has_reached = follower.wait(key, end - time.monotonic(), epoch)
        found = follower.collection
        if found is None or not has_reached:
            raise Behind(key, follower.reached)
        return found

    # Epochs

    def hear(self, asked: Message) -> None:
        """Record the last epoch known to the sender; Malformed if it is of another cluster."""
        self._memory.hear(asked.head.get("epoch"))

    def _enter_epoch(self) -> None:
        self._polling.set()
        for follower in self.followers:
            follower.wake()

    @property
    def dispute(self) -> str:
        """Why some collection is not answered; empty if all are."""
        return next((each.dispute for each in self.followers if each.dispute), "")

    def has_reached(self, asked: Message) -> bool:
        """Return whether the collection of a message has reached the required moment."""
        head = asked.head
        found = self._followers.get(head.get("collection", 0))
        return found is not None and found.has(head.get("at", 0), head.get("since"))

    def wait_for(self, asked: Message) -> None:
        """Wait for the moment that a message requires, as long as the message says."""
        with suppress(Behind, ix.CollectionNotFound, KeyError, TypeError, ValueError):
            self._collection_of(asked)  # the answer will contain the error

    def _collection_of(self, asked: Message) -> ix.StoredCollection:
        """Return the collection of a message once it has reached the required moment."""
        head = asked.head
        number, at = int(head["collection"]), int(head.get("at", 0))
        return self.collection(number, at, float(head.get("seconds", 0.0)), head.get("since"))

    # Messages

    def answer_message(self, asked: Message, stop: threading.Event | None = None) -> bytes:
        """Return the answer to a message, or its error; any thread. ``stop`` ends long work."""
        token = self._instant.set(asked.head.get("now"))  # older programs do not send it
        try:
            answer = self._answer(asked, stop)
            return encode(answer._replace(head=answer.head | {"epoch": self._memory.document}))
        except Exception as error:
            if not isinstance(error, _EXPECTED):
                _log.exception("a message could not be answered")
            known = self._followers.get(asked.head.get("collection", 0))
            if isinstance(error, ix.DamagedFile) and known is not None:
                known.note_damage()
            return encode_error(error, epoch=self._memory.document)
        finally:
            self._instant.reset(token)

    def _answer(self, asked: Message, stop: threading.Event | None) -> Message:
        """Answer a message about the replica, or about one of its collections.

        Behind if the collection has not reached the key, or attached the backend, in time.
        """
        head = asked.head
        try:
            method, seconds = head["method"], float(head.get("seconds", 0.0))
            if method == "status":
                return self._answer_status()
            number = int(head["collection"])
            if method == "follow":
                return self._answer_follow(number, asked, seconds)
            if method == "refresh":
                self.collection(number, 0, seconds)
                if (follower := self.follower(number)) is None:
                    return Message({"ready": []})
                said = {"ready": follower.follow_backends(), "failed": follower.failed_backends}
                return Message(said | {"shard": self.place.shard})
            answer = partial(LONG[method], stop=stop) if method in LONG else OPERATIONS[method]
        except KeyError as error:
            raise Malformed(f"expected a method and its arguments, got no {error}") from None
        collection = self._collection_of(asked)
        try:
            return answer(collection, asked)
        except ix.BackendNotFound as error:
            follower = self.follower(number)
            if follower is None or not follower.expects_backend(error.name, seconds):
                raise
        try:
            return answer(collection, asked)
        except ix.BackendNotFound:
            raise Behind(int(head.get("at", 0)), follower.reached) from None

    def _answer_status(self) -> Message:
        if self.dispute:
            raise StoreUnavailable(self.dispute)
        place = self.place
        return Message(
            {
                "identity": place.cluster,
                "shard": place.shard,
                "shards": place.shards,
                "collections": self.positions,
                "bytes": self.nbytes,
            }
        )

    def _answer_follow(self, number: int, asked: Message, seconds: float) -> Message:
        """Wait for a key, whose changes may be in the message; return the key reached."""
        key = int(asked.head["key"])
        changes = decode_changes(asked.head.get("changes", ()), asked.blobs)
        if (follower := self.follower(number, seconds)) is None:
            return Message({"key": -1})
        said = asked.head.get("epoch")  # older programs do not send it
        if changes and (said is None or Epoch.read(said).number == self._memory.number):
            follower.take(changes)
        follower.wait(key, seconds, asked.head.get("since"))
        return Message({"key": follower.reached, "since": follower.epoch})

    # Polling

    def _run(self) -> None:
        if self.startup is None:
            self.catalog.load()
        else:
            self.startup.start()
            while not self.startup.wait(self._options.poll_seconds) and not self._is_stopping:
                if self.startup.progress.phase == "failed":
                    return
        while not self._is_stopping:
            self._polling.clear()
            try:
                self._poll()
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                if text != self._last_error:  # log repeated errors once
                    _log.warning("the database is not followed now; searches go on (%s)", text)
                self._last_error = text
            else:
                self._last_error = ""
                self._is_loaded = True
            self._polling.wait(self._options.poll_seconds)

    def _poll(self) -> None:
        self._poll_number += 1
        poll_number = self._poll_number
        self._database.connections.look_for_successor()
        rows = {row.served: row for row in self._database.collections()}
        served, numbers, now = {*rows}, {row.number for row in rows.values()}, time.monotonic()
        rows |= {row.served: row for row in self._database.next_generations(AWAITED_SECONDS)}
        # Routers may ask for a former generation until they have read the current one.
        left = {
            n for n, each in self._followers.items() if n not in rows and each.number in numbers
        }
        self._left = {n: self._left.get(n, now) for n in left}
        stay = {*rows} | {n for n in left if now - self._left[n] < _FORMER_SECONDS}
        dropped = [each for n, each in self._followers.items() if n not in stay]
        self._followers = {n: each for n, each in self._followers.items() if n in stay}
        self._served = served
        for follower in dropped:
            self._threads.submit(self._drop, follower)
        if not self._is_loaded:
            self._drop_files({name_of(number) for number in rows})
        for number, row in rows.items():
            follower = self._followers.get(number) or self._add(row)
            follower.see(row.head)
            if follower.is_due(row.head):
                follower.wake()
        with self._changed:
            self._last_poll = poll_number
            self._changed.notify_all()
        if self._bases is not None:
            self._look_at_bases(self._bases)
        if self._options.address:
            self._announce()

    def _look_at_bases(self, bases: Bases) -> None:
        """At intervals, start to write the bases that are due, unless some are being written."""
        is_writing = self._writing_bases is not None and not self._writing_bases.done()
        if not is_writing and time.monotonic() >= self._next_bases:
            self._next_bases = time.monotonic() + self._options.base_seconds
            self._writing_bases = self._base_thread.submit(self._write_bases, bases)

    def _write_bases(self, bases: Bases) -> None:
        """Write the bases that are due, and remove those that replicas can no longer start from."""
        try:
            self._current_bases = bases.current()
            bases.remove_useless()
            self.segment_bytes = segment_bytes(self._database)
            is_due = due(self._database, self.place.shards) if self._options.offload else {}
        except (OSError, StoreUnavailable) as error:
            self._note_base_failure("bases are not looked after now (%s)", error)
            return
        for number, follower in self._followers.items():
            try:
                follower.write_base(self._current_bases.get(number), self._scratch)
            except (CancelledError, ix.CollectionNotFound, ix.CollectionLoading):
                continue  # it is stopping, or its file is being replaced
            except (OSError, ix.GcwsError, StoreUnavailable) as error:
                text = f"the base of collection {follower.number} could not be written (%s)"
                self._note_base_failure(text, error)
        for number in is_due.keys() & {each.number for each in self.followers}:
            self._offload(number)
        try:
            remove_useless(self._database)
        except (OSError, StoreUnavailable) as error:
            self._note_base_failure("no segment is removed now (%s)", error)

    def _offload(self, number: int) -> None:
        """Move vectors of a collection out of the database."""
        how = self.place.shards, self._options.segment_bytes, self._require_run
        try:
            moved = offload(self._database, number, *how)
        except (CancelledError, ix.CollectionNotFound):
            return
        except (OSError, ix.GcwsError, StoreUnavailable) as error:
            text = f"vectors of collection {number} stay in the database for now (%s)"
            self._note_base_failure(text, error)
        else:
            _log.info("%d vectors of collection %d are in segments now", moved, number)

    def _require_run(self) -> None:
        """Raise CancelledError once this host is to stop."""
        if self._is_stopping:
            raise CancelledError

    def _note_base_failure(self, text: str, error: Exception) -> None:
        """Count and log a failure; pause, so that a lost store does not get copies repeatedly."""
        _log.warning(text, error)
        self._next_bases = time.monotonic() + _BASE_REST_SECONDS
        self.base_failures += 1

    def _add(self, row: CollectionRow) -> Follower:
        follower = Follower(
            row,
            self.place,
            self._database,
            self.catalog,
            self._threads.submit,
            self._options,
            has_sister=self._has_sister,
            bases=self._bases,
        )
        with self._changed:
            self._followers = self._followers | {row.served: follower}
            self._changed.notify_all()
        return follower

    def _has_sister(self) -> bool:
        """Return whether another listed replica of the shard is complete and can store more."""
        if not self._options.address:
            return False
        return any(
            each.is_alive
            and each.is_filled
            and not each.refusal
            and each.replica != self._options.replica
            and (each.shard, each.shards) == (self.place.shard, self.place.shards)
            for each in self._database.replicas(self._options.cell)
        )

    def _drop(self, follower: Follower) -> None:
        try:
            follower.drop()
        except ix.GcwsError as error:
            _log.warning("the file of collection %d stays for now (%s)", follower.number, error)

    def _drop_files(self, wanted: set[str]) -> None:
        """Drop the files of collections that the database does not list."""
        names = {each.name for each in self.catalog.list()} | {*self.catalog.failures}
        for name in names - wanted:
            if number_of(name) is not None:
                _log.warning("the file %r is dropped: the database has no such collection", name)
                with suppress(ix.GcwsError):  # the next start tries again
                    self.catalog.drop(name)

    def _announce(self) -> None:
        """List this replica once it has the data of its start, or cannot get it."""
        is_decided = all(each.reached >= 0 or each.failures for each in self.followers)
        if self._is_leaving:
            self._database.withdraw(self._listing())
            self._withdrawn.set()
        elif self._is_announced or is_decided:
            listed = self._database.announce(self._listing())
            if self._is_announced and listed not in {"", self._options.address, self._other}:
                self._other = listed  # logged once per process
                _log.error(
                    "another process, at %s, says that it is replica %d of shard %d as well;"
                    " give one of them another number",
                    *(listed, self._options.replica, self.place.shard),
                )
            self._is_announced = True
            if self._options.shares_memory:
                own = self._options.address
                machine = own.rpartition(":")[0]
                self._others_share = sum(
                    each.share
                    for each in self._database.replicas(self._options.cell)
                    if each.is_alive
                    and each.address.rpartition(":")[0] == machine
                    and each.address != own
                )
        else:
            return
        if time.monotonic() - self._trimmed > self._options.trim_seconds:
            self._trimmed = time.monotonic()
            self._database.trim()

    def _listing(self) -> Replica:
        options, place, share = self._options, self.place, unmapped_bytes() / ix.memory_bytes()
        where = options.cell, place.shard, options.replica, options.address
        has = self.positions, self.nbytes, share
        return Replica(*where, *has, seen=0.0, shards=place.shards, refusal=self.refusal)
