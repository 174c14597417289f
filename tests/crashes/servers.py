"""Servers of the test build, seen from outside: started, asked, killed."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx

from tests.crashes.points import VARIABLE
from tests.support.paths import REPOSITORY
from tests.support.service.ports import HOST, free_port

START_SECONDS: Final = 600.0
_OK: Final = 200
_LINES: Final = {"Content-Type": "application/x-ndjson"}
# Not a time-out: a server that does not answer is a failure.
_ENDED: Final = httpx.NetworkError, httpx.RemoteProtocolError


class Ended(Exception):
    """The server is no longer there to answer."""


class Asking:
    """One connection to a server; made anew when the server has closed it."""

    def __init__(self, port: int) -> None:
        self.http = httpx.Client(base_url=f"http://{HOST}:{port}", timeout=120)

    def ask(
        self,
        method: str,
        path: str,
        document: Any = None,  # noqa: ANN401
        **headers: str,
    ) -> tuple[int, Any]:
        """Return an answer's status and document; bytes are sent as lines, or as headers say."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(document, bytes):
            sent: dict[str, Any] = {"content": document, "headers": _LINES | named}
        else:
            sent = {"json": document, "headers": named}
        try:
            answer = self.http.request(method, path, **sent)
        except _ENDED as error:
            raise Ended(str(error)) from None
        is_json = "json" in answer.headers.get("Content-Type", "")
        return answer.status_code, answer.json() if is_json else answer.text

    def lines(self, path: str, body: bytes) -> Iterator[Any]:
        """Yield the lines that a load is answered with, as they come."""
        kinds = _LINES | {"Accept": "application/x-ndjson"}
        try:
            with self.http.stream("POST", path, content=body, headers=kinds) as answer:
                if answer.status_code != _OK:
                    raise AssertionError(answer.read())
                yield from map(json.loads, answer.iter_lines())
        except (*_ENDED, json.JSONDecodeError) as error:  # half a line
            raise Ended(str(error)) from None

    def success(self, method: str, path: str, document: Any = None, **headers: str) -> Any:  # noqa: ANN401
        """Return the document of an answer that must be a success."""
        status, answer = self.ask(method, path, document, **headers)
        if status >= 400:
            raise AssertionError((method, path, status, answer))
        return answer

    def close(self) -> None:
        """Close the connection."""
        self.http.close()

    def __enter__(self) -> "Asking":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Running:
    """A server process that is not this one's child."""

    def __init__(self, pid: int, port: int, log: Path) -> None:
        self.port = port
        self.log = log
        self.pid = pid
        try:
            self._handle = os.pidfd_open(pid)
        except ProcessLookupError:  # it has ended already
            self._handle = -1

    def signal(self, number: signal.Signals) -> None:
        if self._handle >= 0:
            try:
                signal.pidfd_send_signal(self._handle, number)
            except ProcessLookupError:
                return

    def ended(self, seconds: float = 0.0) -> bool:
        """Return whether the process is gone, at once or before so many seconds are over."""
        if self._handle < 0:
            return True
        return bool(select.select([self._handle], [], [], seconds)[0])

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if not self.ended(60):
            raise AssertionError("a killed process is still there")
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def status(self, seconds: float = 60.0) -> int:
        """Wait until the process has ended, and return its exit status."""
        if not self.ended(seconds):
            raise AssertionError("the server does not end")
        note, deadline = self.log.parent / f"ended-{self.pid}", time.monotonic() + seconds
        while not (note.exists() and note.read_text().endswith("\n")):
            if time.monotonic() > deadline:
                raise AssertionError("nobody has noted how the server ended")
            time.sleep(0.005)
        return int(note.read_text())

    def ready(self) -> bool:
        """Wait until the server is ready; False when it has ended."""
        deadline = time.monotonic() + START_SECONDS
        while not self.ended(0.005):
            with Asking(self.port) as asking, suppress(Ended):
                if asking.ask("GET", "/readyz")[0] == _OK:
                    return True
            if time.monotonic() > deadline:
                raise AssertionError(f"the server does not start: {self.log.read_text()}")
        return False


class Nursery:
    """Starts servers."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._read()

    @contextmanager
    def serving(self, data_dir: Path, **settings: str) -> Iterator[Running]:
        """Run a server, ready, until the block ends."""
        data_dir.mkdir(exist_ok=True)
        running = self.start(data_dir, point=None, times=1, **settings)
        try:
            if not running.ready():
                raise AssertionError(running.log.read_text())
            yield running
        finally:
            running.kill()

    def start(
        self, data_dir: Path, *, point: str | None = None, times: int = 1, **settings: str
    ) -> Running:
        """Start a server, to end at the ``times``-th time that a point is reached."""
        port, log = free_port(), data_dir.parent / "log"
        order = {"log": str(log), "GCWS_DATA_DIR": str(data_dir), "GCWS_PORT": str(port)}
        if point is not None:
            order[VARIABLE] = f"{point}:{times}"
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order | settings) + "\n")
        self._process.stdin.flush()
        return Running(int(self._read()), port, log)

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError("the nursery has ended")
        return line


@contextmanager
def nursery() -> Iterator[Nursery]:
    """Run the process that servers come from."""
    # A fork of several threads may hang.
    alone = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    cache = {"NUMBA_CACHE_DIR": str(REPOSITORY / ".pytest_cache" / "kernels")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crashes.nursery"],
        env={**cache, **os.environ, **alone},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        try:
            yield Nursery(process)
        finally:
            process.kill()
