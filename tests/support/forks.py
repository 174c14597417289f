"""Work done in a process that is forked from that of the tests."""

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SECONDS: Final = 60


@contextmanager
def fork(work: Callable[[], object]) -> Iterator[Callable[[], str]]:
    """Let a forked process do work; yield what waits for it and returns its result as text."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        process = os.fork()
    if process == 0:
        signal.alarm(SECONDS)  # a lock that nobody gives back ends the process
        try:
            said = str(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)

    def result() -> str:
        with open(read, "rb", closefd=False) as pipe:
            said = pipe.read().decode()
        return said

    try:
        yield result
    finally:
        os.close(read)
        os.waitpid(process, 0)


def done_in_fork(work: Callable[[], object]) -> str:
    """Return what work in a forked process results in."""
    with fork(work) as result:
        return result()
