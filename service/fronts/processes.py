"""The processes of one service, an owner and its fronts: start, restart and stop."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Final, TypeAlias

import uvicorn
from fastapi import FastAPI

from gcws_search import index as ix
from gcws_search.service.app import create_app, open_catalog
from gcws_search.service.fronts.app import CHANNEL, HTTP, create_front
from gcws_search.service.fronts.channel import Channel, Owner
from gcws_search.service.server import (
    STOP_SECONDS,
    HttpServer,
    configure_logs,
    place_of,
    server_options,
    tune_process,
)
from gcws_search.service.settings import Settings

Address: TypeAlias = tuple[int, Any]  # family and address of a socket

_BACKLOG: Final = 2048
_STEADY_SECONDS: Final = 1.0  # a process that ends sooner is restarted after a delay
_MAX_DELAY_SECONDS: Final = 5.0
_OWNER_SECONDS: Final = 1  # how long the owner continues after the last front has ended
_STOPS: Final = (signal.SIGTERM, signal.SIGINT)
_GRACE_SECONDS: Final = 5.0  # a front that runs this long after its time to stop is killed

_log = logging.getLogger(__name__)


def reserve_addresses(host: str, port: int) -> list[socket.socket]:
    """Return sockets bound to the addresses without listening, so that they stay reserved.

    Each front listens on its own sockets at these addresses: the system distributes connections.
    """
    found: list[socket.socket] = []
    kinds = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, _, _, _, address in dict.fromkeys(kinds):
        if found and not port:  # one free port, if any will do
            break
        found.append(_bind((family, address)))
    return found


def _bind(address: Address) -> socket.socket:
    family, place = address
    found = socket.socket(family)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    found.bind(place)
    return found


def run_front(settings: Settings, addresses: Sequence[Address], folder: Path) -> None:
    """Run a front until stopped."""
    sockets = [_bind(address) for address in addresses]
    for each in sockets:
        each.listen(_BACKLOG)
    config = uvicorn.Config(create_front(settings, folder), **server_options(settings))
    HttpServer(config).run(sockets)


def run_owner(settings: Settings, folder: Path, opened: Any) -> None:  # noqa: ANN401
    """Run the owner until stopped; exit with 1 if the collections cannot be opened.

    ``folder`` has the sockets; ``opened`` is set once this process has locked the data directory.
    """
    try:
        catalog = open_catalog(settings)
    except (ix.GcwsError, OSError) as error:
        sys.stderr.write(f"gcws-search: {ix.error_words(error)}\n")
        sys.exit(1)
    opened.set()
    ix.work_alone()  # this thread runs the event loop, and the fronts need the other processors
    quiet = settings.model_copy(update={"access_log": False})  # fronts write the access log
    app = create_app(quiet, catalog=catalog)
    attach_channel(app, folder / CHANNEL)
    for name in (CHANNEL, HTTP):  # left by a killed owner
        (folder / name).unlink(missing_ok=True)
    # It gets SIGTERM when no front is left: nobody waits for its answers.
    options = server_options(quiet) | {"timeout_graceful_shutdown": _OWNER_SECONDS}
    config = uvicorn.Config(app, uds=str(folder / HTTP), **options)
    try:
        HttpServer(config).run()
    finally:
        parent = multiprocessing.parent_process()
        if parent is not None and os.getppid() != parent.pid:  # else the parent removes the folder
            shutil.rmtree(folder, ignore_errors=True)


def attach_channel(app: FastAPI, path: Path) -> None:
    """Let an application accept messages of fronts at a socket while it runs."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Any]:
        async with inner(app) as state:
            owner = Owner(app, app.state.service)
            server = await asyncio.get_running_loop().create_unix_server(
                lambda: Channel(owner), str(path)
            )
            try:
                yield state
            finally:
                server.close()
                for channel in [*owner.channels]:
                    channel.close()

    app.router.lifespan_context = lifespan


def _begin(settings: Settings, parent_end: int) -> None:
    """Set up a child process: its own process group, which ends with its parent.

    ``parent_end``: a pipe that closes with the parent.
    """
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    configure_logs(settings.log_level, settings.log_format)
    tune_process()

    def end_with_parent() -> None:
        wait([parent_end])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()


@dataclass(eq=False)
class _Child:
    """A process that is restarted when it ends."""

    name: str
    start_process: Callable[[], Any]
    process: Any = None
    started: float = 0.0
    due: float = 0.0
    failures: int = 0

    def start(self) -> None:
        self.process = self.start_process()
        self.started = time.monotonic()

    def note_end(self) -> int:
        """Record that the process has ended, and schedule its restart; return the exit code."""
        code: int = self.process.exitcode
        self.process = None
        now = time.monotonic()
        self.failures = 0 if now - self.started > _STEADY_SECONDS else self.failures + 1
        self.due = now + min(_MAX_DELAY_SECONDS, 0.1 * (2**self.failures - 1))
        return code


class Processes:
    """An owner and its fronts."""

    def __init__(self, settings: Settings) -> None:
        # Children inherit these imports: a new interpreter would import for 1.5 s.
        self._context = context = multiprocessing.get_context("fork")
        self._settings = settings
        self._sockets = reserve_addresses(settings.host, settings.port)
        self._folder = Path(tempfile.mkdtemp(prefix="gcws-"))
        self._opened = context.Event()
        addresses = [(each.family, each.getsockname()) for each in self._sockets]

        self._owner = _Child(
            "owner", lambda: self._start(run_owner, settings, self._folder, self._opened)
        )
        self._fronts = [
            _Child(
                f"front {number}", lambda: self._start(run_front, settings, addresses, self._folder)
            )
            for number in range(1, settings.workers + 1)
        ]
        self._woken, self._waker = os.pipe()
        self._parent_end, self._only_here = os.pipe()  # siblings keep those of multiprocessing open

    def _start(self, run: Callable[..., None], *arguments: object) -> Any:  # noqa: ANN401
        """Return a new child process that calls ``run``."""

        def begin() -> None:
            os.close(self._only_here)
            _begin(self._settings, self._parent_end)
            run(*arguments)

        process = self._context.Process(target=begin)
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)  # until the child has its own handlers
        process.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        return process

    def run(self) -> int:
        """Serve until stopped; return the exit code."""
        for number in _STOPS:
            signal.signal(number, lambda *_: os.write(self._waker, b"."))
        children = [self._owner, *self._fronts]
        try:
            for child in children:
                child.start()
            for address in self._sockets:
                where = place_of(address.getsockname())
                _log.info("listening on %s by %d fronts", where, len(self._fronts))
            while (ended := self._next_end(children)) is not None:
                code = ended.note_end()
                if ended is self._owner and not self._opened.is_set():
                    return code or 1
                _log.warning("the %s has ended (%s); it is started again", ended.name, code)
            return 0
        finally:
            self._stop()

    def _next_end(self, children: Sequence[_Child]) -> _Child | None:
        """Start due processes; return the next child whose process ends, or None to stop."""
        while True:
            now = time.monotonic()
            for child in children:
                if child.process is None and child.due <= now:
                    child.start()
            due = [child.due - now for child in children if child.process is None]
            running = {child.process.sentinel: child for child in children if child.process}
            found = wait([self._woken, *running], timeout=max(0.0, min(due)) if due else None)
            if self._woken in found:
                return None
            for sentinel in found:
                child = running[sentinel]
                child.process.join()
                return child

    def _stop(self) -> None:
        """Stop the fronts, then the owner; kill processes that do not end in time."""
        front_seconds = self._settings.shutdown_seconds + _GRACE_SECONDS
        owner_seconds = _OWNER_SECONDS + STOP_SECONDS + _GRACE_SECONDS
        for children, seconds in ((self._fronts, front_seconds), ([self._owner], owner_seconds)):
            processes = [child.process for child in children if child.process is not None]
            for process in processes:
                process.terminate()
            limit = time.monotonic() + seconds
            for process in processes:
                process.join(max(0.0, limit - time.monotonic()))
                if process.is_alive():
                    process.kill()
                    process.join()
        for each in self._sockets:
            each.close()
        with suppress(OSError):
            shutil.rmtree(self._folder)
