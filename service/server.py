"""What every process that serves has: uvicorn's options, and settings of the interpreter."""

from __future__ import annotations

import gc
import logging
import os
import resource
import socket
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Final

import uvicorn
from threadpoolctl import threadpool_limits

from gcws_search.service.http.timeouts import with_timeouts
from gcws_search.service.settings import Settings

_KEEP_ALIVE_SECONDS: Final = 75

STOP_SECONDS: Final = 10.0
"""A process whose requests have had their time may take this long to close its files."""
_LAST_SECONDS: Final = 1.0
"""A process that has closed its files waits this long for threads that still compute."""

_SWITCH_SECONDS: Final = 0.0001
"""How long a thread that computes in Python, as a load does, keeps the interpreter from others.
Python's default is 5 ms. Queries beside a load took 2.6 ms at p99 with 0.5 ms, and 1.9 ms so."""


_log = logging.getLogger(__name__)


class HttpServer(uvicorn.Server):
    """A server whose process ends in time after SIGTERM or SIGINT.

    A thread that still computes is cut off. Nothing is lost: acknowledged writes are on the disk.
    """

    _is_told = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; end the process when that takes too long."""
        if not self._is_told:
            self._is_told = True
            _end_process_after((self.config.timeout_graceful_shutdown or 0) + STOP_SECONDS)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; from then on the process waits but shortly for threads that compute."""
        await super().shutdown(sockets)
        if self._is_told:
            _end_process_after(_LAST_SECONDS)


def _end_process_after(seconds: float) -> None:
    """End the process after a time, be there threads that still compute or not."""

    def end() -> None:
        _log.warning("the process ends beside work that would not stop; no file is harmed")
        logging.shutdown()
        os._exit(0)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def tune_process() -> None:
    """Set the interpreter, its libraries and the process up for serving."""
    allow_descriptors()
    sys.setswitchinterval(_SWITCH_SECONDS)
    # Modules stay, and going through them at each full collection stops all answers for 60 ms.
    # They are not collected first: of 400,000 objects only a thousand are garbage.
    gc.freeze()
    # A batch of queries makes 20,000 objects: a collection each 700 took a third of its time.
    gc.set_threshold(50_000, 20, 20)
    # Work is split over threads above products of matrices. Threads that BLAS starts besides wait
    # busily for each other: features by 256 landmarks took 5 s among other work, without them 0.15.
    threadpool_limits(1, user_api="blas")


def server_options(settings: Settings) -> dict[str, Any]:
    """Return uvicorn's options but those of where it listens."""
    return {
        "log_level": settings.log_level,
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "timeout_keep_alive": _KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": settings.shutdown_seconds,
        "http": with_timeouts(settings),
        "ws": "none",
        "proxy_headers": False,  # nothing here asks who the client is
    }


def allow_descriptors() -> None:
    """Let the process have as many files and connections open as the system lets it take."""
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):  # some systems name a limit they do not give
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
