"""Parallel parts of a work: in threads, in processes of this machine, or as Ray tasks."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any, Final, TypeVar

from gcws_search.index import InvalidParameter, error_words
from gcws_search.index.contracts.parameters import require
from gcws_search.index.corpus import TaskPool, results
from gcws_search.version import program_version

__all__ = [
    "TaskPool",
    "has_token",
    "joined_ray",
    "prepare_ray",
    "process_pool",
    "ray_pool",
    "reach_head",
    "results",
    "thread_pool",
]

T = TypeVar("T")

_HEAD_SECONDS: Final = 3.0
_TRIES: Final = 3
_AGAIN: Final = f"{_TRIES} times, perhaps for want of memory; the same call goes on"


@contextmanager
def thread_pool(threads: int) -> Iterator[TaskPool]:
    """Yield threads of this process, for functions that release the interpreter's lock."""
    with ThreadPoolExecutor(threads, thread_name_prefix="part") as executor:
        yield TaskPool(executor.submit, threads)


@contextmanager
def process_pool(processes: int) -> Iterator[TaskPool]:
    """Yield processes, including this one; others import the main module of a script again.

    They leave interrupts to this process, and end with the pool or with this process. If one is
    killed, another one repeats its part; ChildProcessError if that is killed as well.
    """
    if processes == 1:
        yield TaskPool(_call_here, 1)
        return
    life, end = Pipe(duplex=False)
    start = partial(ProcessPoolExecutor, 1, get_context("spawn"), _live_with, (life,))
    idle = [start() for _ in range(processes)]

    def call(function: Callable[..., T], *arguments: object) -> T:
        for _ in range(_TRIES):
            process = idle.pop()
            try:
                return process.submit(function, *arguments).result()
            except BrokenProcessPool:
                process = start()
            finally:
                idle.append(process)
            if end.closed:
                break
        raise ChildProcessError(f"a process was killed {_AGAIN}")

    try:
        with ThreadPoolExecutor(processes, thread_name_prefix="process") as threads, end:
            submit = lambda function, *given: threads.submit(call, function, *given)  # noqa: E731
            yield TaskPool(submit, processes, end.close)
    finally:
        for each in idle:  # its remaining threads would race with the exit of Python
            each.shutdown()


def _call_here(function: Callable[..., T], *arguments: object) -> Future[T]:
    told = Future[T]()
    told.set_result(function(*arguments))
    return told


def _live_with(caller: Connection) -> None:
    """Leave interrupts to the caller, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=lambda: caller.poll(None) and os._exit(1), daemon=True).start()


def reach_head(address: str) -> None:
    """Check that a server listens at HOST:PORT; OSError if not, ValueError for another form."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise ValueError(f"expected HOST:PORT of Ray's head, got {address!r}")
    socket.create_connection((host.strip("[]"), int(port)), _HEAD_SECONDS).close()


def has_token(variables: Mapping[str, str]) -> bool:
    """Return whether Ray has a token: in the environment, or in a file."""
    file = variables.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token"
    return bool(variables.get("RAY_AUTH_TOKEN")) or Path(file).is_file()


def prepare_ray() -> None:
    """Set the environment variables that Ray reads at import."""
    if has_token(os.environ):
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")  # of the head; each takes seconds


@contextmanager
def joined_ray(address: str = "auto", namespace: str | None = None) -> Iterator[Any]:
    """Join the Ray cluster at an address until the block ends; yield Ray.

    "auto": that of this machine, or the one at RAY_ADDRESS. Raises ConnectionError if there is
    none, or if it has another version or another token.
    """
    prepare_ray()
    import ray  # noqa: PLC0415  # takes long, and may be missing
    from ray._private.services import canonicalize_bootstrap_address  # noqa: PLC0415

    try:
        found = canonicalize_bootstrap_address(address)
        reach_head(found)  # Ray itself tries for minutes
        ray.init(
            address=found, namespace=namespace, log_to_driver=False, logging_level=logging.ERROR
        )
    except (OSError, ray.exceptions.RayError, RuntimeError, ValueError) as error:
        lines = [line.strip() for line in error_words(error).splitlines() if line.strip()]
        raise ConnectionError(
            f"cannot join Ray: {' '.join(lines)}. The head must run with this token and"
            f" Ray {ray.__version__}"
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def ray_pool(address: str, shared: Path | None = None) -> Iterator[TaskPool]:
    """Yield the processors of a Ray cluster, each for one task at a time.

    Ray repeats a task whose process or node is lost; ChildProcessError if it gives up.

    shared: a folder that all nodes have under this path.
    Raises ConnectionError as `joined_ray`; so does a task on a node with another version of this
    package, or without the folder.
    """
    if find_spec("ray") is None:
        raise InvalidParameter(
            expected="Ray, which pip install 'gcws-search[cluster]' brings",
            got="no module named 'ray'",
            loc=("ray",),
        )
    with joined_ray(address) as ray:
        # Less than one: replicas on the same nodes reserve a hundredth of one each.
        run = ray.remote(num_cpus=0.9, max_retries=_TRIES)(_run)
        here = ray.put((program_version(), Path.cwd(), shared))  # paths may be relative to it
        begun = dict[Any, Future[Any]]()

        def submit(function: Callable[..., object], *arguments: object) -> Future[Any]:
            told = Future[Any]()
            told.set_running_or_notify_cancel()
            task = run.remote(here, function, arguments)
            begun[task] = told

            def settle(done: Future[Any]) -> None:
                error = done.exception()
                if begun.pop(task, None) is None:
                    return
                if error is None:
                    told.set_result(done.result())
                else:  # the error of a task, without Ray's text
                    lost = ChildProcessError(f"a task of Ray was lost {_AGAIN}")
                    told.set_exception(getattr(error, "cause", lost))

            task.future().add_done_callback(settle)
            return told

        size = int(ray.cluster_resources().get("CPU", 0))
        require(size >= 1, name="ray", expected="a cluster with processors", got=size)
        try:
            end = lambda: [ray.cancel(each, force=True) for each in [*begun]]  # noqa: E731
            yield TaskPool(submit, size, end)
        finally:
            while begun:  # they end with the connection; ending them later would join Ray again
                with suppress(KeyError):
                    begun.popitem()[1].set_exception(ChildProcessError("the pool has ended"))


def _run(
    here: tuple[str, Path, Path | None], function: Callable[..., T], arguments: tuple[object, ...]
) -> T:
    """Call a function on a node of Ray, whose version and folder must match the caller's."""
    (expected, folder, shared), got = here, program_version()
    node = os.uname().nodename
    if expected != got:
        raise ConnectionError(f"node {node}: expected gcws-search {expected}, got {got}")
    if shared is not None and not shared.is_dir():
        raise ConnectionError(f"node {node}: expected to see {str(shared)!r}, got nothing there")
    with suppress(OSError):  # absolute paths work if this folder is missing on a machine
        os.chdir(folder)
    return function(*arguments)
