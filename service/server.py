"""What every process that serves has: uvicorn's options, and settings of the interpreter."""

from __future__ import annotations

import gc
import resource
import sys
from contextlib import suppress
from typing import Any, Final

from threadpoolctl import threadpool_limits

from gcws_search.service.http.timeouts import timed
from gcws_search.service.settings import Settings

_KEEP_ALIVE_SECONDS: Final = 75

_SWITCH_SECONDS: Final = 0.0001
"""How long a thread that computes in Python, as a load does, keeps the interpreter from others.
Python's default is 5 ms. Queries beside a load took 2.6 ms at p99 with 0.5 ms, and 1.9 ms so."""


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
        "http": timed(settings),
        "ws": "none",
        "proxy_headers": False,  # nothing here asks who the client is
    }


def allow_descriptors() -> None:
    """Let the process have as many files and connections open as the system lets it take."""
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):  # some systems name a limit they do not give
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
