"""Which primary of the database is current: what each process remembers outside of the database.

A primary that was replaced and comes back has all that it had, and takes writes. Each time of one
primary is an epoch. The database has a row for each that it went through. Routers and shards tell
each other the last one that they know, and refuse a server that does not come from it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from gcws_search.service.cluster.contract import ClusterMismatch
from gcws_search.service.messages import Malformed

FILE: Final = "epoch.json"  # of a shard's folder

_log = logging.getLogger(__name__)


class Epoch(NamedTuple):
    """The time of one primary."""

    cluster: str  # identity of the cluster
    number: int  # from 1 on
    timeline: int  # of PostgreSQL
    stamp: str  # random: another primary may have begun an epoch of the same number
    lsn: int = 0  # up to where the write-ahead log of the primary was seen to be on its disk

    @classmethod
    def read(cls, said: Any) -> Epoch:  # noqa: ANN401
        """Return what a message or a file says; ValueError where it is no epoch."""
        try:
            cluster, number, timeline, stamp, lsn = said
            return cls(str(cluster), int(number), int(timeline), str(stamp), int(lsn))
        except (TypeError, ValueError):
            raise ValueError(f"expected an epoch, got {said!r:.100}") from None

    def __str__(self) -> str:
        """Return what errors and logs say of it."""
        return f"epoch {self.number} (timeline {self.timeline})"


class EpochMemory:
    """The last epoch that a process has heard of, kept in a file if there is one; any thread."""

    def __init__(self, file: Path | None = None) -> None:
        self.last: Epoch | None = None
        # identities of clusters that another one took the place of
        self.former: frozenset[str] = frozenset()
        self._file = file
        self._changing = threading.Lock()
        self._watching: list[Callable[[], None]] = []
        if file is None or not file.exists():
            return
        try:
            said = orjson.loads(file.read_bytes())
            self.last, self.former = Epoch.read(said["last"]), frozenset(said["former"])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"{file}: expected the last epoch of the database, got {error};"
                " with this file removed, the replica learns it from routers"
            ) from None

    @property
    def number(self) -> int:
        """Of the last epoch; 0 where none is known."""
        return 0 if self.last is None else self.last.number

    @property
    def document(self) -> list[str | int] | None:
        """The last epoch as messages say it."""
        return None if self.last is None else [*self.last]

    def watch(self, call: Callable[[], None]) -> None:
        """Have something called once a later epoch is known."""
        self._watching.append(call)

    def learn(self, epoch: Epoch) -> None:
        """Take note of an epoch that is known elsewhere.

        ClusterMismatch where it is of another cluster, or two primaries began one of this number.
        """
        with self._changing:
            last = self.last
            if last is not None and epoch.cluster != last.cluster:
                raise ClusterMismatch("identity of the cluster", last.cluster, epoch.cluster)
            if last is not None and epoch.number == last.number and epoch.stamp != last.stamp:
                text = f"epoch {epoch.number} of two primaries"
                raise ClusterMismatch(text, last.stamp, epoch.stamp)
            self._take(epoch)

    def hear(self, said: object) -> None:
        """Learn the last epoch that a message says its sender knows; None of an older program.

        Malformed where it is no epoch, of another cluster, or of another promotion.
        """
        if said is None or said == self.document:
            return
        try:
            self.learn(Epoch.read(said))
        except ValueError as error:
            raise Malformed(str(error)) from None

    def enter(self, epoch: Epoch) -> None:
        """Take note of the database that was opened, which may be another cluster's than before."""
        with self._changing:
            if self.last is not None and epoch.cluster != self.last.cluster:
                self.former |= {self.last.cluster}
                self.last = None
            self._take(epoch)

    def _take(self, epoch: Epoch) -> None:
        last = self.last
        if last is not None and (epoch.number, epoch.lsn) <= (last.number, last.lsn):
            return
        self.last = epoch
        if last is not None and epoch.number == last.number:
            return  # the place in the log alone is not worth a write
        self._save(epoch)
        for call in self._watching:
            call()

    def _save(self, epoch: Epoch) -> None:
        if self._file is None:
            return
        said = {"last": [*epoch], "former": sorted(self.former)}
        unfinished = self._file.with_suffix(".unfinished")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                file.write(orjson.dumps(said))
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self._file)
        except OSError as error:  # this process knows it all the same
            _log.warning("the last epoch of the database is not kept: %s", error)
