"""A real server process on this machine, which runs during a ``with`` block."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from benchmarks.harness.client import HOST

READY_LIMIT_SECONDS: Final = 300.0
SERVICE: Final = ("-m", "gcws_search.service", "serve")


@dataclass(frozen=True, slots=True)
class Server:
    """A running server.

    Attributes
    ----------
    port : int
    live_seconds, ready_seconds : float
        From the start of the process to the first 200 of ``/livez``, and of ``/readyz``.
    pid : int
    """

    port: int
    live_seconds: float
    ready_seconds: float
    pid: int


@contextmanager
def serving(
    data_dir: Path,
    *,
    kernels: Path | None = None,
    program: Sequence[str] = SERVICE,
    workers: int = 1,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Server]:
    """Start a server, wait until it is ready, stop it at the end.

    Parameters
    ----------
    data_dir : Path
    kernels : Path or None
        Folder of the compiled kernels; None for the usual one.
    program : sequence of str
        What Python runs.
    workers : int
        Processes that speak HTTP.
    settings : mapping of str to str
        More variables of its environment.
    """
    port = free_port()
    variables = {
        "GCWS_DATA_DIR": str(data_dir),
        "GCWS_PORT": str(port),
        "GCWS_HOST": HOST,
        "GCWS_LOG_LEVEL": "warning",
        "GCWS_WORKERS": str(workers),
    }
    if kernels is not None:
        variables["NUMBA_CACHE_DIR"] = str(kernels)
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *program], env={**os.environ, **variables, **settings}
    )
    try:
        seconds = []
        for path in ("/livez", "/readyz"):
            while not is_ok(port, path):
                if process.poll() is not None:
                    raise RuntimeError(f"the server ended with status {process.returncode}")
                if time.perf_counter() - began > READY_LIMIT_SECONDS:
                    raise TimeoutError("the server does not become ready")
                time.sleep(0.01)
            seconds.append(time.perf_counter() - began)
        yield Server(port, seconds[0], seconds[1], process.pid)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def is_ok(port: int, path: str) -> bool:
    """Whether a path answers 200."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def free_port() -> int:
    """Return a port nobody listens on at the moment."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def resident_bytes(pid: int) -> int:
    """Return how much memory a process holds."""
    words = Path(f"/proc/{pid}/statm").read_text().split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE")
