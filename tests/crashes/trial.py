"""Rounds of one data directory: a server starts, is checked, is written to, is killed."""

import random
import shutil
from pathlib import Path
from typing import Any, Final

from tests.crashes.checking import Lost, check, held
from tests.crashes.servers import Asking, Ended, Running, start
from tests.crashes.states import CHUNK_ROWS, SHARED, Writer, config_of
from tests.support.paths import OLD_FORMATS

WRITERS: Final = 4
OLD: Final = "old"
"""A collection whose file is of the first format, put there before some starts."""

_OF_OLD_FILES: Final = ("during a migration", "while codes are replaced")
"""Points that only a file of the first format leads to."""
_SETTINGS: Final = {
    "GCWS_LOG_LEVEL": "warning",
    "GCWS_LOAD_CHUNK_ROWS": str(CHUNK_ROWS),
    "GCWS_THREADS": "1",
}
_STARTING_SECONDS: Final = 0.4
_WRITING_SECONDS: Final = 1.0
_POINT_SECONDS: Final = 60.0


class Trial:
    """Servers on one directory, one after the other.

    ``folder``: Empty.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._data_dir = folder / "data"
        self._data_dir.mkdir()
        self._random = random.Random(seed)
        self._old: Any = None
        self._made = False
        self._last_end = "nothing"
        self.kills = self.at_points = self.while_starting = 0
        self.writers = [Writer(number, seed) for number in range(WRITERS)]

    @property
    def acknowledged(self) -> int:
        """Writes that were answered."""
        return sum(writer.acknowledged for writer in self.writers)

    @property
    def told(self) -> str:
        """What was done, in words."""
        unanswered = sum(writer.unanswered for writer in self.writers)
        return (
            f"{self.kills} kills ({self.at_points} at points, {self.while_starting} at starts): "
            f"{self.acknowledged} writes acknowledged, {unanswered} under way at a server's end"
        )

    def kill_at_random(self) -> None:
        """Kill a server some time after its start, or while it is being written to."""
        if self._random.random() < 1 / 6:
            server = self._start()
            server.ended(self._random.uniform(0, _STARTING_SECONDS))
            self.while_starting += 1
        else:
            server = self._checked()
            self._write(server)
            server.ended(self._random.uniform(0, _WRITING_SECONDS))
        self._killed(server, "at random")

    def kill_at(self, point: str, times: int = 1) -> None:
        """Let a server be written to until it ends at a point."""
        if point in _OF_OLD_FILES:
            times = 1  # more would need more old files
            for log in self._data_dir.glob(f"{OLD}.sqlite-*"):  # of an earlier one, killed
                log.unlink()
            shutil.copy(OLD_FORMATS / "format_1.sqlite", self._data_dir / f"{OLD}.sqlite")
        server = self._start(f"{point}:{times}")
        try:
            if server.ready():
                self._check(server)
                self._write(server)
                if "snapshot" in point:
                    with Asking(server.port) as asking:
                        asking.ask("POST", f"/v1/collections/{SHARED}/snapshots")
                if point == "while closing":
                    server.ended(self._random.uniform(0.1, 0.5))
                    server.stop()
                if not server.ended(_POINT_SECONDS):
                    raise Lost(f"not reached: {point}")
        except Ended:
            pass
        finally:
            self._killed(server, point)
        self.at_points += 1

    def stop_after(self, seconds: float) -> None:
        """Order a server to stop while it is written to."""
        server = self._checked()
        try:
            self._write(server)
            server.ended(seconds)
            server.stop()
            server.log_of_good_end()
        finally:
            self._killed(server, "stopped")

    def check(self) -> None:
        """Start a server, check it, and kill it with nothing to do."""
        self._killed(self._checked(), "idle")

    def _killed(self, server: Running, how: str) -> None:
        server.kill()
        self._last_end = how
        self.kills += 1
        for writer in self.writers:
            writer.join()

    def _start(self, point: str | None = None) -> Running:
        return start(self._data_dir, point, **_SETTINGS)

    def _checked(self) -> Running:
        server = self._start()
        try:
            if not server.ready():
                raise Lost("a server does not start", server.log.read_text())
            self._check(server)
        except BaseException:
            server.kill()
            raise
        return server

    def _check(self, server: Running) -> None:
        try:
            self._make_shared(server)
            check(server.port, self.writers, self._random)
            self._check_old(server)
        except Lost as lost:
            lost.add_note(f"how the server before it ended: {self._last_end}")
            raise

    def _make_shared(self, server: Running) -> None:
        """Create the shared collection, once: its weights change, and so does its configuration."""
        method, document = ("GET", None) if self._made else ("PUT", config_of(0))
        with Asking(server.port) as asking:
            status, answer = asking.ask(method, f"/v1/collections/{SHARED}", document)
        if status != (200 if self._made else 201):
            raise Lost(status, answer)
        self._made = True

    def _check_old(self, server: Running) -> None:
        if not (self._data_dir / f"{OLD}.sqlite").exists():
            return
        with Asking(server.port) as asking:
            items = held(asking, OLD)
        self._old = self._old or items
        if not items or items != self._old:
            raise Lost("a migrated collection differs", items, self._old)

    def _write(self, server: Running) -> None:
        for writer in self.writers:
            writer.start(server.port)
