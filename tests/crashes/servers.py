"""Servers of the test build, seen from outside: started, asked, killed."""

import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from unittest import mock

import httpx

from tests.crashes.points import VARIABLE
from tests.support.paths import REPOSITORY
from tests.support.service.ports import HOST, free_port

START_SECONDS: Final = 600.0
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
                if answer.is_error:
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

    def __enter__(self) -> "Asking":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()


class Running:
    """A server process."""

    def __init__(self, log: Path, settings: dict[str, str]) -> None:
        self.log = log
        self.port = int(settings["GCWS_PORT"])
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.crashes.nursery", __name__])
        self._process = context.Process(target=_serve, args=(str(log), settings), daemon=True)
        # A fork of several threads may hang.
        alone = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
        cache = {"NUMBA_CACHE_DIR": str(REPOSITORY / ".pytest_cache" / "kernels")}
        with mock.patch.dict(os.environ, cache | os.environ | alone):
            self._process.start()
        self.pid = self._process.pid or 0

    def stop(self) -> None:
        self._process.terminate()

    def ended(self, seconds: float = 0.0) -> bool:
        """Return whether the process is gone, at once or before so many seconds are over."""
        self._process.join(seconds)
        return self._process.exitcode is not None

    def kill(self) -> None:
        self._process.kill()
        assert self.ended(60), "a killed process is still there"

    def log_of_good_end(self) -> str:
        """Wait until the process has ended well, and return its log.

        A server takes 13 seconds at most; machines that do much else may need more.
        """
        self._process.join(60)
        log = self.log.read_text()
        assert self._process.exitcode == 0, (self._process.exitcode, log)
        assert "Traceback" not in log
        return log

    def phase(self) -> str | None:
        """Return how far the server has come; None where it does not answer."""
        with Asking(self.port) as asking, suppress(Ended):
            told: str = asking.ask("GET", "/readyz")[1]["phase"]
            return told
        return None

    def ready(self) -> bool:
        """Wait until the server is ready; False when it has ended."""
        deadline = time.monotonic() + START_SECONDS
        while not self.ended(0.005):
            if self.phase() == "ready":
                return True
            assert time.monotonic() < deadline, self.log.read_text()
        return False


def _serve(log: str, settings: dict[str, str]) -> None:
    from tests.crashes import nursery  # noqa: PLC0415  # compiles kernels

    nursery.serve(log, settings)


def start(data_dir: Path, point: str | None = None, **settings: str) -> Running:
    """Start a server; ``point``, ``NAME:N``: to end when it is reached for the n-th time."""
    settings |= {"GCWS_DATA_DIR": str(data_dir), "GCWS_PORT": str(free_port())}
    if point is not None:
        settings[VARIABLE] = point
    return Running(data_dir.parent / "log", settings)


@contextmanager
def serving(data_dir: Path, **settings: str) -> Iterator[Running]:
    """Run a server, ready, until the block ends."""
    data_dir.mkdir(exist_ok=True)
    running = start(data_dir, **settings)
    try:
        assert running.ready(), running.log.read_text()
        yield running
    finally:
        running.kill()
