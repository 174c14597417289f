"""Servers that take writes: which is the last primary, and when its epoch began."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from gcws_search.service.cluster.epochs import Epoch, EpochMemory
from gcws_search.service.cluster.errors import FormerPrimary

if TYPE_CHECKING:
    from gcws_search.service.cluster.database.connections import Connection

T = TypeVar("T")

LOCK: Final = 0x67637773
"""Advisory: tables are made, and epochs begin, one after the other."""

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


class BegunEpoch(NamedTuple):
    """A row of the database: an epoch that it went through."""

    number: int
    stamp: str
    system: int
    timeline: int


class Standing(NamedTuple):
    """What a server says of itself.

    Attributes
    ----------
    address : str
    system, timeline, lsn : int
        Of PostgreSQL.
    started : str
        When: two names of one server have the same.
    cluster : str or None
        Identity; None before its tables are made.
    last : BegunEpoch or None
        The last that its database went through.
    known : str or None
        Stamp of its epoch of the number that this process remembers.
    """

    address: str
    system: int
    timeline: int
    lsn: int
    started: str
    cluster: str | None
    last: BegunEpoch | None
    known: str | None

    @property
    def begins(self) -> bool:
        """Whether it was promoted since its last epoch began."""
        return self.last is None or self.timeline > self.last.timeline

    @property
    def number(self) -> int:
        """Of its epoch, which may have to begin."""
        return (0 if self.last is None else self.last.number) + self.begins


def standing_of(connection: Connection, memory: EpochMemory) -> Standing:
    """Ask a server what it is."""
    [row] = connection.run(_SERVER).fetchall()
    system, timeline, lsn, started, has_tables, has_epochs = row
    cluster, last, known = None, None, None
    if has_tables:
        [cluster] = connection.column(_IDENTITY) or [None]
    if has_epochs:
        last = next((BegunEpoch(*row) for row in connection.run(_LAST).fetchall()), None)
        if memory.last is not None:
            known = next(iter(connection.column(_STAMP, memory.last.number)), None)
    address = f"{connection.info.host}:{connection.info.port}"
    return Standing(address, system, timeline, lsn, started, cluster, last, known)


def check_standing(standing: Standing, memory: EpochMemory, cluster: str | None) -> None:
    """Raise FormerPrimary where a server does not come from what this process remembers.

    Parameters
    ----------
    standing : Standing
    memory : EpochMemory
    cluster : str or None
        That this process has joined; None before.
    """
    last, known = standing.last, memory.last
    if standing.cluster in memory.former or cluster not in (None, standing.cluster):
        expected = cluster or (known and known.cluster)
        raise _refused(standing, "is of another cluster", expected, standing.cluster)
    if known is not None and known.cluster == standing.cluster:
        if standing.known != known.stamp:
            number = 0 if last is None else last.number
            got = f"epoch {number} (timeline {standing.timeline})"
            if number >= known.number:
                got += f" of another promotion than the epoch {known.number} that is known"
            raise _refused(standing, "is a former primary", f"{known} or later", got)
        if standing.number == known.number and standing.lsn < known.lsn:
            expected = f"a log up to {_place(known.lsn)}, on timeline {known.timeline}"
            raise _refused(standing, "is an older copy", expected, _place(standing.lsn))
    if last is not None and (standing.system != last.system or standing.timeline < last.timeline):
        raise _refused(
            standing,
            "was restored from a backup ('gcws-search cluster adopt' has it taken)",
            f"system {last.system} on timeline {last.timeline} or later",
            f"system {standing.system} on timeline {standing.timeline}",
        )


def latest(found: Sequence[tuple[Standing, T]]) -> tuple[Standing, T]:
    """Return the last primary of servers that all take writes.

    Raises
    ------
    FormerPrimary
        None is known to be the last.
    """
    best = max(found, key=lambda each: each[0].number)
    rivals = {
        (one.cluster, one.started): one.address
        for one, _ in found
        if one.cluster != best[0].cluster or one.number == best[0].number
    }
    if len(rivals) > 1:
        raise FormerPrimary(
            f"{len(rivals)} servers take writes, and none is known to be the last primary;"
            " end those that are not, or take them out of GCWS_DATABASE_URL",
            " and ".join(rivals.values()),
        )
    return best


def begin_epoch(connection: Connection, standing: Standing) -> Epoch | None:
    """Return the epoch of a server, which begins with the first who looks; None without tables."""
    if standing.cluster is None or (standing.last is None and not _has_epochs(connection)):
        return None
    last = standing.last
    if last is None or standing.begins:
        last = _last_row(connection, standing)
    return Epoch(standing.cluster, last.number, last.timeline, last.stamp, standing.lsn)


def _has_epochs(connection: Connection) -> bool:
    return bool(connection.column("SELECT to_regclass('epochs') IS NOT NULL")[0])


def _last_row(connection: Connection, standing: Standing) -> BegunEpoch:
    connection.run("BEGIN")
    try:
        # Its standby may not be there yet. Who waits for it later, waits for this too.
        connection.run("SET LOCAL synchronous_commit = local")
        connection.run("SELECT pg_advisory_xact_lock(%b)", LOCK)
        found = next((BegunEpoch(*row) for row in connection.run(_LAST).fetchall()), None)
        if found is None or standing.timeline > found.timeline:
            number = 1 if found is None else found.number + 1
            found = BegunEpoch(number, secrets.token_hex(8), standing.system, standing.timeline)
            connection.run(_BEGIN, *found)
    except BaseException:
        connection.roll_back()
        raise
    connection.run("COMMIT")
    return found


def _refused(standing: Standing, what: str, expected: object, got: object) -> FormerPrimary:
    return FormerPrimary(f"it {what}: expected {expected}, got {got}", standing.address)


def _place(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
