"""A bounded pool of connections to the current primary; maps its errors to ours."""

from __future__ import annotations

import logging
import re
import secrets
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any, Final, NamedTuple, TypeVar

import psycopg
from psycopg import conninfo, errors
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import BytesBinaryDumper

from gcws_search import index as ix
from gcws_search.service.cluster.contract import ClusterMismatch, Epoch, EpochMemory, FormerPrimary
from gcws_search.service.errors import StoreUnavailable

T = TypeVar("T")

_ADDRESS: Final = re.compile(r'connection to server at "[^"]*"(?: \([^)]*\))?, port \d+ failed: ')
_INTERVAL: Final = 0.1  # interval in seconds at which a wait checks its timeout
# TCP keepalive detects a lost peer that owes no answer; a timeout detects one that does.
_KEEPALIVES: Final = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
# Plans that need no statistics: rows are looked up by their indexes.
_PLANS: Final = {
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
}
# Longest wait for a silent connection; a statement, or a lock, may take longer.
_LINK_SECONDS: Final = 10.0
_FURTHER_SECONDS: Final = 2  # how long the other servers are tried once one accepts writes
_LOOK_SECONDS: Final = 10.0  # interval between checks of the other servers of the URL
_TRIES: Final = 3  # attempts to find a primary that, as far as shards know, has no successor

LOCK: Final = 0x67637773  # advisory lock: serializes the creation of tables and of epochs

_SERVER: Final = """
SELECT system_identifier, ('x' || left(pg_walfile_name(lsn), 8))::bit(32)::bigint,
    (lsn - '0/0')::bigint, pg_postmaster_start_time()::text,
    to_regclass('cluster') IS NOT NULL, to_regclass('epochs') IS NOT NULL
FROM pg_control_system(), pg_current_wal_flush_lsn() AS lsn
"""
"""The name of a file of the log has the timeline of now; the control file has an older one."""
_IDENTITY: Final = "SELECT identity FROM cluster"
_LAST: Final = "SELECT number, stamp, system, timeline FROM epochs ORDER BY number DESC LIMIT 1"
_STAMP: Final = "SELECT stamp FROM epochs WHERE number = %b"
_BEGIN: Final = "INSERT INTO epochs (number, stamp, system, timeline) VALUES (%b, %b, %b, %b)"

_log = logging.getLogger(__name__)


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose operations time out."""

    seconds: float  # timeout for answers of the database
    warnings: list[str]  # warnings of the database since the last reset
    epoch: Epoch | None = None  # of the server; None before its tables exist
    choice: int = 0  # number of the server choice that opened it

    @property
    def epoch_number(self) -> int:
        """The number of the server's epoch; 0 without one."""
        return 0 if self.epoch is None else self.epoch.number

    def wait(self, gen: PQGen[T], interval: float = _INTERVAL, timeout: float | None = None) -> T:
        """Wait for the database; close the connection (OperationalError) after the timeout."""
        seconds = self.seconds if timeout is None else timeout
        try:
            return super().wait(gen, interval, seconds)
        except psycopg.OperationalError as error:
            silent = error.sqlstate is None and not isinstance(error, errors.PipelineAborted)
            if silent and self.info.transaction_status == TransactionStatus.ACTIVE:
                self.close()
                raise psycopg.OperationalError(f"no answer within {seconds:g} s") from error
            raise

    def run(self, statement: str, *parameters: Any) -> psycopg.Cursor[tuple[Any, ...]]:  # noqa: ANN401
        """Execute a statement that is parsed once per connection."""
        return self.execute(statement.encode(), parameters, prepare=True, binary=True)

    def column(self, statement: str, *parameters: Any) -> list[Any]:  # noqa: ANN401
        """Return the first column of all rows."""
        return [row[0] for row in self.run(statement, *parameters).fetchall()]

    def roll_back(self) -> None:
        """Roll back; close the connection if that fails."""
        try:
            self.run("ROLLBACK")
        except psycopg.Error:
            self.close()

    @property
    def is_usable(self) -> bool:
        """Whether it is idle, and the database has not closed it."""
        if self.closed or self.info.transaction_status != TransactionStatus.IDLE:
            return False
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return not poll.poll(0)  # an idle connection is readable only once it is closed


class Connections:
    """A pool of connections to the current primary among the servers of the URL.

    A server is chosen again when the present one cannot be reached, has restarted, or is known to
    have a successor. "Current" means as far as this process and the servers know.
    """

    def __init__(
        self,
        url: str,  # of libpq; with several hosts, the current primary is used
        schema: str,  # of the tables
        *,
        limit: int,  # maximum number of connections
        application: str,  # name in the database's list of connections
        seconds: float,  # timeout for answers of the database
        memory: EpochMemory,  # remembers the last known epoch
    ) -> None:
        self.schema = schema
        self.seconds = seconds
        self.memory = memory
        self.cluster: str | None = None  # identity of the cluster, once joined
        # called with a chosen server before any use; raises StoreUnavailable unless it is known to
        # be the last primary; None: no check
        self.confirm: Callable[[], None] | None = None
        self._servers = _servers(_parameters(url, schema, application, seconds))
        self._room = threading.BoundedSemaphore(limit)
        self._idle: list[Connection] = []
        self._is_closed = False
        self._choosing = threading.Lock()
        self._chosen: tuple[dict[str, Any], Standing] | None = None
        self._choice = self._confirmed = 0
        self._failure: psycopg.Error | FormerPrimary | None = None  # error of the last choice
        self._refusals: set[str] = set()
        self._looked = time.monotonic()
        self.look_seconds = _LOOK_SECONDS  # interval of `look_for_successor`

    @contextmanager
    def use(self, name: str | None = None, *, is_confirmed: bool = True) -> Iterator[Connection]:
        """Lend a connection outside of a transaction.

        ``name``: the collection, for errors. ``is_confirmed``: require that the server is known to
        be the current primary.
        """
        if is_confirmed:
            self._confirm()
        if not self._room.acquire(timeout=self.seconds):
            raise StoreUnavailable("all connections are in use")
        try:
            with database_errors(name):
                connection = self._take()
                try:
                    if is_confirmed and not self._is_confirmed(connection.choice):
                        raise StoreUnavailable("it is just back, and not yet confirmed")
                    yield connection
                    self.require(connection.epoch_number)
                finally:
                    self._give_back(connection)
        finally:
            self._room.release()

    def require(self, epoch: int) -> None:
        """Raise FormerPrimary if an epoch began after the one that was read or written.

        Data read from a former primary may be old, and writes to it may be lost.
        """
        if epoch < self.memory.number:
            raise FormerPrimary(
                f"a former primary answered: expected {self.memory.last}, got epoch {epoch}"
            )

    @property
    def is_confirmed(self) -> bool:
        """Whether the chosen server is known to be the current primary."""
        return self._is_confirmed(self._choice)

    def _is_confirmed(self, choice: int) -> bool:
        return self.confirm is None or self._confirmed == choice > 0

    def _confirm(self) -> None:
        """Return once the server is known to be the current primary."""
        for _ in range(_TRIES):
            with self.use(is_confirmed=False) as connection:
                choice, epoch = connection.choice, connection.epoch_number
            if self._is_confirmed(choice):
                return
            if self.confirm is not None:
                self.confirm()
            if epoch == self.memory.number:
                self._confirmed = choice

    @contextmanager
    def transaction(self, how: str = "", name: str | None = None) -> Iterator[Connection]:
        """Lend a connection inside a transaction, which ends with the block."""
        with self.use(name) as connection:
            connection.run(f"BEGIN {how}")
            try:
                yield connection
            except BaseException:
                connection.roll_back()
                raise
            connection.warnings.clear()
            try:
                connection.execute("COMMIT", prepare=False)
                # A commit with a warning is stored on one machine only: the wait for the standby
                # was cancelled.
                if connection.warnings:
                    raise psycopg.OperationalError(connection.warnings[0])
            except psycopg.OperationalError as error:
                doubt = "" if how else "; the change may be stored"
                raise StoreUnavailable(first_line(error) + doubt) from error

    @contextmanager
    def lock(
        self, *key: str | int, of: str = "hashtextextended(%b, 0)", name: str | None = None
    ) -> Iterator[Connection | None]:
        """Lend a connection that holds the advisory lock of a key; None if another one holds it.

        ``name``: the collection, for errors.
        """
        with self.use(name) as connection:
            if not connection.column(f"SELECT pg_try_advisory_lock({of})", *key)[0]:
                yield None
                return
            try:
                yield connection
            finally:
                if not connection.closed:
                    connection.run(f"SELECT pg_advisory_unlock({of})", *key)

    def _take(self) -> Connection:
        while self._idle:
            with suppress(IndexError):
                connection = self._idle.pop()
                if self._is_current(connection):
                    return connection
                connection.close()
        if self._is_closed:
            raise StoreUnavailable("the service stops")
        chosen, choice, failure = self._chosen, self._choice, self._failure
        if chosen is not None:
            parameters, before = chosen
            with suppress(psycopg.Error, FormerPrimary):
                connection, standing = self._connect(parameters)
                try:
                    if standing.started == before.started:
                        self._enter(connection, standing, choice)
                        return connection
                finally:
                    if not connection.choice:
                        connection.close()
        with self._choosing:
            if self._failure is not None and self._failure is not failure:
                raise self._failure  # another thread has just tried all servers
            if self._choice == choice or self._chosen is None:  # else another thread has chosen
                return self._choose_server()
        return self._take()

    def _is_current(self, connection: Connection) -> bool:
        return (
            connection.is_usable
            and connection.choice == self._choice
            and connection.epoch_number >= self.memory.number
        )

    def _choose_server(self) -> Connection:
        found: list[tuple[Standing, tuple[dict[str, Any], Connection]]] = []
        failures: list[Exception] = []
        chosen: Connection | None = None
        try:
            for parameters in self._servers:
                seconds = {"connect_timeout": _FURTHER_SECONDS} if found else {}
                try:
                    connection, standing = self._connect(parameters | seconds)
                except (psycopg.Error, FormerPrimary) as error:
                    failures.append(error)
                else:
                    found.append((standing, (parameters, connection)))
            if not found:
                raise next((e for e in failures if isinstance(e, FormerPrimary)), failures[0])
            standing, (parameters, connection) = latest(found)
            self._enter(connection, standing, self._choice + 1)
            self._chosen, self._choice = (parameters, standing), self._choice + 1
            chosen = connection
            self._failure = None
        except BaseException as error:
            self._chosen = None
            if isinstance(error, psycopg.Error | FormerPrimary):
                self._failure = error
            if isinstance(error, FormerPrimary):
                self._note(error)
            raise
        finally:
            for _, (_, other) in found:
                if other is not chosen:
                    other.close()
        return chosen

    def _enter(self, connection: Connection, standing: Standing, choice: int) -> None:
        """Record the epoch of a server."""
        epoch = begin_epoch(connection, standing)
        try:
            if epoch is not None and self.cluster is None:
                self.memory.enter(epoch)
            elif epoch is not None:
                self.memory.learn(epoch)
        except ClusterMismatch as error:  # it changed after the check
            raise FormerPrimary(str(error), standing.address) from None
        connection.choice, connection.epoch = choice, epoch

    @contextmanager
    def only(self) -> Iterator[Connection]:
        """Lend a connection to the only server that accepts writes; else StoreUnavailable."""
        found, failures = list[Connection](), list[psycopg.Error]()
        with database_errors(), ExitStack() as opened:
            for parameters in self._servers:
                try:
                    found.append(opened.enter_context(closing(self._open(parameters))))
                except psycopg.Error as error:
                    failures.append(error)
            if not found:
                raise failures[0]
            if len(found) > 1:
                raise FormerPrimary("expected one server that takes writes, got several")
            yield found[0]

    def look_for_successor(self) -> None:
        """Check at intervals for a promoted server: the chosen server may not notice one."""
        now = time.monotonic()
        if len(self._servers) == 1 or now - self._looked < self.look_seconds:
            return
        self._looked = now
        for parameters in self._servers:
            with suppress(psycopg.Error, FormerPrimary, ClusterMismatch):
                connection, standing = self._connect(
                    parameters | {"connect_timeout": _FURTHER_SECONDS}
                )
                with closing(connection):
                    if standing.number > self.memory.number:
                        epoch = begin_epoch(connection, standing)
                        if epoch is not None:
                            self.memory.learn(epoch)

    def forget(self) -> None:
        """Choose a server again before the next statement."""
        with self._choosing:
            self._chosen, self._choice = None, self._choice + 1

    def _connect(self, parameters: dict[str, Any]) -> tuple[Connection, Standing]:
        """Return a connection to a server, and the state that it reports."""
        connection = self._open(parameters)
        try:
            standing = standing_of(connection, self.memory)
            check_standing(standing, self.memory, self.cluster)
        except BaseException as error:
            connection.close()
            if isinstance(error, FormerPrimary):
                self._note(error)
            raise
        return connection, standing

    def _note(self, error: FormerPrimary) -> None:
        """Log a refused server once."""
        told = f"{error.address}: {error}"
        if told not in self._refusals:
            self._refusals.add(told)
            _log.warning("%s", told)

    def _open(self, parameters: dict[str, Any]) -> Connection:
        connection = Connection.connect(autocommit=True, **parameters)
        connection.seconds = self.seconds
        connection.warnings = []
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        # else rows of COPY take that of DB-API's type Binary, which is not compiled
        connection.adapters.register_dumper(bytes, BytesBinaryDumper)
        connection.add_notice_handler(
            lambda notice: connection.warnings.append(notice.message_primary or "")
        )
        return connection

    def _give_back(self, connection: Connection) -> None:
        if self._is_closed or not self._is_current(connection):
            connection.close()
            return
        self._idle.append(connection)
        if self._is_closed:  # closed after the check above
            self.close()

    def close(self) -> None:
        """Close idle connections now, and others when they are returned."""
        self._is_closed = True
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()


def _parameters(url: str, schema: str, application: str, seconds: float) -> dict[str, Any]:
    try:
        given = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # its message contains the URL with the password
        raise ValueError(
            "GCWS_DATABASE_URL: expected a URL such as postgresql://user:password@host:5432/name"
        ) from None
    milliseconds = round(1000 * min(seconds, _LINK_SECONDS))
    session = {
        "search_path": schema,
        "synchronous_commit": "on",
        "lock_timeout": str(round(500 * seconds)),
        # Callers that wait have their own timeouts; idle sessions also hold advisory locks.
        "statement_timeout": "0",
        "idle_session_timeout": "0",
        "idle_in_transaction_session_timeout": str(6 * milliseconds),
        **{f"tcp_{name}": str(value) for name, value in _KEEPALIVES.items()},
        "tcp_user_timeout": str(milliseconds),
        **_PLANS,
    }
    options = [str(given.pop("options", ""))]
    options += [f"-c {name}={value}" for name, value in session.items()]
    ours = {
        "connect_timeout": max(2, milliseconds // 1000),
        "target_session_attrs": "read-write",
        "application_name": f"gcws-search {application}",
        "client_encoding": "utf8",
        "tcp_user_timeout": milliseconds,
        **_KEEPALIVES,
    }
    return {**ours, **given, "options": " ".join(options).strip()}


def _servers(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the connection parameters of each server that a URL names."""
    names = [name for name in ("host", "hostaddr", "port") if "," in str(parameters.get(name, ""))]
    if not {"host", "hostaddr"} & {*names}:
        return [parameters]
    columns = {name: str(parameters[name]).split(",") for name in names}
    count = max(map(len, columns.values()))
    if any(len(column) != count for column in columns.values()):
        raise ValueError("GCWS_DATABASE_URL: expected as many ports as hosts, or one")
    return [
        parameters | {name: column[at] for name, column in columns.items()} for at in range(count)
    ]


@contextmanager
def database_errors(name: str | None = None) -> Iterator[None]:
    """Map errors of the database to StoreUnavailable, DiskFull or CollectionNotFound."""
    try:
        yield
    except errors.UndefinedTable:
        if name is None:
            raise
        raise ix.CollectionNotFound(name) from None
    except errors.DiskFull:
        raise ix.DiskFull(name) from None
    except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
        raise StoreUnavailable(first_line(error)) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error, without the address, which clients need not know."""
    lines = str(error).splitlines() or [type(error).__name__]
    return _ADDRESS.sub("", lines[0])


# Servers that accept writes: which one is the current primary, and when its epoch began


class Standing(NamedTuple):
    """The state that a server reports."""

    address: str
    system: int  # system identifier of PostgreSQL
    timeline: int
    lsn: int
    started: str  # start time; equal for two names of one server
    cluster: str | None  # identity; None before its tables exist
    last: Epoch | None  # the last epoch in its database
    last_system: int | None  # system identifier of the primary that began it
    known: str | None  # stamp in its database of the epoch `heard`
    heard: Epoch | None  # the last known here before the query; may be older than now

    @property
    def begins(self) -> bool:
        """Whether it was promoted after its last epoch began."""
        return self.last is None or self.timeline > self.last.timeline

    @property
    def number(self) -> int:
        """The number of its epoch, which may not have begun yet."""
        return (0 if self.last is None else self.last.number) + self.begins


def standing_of(connection: Connection, memory: EpochMemory) -> Standing:
    """Query the state of a server."""
    heard = memory.last
    [said] = connection.run(_SERVER).fetchall()
    system, timeline, lsn, started, has_tables, has_epochs = said
    cluster = last = last_system = known = None
    if has_tables:
        [cluster] = connection.column(_IDENTITY) or [None]
    if has_epochs:
        if (row := connection.run(_LAST).fetchone()) is not None:
            number, stamp, last_system, last_timeline = row
            last = Epoch(str(cluster), number, last_timeline, stamp, lsn)
        if heard is not None:
            known = next(iter(connection.column(_STAMP, heard.number)), None)
    address = f"{connection.info.host}:{connection.info.port}"
    own = (system, timeline, lsn, started, cluster, last, last_system, known, heard)
    return Standing(address, *own)


def check_standing(standing: Standing, memory: EpochMemory, cluster: str | None) -> None:
    """Raise FormerPrimary if a server does not descend from the known epoch; check the cluster."""
    last, known = standing.last, standing.heard
    if standing.cluster in memory.former or cluster not in (None, standing.cluster):
        expected = cluster or (known and known.cluster)
        raise _refusal(standing, "belongs to another cluster", expected, standing.cluster)
    if known is not None and known.cluster == standing.cluster:
        if standing.known != known.stamp:
            number = 0 if last is None else last.number
            got = f"epoch {number} (timeline {standing.timeline})"
            if number >= known.number:
                got += f" of another promotion than the epoch {known.number} that is known"
            raise _refusal(standing, "is a former primary", f"{known} or later", got)
        if standing.number == known.number and standing.lsn < known.lsn:
            expected = f"a log up to {_place(known.lsn)}, on timeline {known.timeline}"
            raise _refusal(standing, "is an older copy", expected, _place(standing.lsn))
    if last is not None and (
        standing.system != standing.last_system or standing.timeline < last.timeline
    ):
        raise _refusal(
            standing,
            "was restored from a backup ('gcws-search cluster adopt' accepts it)",
            f"system {standing.last_system} on timeline {last.timeline} or later",
            f"system {standing.system} on timeline {standing.timeline}",
        )


def latest(found: Sequence[tuple[Standing, T]]) -> tuple[Standing, T]:
    """Return the current primary of servers that accept writes; FormerPrimary if none is known."""
    best = max(found, key=lambda each: each[0].number)
    rivals = {
        (one.cluster, one.started): one.address
        for one, _ in found
        if one.cluster != best[0].cluster or one.number == best[0].number
    }
    if len(rivals) > 1:
        raise FormerPrimary(
            f"{len(rivals)} servers take writes, and none is known to be the current primary;"
            " end those that are not, or take them out of GCWS_DATABASE_URL",
            " and ".join(rivals.values()),
        )
    return best


def begin_epoch(connection: Connection, standing: Standing) -> Epoch | None:
    """Return a server's epoch, starting it if necessary; None without tables."""
    last, cluster = standing.last, standing.cluster
    if cluster is None:
        return None
    if last is None and not connection.column("SELECT to_regclass('epochs') IS NOT NULL")[0]:
        return None
    if last is not None and not standing.begins:
        return last
    with connection.transaction():
        # Its standby may not be connected yet. Later commits that wait for it include this one.
        connection.run("SET LOCAL synchronous_commit = local")
        connection.run("SELECT pg_advisory_xact_lock(%b)", LOCK)
        row = connection.run(_LAST).fetchone()
        if row is None or standing.timeline > row[3]:
            number = 1 if row is None else row[0] + 1
            row = number, secrets.token_hex(8), standing.system, standing.timeline
            connection.run(_BEGIN, *row)
    number, stamp, _, timeline = row
    return Epoch(cluster, number, timeline, stamp, standing.lsn)


def _refusal(standing: Standing, what: str, expected: object, got: object) -> FormerPrimary:
    return FormerPrimary(f"it {what}: expected {expected}, got {got}", standing.address)


def _place(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
