"""The test build of the server: the program itself, with small numbers and named points.

``python -m tests.crashes.nursery`` imports and compiles everything once; then it forks a server for
each line it is given, so that one is up within moments and a kill costs little.
"""

import json
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final
from unittest import mock

from gcws_search.index import compile_kernels
from gcws_search.service import app as application, cli as command_line, startup
from gcws_search.service.app import open_catalog
from tests.crashes import points
from tests.support.index.policies import FEW_ROWS

_folders: Final[dict[int, Path]] = {}
"""Where to note how each server has ended."""


def main() -> None:
    """Fork a server for each line, and answer with its process id."""
    seconds = compile_kernels()
    with (
        mock.patch.object(startup, "compile_kernels", return_value=seconds),
        mock.patch.object(application, "open_catalog", partial(open_catalog, policies=FEW_ROWS)),
    ):
        signal.signal(signal.SIGCHLD, _reap)
        _tell("ready")
        for line in sys.stdin:
            order = json.loads(line)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
            pid = os.fork()
            if pid == 0:
                _serve(order)
            _folders[pid] = Path(order["log"]).parent
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            _tell(str(pid))


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _reap(_number: int, _frame: FrameType | None) -> None:
    """Note how servers have ended."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with open(_folders.pop(pid) / f"ended-{pid}", "w") as note:
                note.write(f"{os.waitstatus_to_exitcode(status)}\n")


def _serve(order: dict[str, str]) -> None:
    """Become a server; never return."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    log = os.open(order.pop("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(order)
    points.install(order)
    try:
        command_line.cli(["serve"], standalone_mode=True)
    except SystemExit as ended:
        os._exit(int(ended.code or 0))
    finally:
        os._exit(70)


if __name__ == "__main__":
    main()
