"""Connections with the database: a bounded number, and its errors as ours."""

from __future__ import annotations

import re
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg import conninfo, errors
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper

from gcws_search import index as ix
from gcws_search.service.http.errors import StoreUnavailable

T = TypeVar("T")

_ADDRESS: Final = re.compile(r'connection to server at "[^"]*"(?: \([^)]*\))?, port \d+ failed: ')
_INTERVAL: Final = 0.1
"""Seconds after which a wait looks whether it has taken too long."""
_KEEPALIVES: Final = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
"""Either side notices a lost one that owes it nothing; one that owes it an answer by a timeout."""
_PLANS: Final = {
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
}
"""Plans that need no statistics: rows are looked up by their indexes."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that gives up an operation after some seconds.

    Attributes
    ----------
    seconds : float
        How long the database may take to answer.
    warnings : list of str
        What it warned of since they were cleared.
    """

    seconds: float
    warnings: list[str]

    def wait(self, gen: PQGen[T], interval: float = _INTERVAL, timeout: float | None = None) -> T:
        """Wait for the database; close the connection where it takes too long.

        Raises
        ------
        OperationalError
        """
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
        """Execute a statement that is parsed once a connection."""
        return self.execute(statement.encode(), parameters, prepare=True, binary=True)

    def column(self, statement: str, *parameters: Any) -> list[Any]:  # noqa: ANN401
        """Return the first column of all rows."""
        return [row[0] for row in self.run(statement, *parameters).fetchall()]

    def roll_back(self) -> None:
        """End a transaction without its changes; a connection that cannot is closed."""
        try:
            self.run("ROLLBACK")
        except psycopg.Error:
            self.close()

    def refuse_warnings(self) -> None:
        """Raise StoreUnavailable where a commit was warned of.

        It is stored then, and on one machine alone: the wait for the standby was cancelled.
        """
        if self.warnings:
            raise StoreUnavailable(self.warnings[0])

    @property
    def is_usable(self) -> bool:
        """Whether it lies idle, and the database has not closed it."""
        if self.closed or self.info.transaction_status != TransactionStatus.IDLE:
            return False
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return not poll.poll(0)  # nothing comes by itself but the end


class Connections:
    """Connections that threads take for some statements, and give back.

    Parameters
    ----------
    url : str
        Of libpq; several hosts are tried in their order.
    schema : str
        Of the tables.
    limit : int
        At most as many at once.
    application : str
        What the database lists them as.
    seconds : float
        How long the database may take to answer.
    """

    def __init__(
        self, url: str, schema: str, *, limit: int, application: str, seconds: float
    ) -> None:
        self.schema = schema
        self.seconds = seconds
        self._parameters = _parameters(url, schema, application, seconds)
        self._room = threading.BoundedSemaphore(limit)
        self._idle: list[Connection] = []
        self._is_closed = False

    @contextmanager
    def use(self, name: str | None = None) -> Iterator[Connection]:
        """Lend a connection that is outside of a transaction.

        Parameters
        ----------
        name : str or None
            Of the collection, for errors.

        Raises
        ------
        StoreUnavailable, DiskFull
        CollectionNotFound
            It has no table of items.
        """
        if not self._room.acquire(timeout=self.seconds):
            raise StoreUnavailable("all connections are in use")
        try:
            with database_errors(name):
                connection = self._taken()
                try:
                    yield connection
                finally:
                    self._give_back(connection)
        finally:
            self._room.release()

    @contextmanager
    def transaction(self, how: str = "", name: str | None = None) -> Iterator[Connection]:
        """Lend a connection inside of a transaction, which ends with the block."""
        with self.use(name) as connection:
            connection.run(f"BEGIN {how}")
            try:
                yield connection
            except BaseException:
                connection.roll_back()
                raise
            connection.warnings.clear()
            connection.run("COMMIT")
            connection.refuse_warnings()

    def _taken(self) -> Connection:
        while self._idle:
            with suppress(IndexError):
                connection = self._idle.pop()
                if connection.is_usable:
                    return connection
                connection.close()
        if self._is_closed:
            raise StoreUnavailable("the service stops")
        return self._connect()

    def _connect(self) -> Connection:
        connection = Connection.connect(autocommit=True, **self._parameters)
        connection.seconds = self.seconds
        connection.warnings = []
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        connection.add_notice_handler(
            lambda notice: connection.warnings.append(notice.message_primary or "")
        )
        return connection

    def _give_back(self, connection: Connection) -> None:
        if self._is_closed or not connection.is_usable:
            connection.close()
        else:
            self._idle.append(connection)
            if self._is_closed:  # since the look above
                self.close()

    def close(self) -> None:
        """Close the connections that lie idle, and others when they are given back."""
        self._is_closed = True
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()


def _parameters(url: str, schema: str, application: str, seconds: float) -> dict[str, Any]:
    try:
        given = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # what it says has the URL, with its password
        raise ValueError(
            "GCWS_DATABASE_URL: expected a URL such as postgresql://user:password@host:5432/name"
        ) from None
    milliseconds = round(1000 * seconds)
    session = {
        "search_path": schema,
        "synchronous_commit": "on",
        "lock_timeout": str(milliseconds // 2),
        "idle_in_transaction_session_timeout": str(6 * milliseconds),
        **{f"tcp_{name}": str(value) for name, value in _KEEPALIVES.items()},
        "tcp_user_timeout": str(milliseconds),
        **_PLANS,
    }
    options = [str(given.pop("options", ""))]
    options += [f"-c {name}={value}" for name, value in session.items()]
    ours = {
        "connect_timeout": max(2, round(seconds)),
        "target_session_attrs": "read-write",
        "application_name": f"gcws-search {application}",
        "client_encoding": "utf8",
        "tcp_user_timeout": milliseconds,
        **_KEEPALIVES,
    }
    return {**ours, **given, "options": " ".join(options).strip()}


@contextmanager
def database_errors(name: str | None = None) -> Iterator[None]:
    """Raise what the database says as an error of ours.

    Raises
    ------
    StoreUnavailable, DiskFull, CollectionNotFound
    """
    try:
        yield
    except errors.UndefinedTable:
        if name is None:
            raise
        raise ix.CollectionNotFound(name) from None
    except errors.DiskFull:
        raise ix.DiskFull(name) from None
    except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
        raise StoreUnavailable(said(error)) from error


def said(error: BaseException) -> str:
    """Return the first line of an error, without the address that clients need not know."""
    lines = str(error).splitlines() or [type(error).__name__]
    return _ADDRESS.sub("", lines[0])
