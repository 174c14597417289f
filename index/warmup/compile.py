"""Compile every kernel, or take it from numba's cache, before the first request needs it.

Compiling holds a lock of the whole process. So the first start on a machine has other processes
compile, one a core, and takes from numba's cache what they have written.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Final, TextIO

import numba
from numba.core.registry import cpu_target

from gcws_search.imports import quick_imports
from gcws_search.index.contracts.parameters import Form
from gcws_search.index.kernels import CACHE_FOLDER, COMPILED_FOLDER
from gcws_search.index.kernels.cache import KernelCache, mark
from gcws_search.index.threads import available_threads
from gcws_search.index.warmup.exercises import Exercise, chains

Progress = Callable[[int, int, str], None]
"""Called with (exercises done, exercises in all, name of the exercise now done)."""

_MAX_PROCESSES: Final = 4
"""More would have nothing to do: a chain of exercises is compiled by one process."""
_CHECK_SECONDS: Final = 0.2

_log = logging.getLogger(__name__)


def ignore_form(_form: Form) -> None:
    """Do nothing once the kernels of a form are ready."""


def kernels_are_cached(folder: Path = CACHE_FOLDER) -> bool:
    """Return whether kernels of these sources are compiled for this processor, or installed so."""
    return KernelCache.installed is not None or _mark(folder).exists()


def compile_kernels(
    progress: Progress | None = None,
    *,
    basics_ready: Callable[[Form], None] = ignore_form,
    check: Callable[[], None] = lambda: None,
    folder: Path = CACHE_FOLDER,
    without_blas: bool = False,
) -> float:
    """Run each kernel once on small made data; return the seconds it took.

    The first run on a machine compiles for its processor, in a process a core. Later ones read
    numba's cache (beside the sources, or in the folder that NUMBA_CACHE_DIR names). Where kernels
    were installed compiled, the first run reads them.

    basics_ready: is called with a form once its vectors can be stored and scanned without
      compiling.
    check: is called a few times a second while other processes compile. What it raises ends the
      work.
    folder: where it is marked that kernels are compiled.
    without_blas: load numba without BLAS, which no kernel calls, and whose import takes a third of
      a start. Functions of numba that need it fail in this process from then on.
    """
    started = time.perf_counter()
    if without_blas:
        _load_numba_without_blas()
    if not kernels_are_cached(folder):
        _tell_of_installed_kernels()
    run(chains(), progress, basics_ready=basics_ready, check=check, folder=folder)
    if KernelCache.installed is not None:
        return time.perf_counter() - started  # nothing is to be saved
    if KernelCache.failure is None:
        with suppress(OSError):  # of a folder that cannot be written to
            _mark(folder).write_text(_compiler())
    else:
        _log.warning(
            "compiled kernels could not be saved (%s), so each start compiles them; "
            "NUMBA_CACHE_DIR names a folder for them",
            KernelCache.failure,
        )
    return time.perf_counter() - started


def _load_numba_without_blas() -> None:
    """Load numba's array functions, but not scipy's linear algebra."""
    with quick_imports("scipy.linalg"):
        import_module("numba.np.arraymath")


def run(
    todo: Sequence[Sequence[Exercise]],
    progress: Progress | None = None,
    *,
    basics_ready: Callable[[Form], None] = ignore_form,
    check: Callable[[], None] = lambda: None,
    folder: Path = CACHE_FOLDER,
) -> None:
    """Run chains of exercises, those of the basics first: see `compile_kernels`."""
    exercises = sorted(chain.from_iterable(todo), key=attrgetter("order"))
    missing = Counter(one.basic_for for one in exercises)
    with _compiling(todo, check, folder) as compiled:
        for done, exercise in enumerate(exercises, start=1):
            while not compiled[exercise.name].wait(_CHECK_SECONDS):
                check()
            exercise.run()
            if progress is not None:
                progress(done, len(exercises), exercise.name)
            form = exercise.basic_for
            missing[form] -= 1
            if form is not None and not missing[form]:
                basics_ready(form)


@contextmanager
def _compiling(
    todo: Sequence[Sequence[Exercise]], check: Callable[[], None], folder: Path
) -> Iterator[Mapping[str, threading.Event]]:
    """Let other processes compile; tell by exercise whether one has, or there is none to wait for.

    One program at a time does so for a folder of kernels. Another waits, and takes what it finds.
    """
    compiled = {exercise.name: threading.Event() for exercise in chain.from_iterable(todo)}
    count = min(available_threads(), _MAX_PROCESSES)
    with _folder_lock(folder, check) as is_locked:
        if count == 1 or not (is_locked and sys.executable) or kernels_are_cached(folder):
            for event in compiled.values():
                event.set()
            yield compiled
            return
        left, compilers = deque(todo), []
        try:
            with suppress(OSError):  # of a system that starts no more processes
                for _ in range(count):
                    compilers.append(_Compiler(left, compiled))
            for event in () if compilers else compiled.values():
                event.set()
            yield compiled
        finally:
            for compiler in compilers:
                compiler.close()


class _Compiler:
    """A process that compiles, and the thread that tells it what.

    ``left`` are the chains that no process compiles yet, shared. ``compiled`` is set by exercise
    when it is compiled, or will not be.
    """

    def __init__(
        self, left: deque[Sequence[Exercise]], compiled: Mapping[str, threading.Event]
    ) -> None:
        self._left = left
        self._compiled = compiled
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __spec__.name],  # no module of the present folder
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "NUMBA_CACHE_DIR": str(CACHE_FOLDER.parent),  # it may be of this process alone
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what fails there fails here, too, and is reported
            text=True,
        )
        self._thread = threading.Thread(target=self._run, name="gcws-compiler", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the process."""
        self._left.clear()
        self._process.kill()
        self._thread.join()
        with suppress(OSError), self._process:  # it may have ended before it read a name
            pass

    def _run(self) -> None:
        while True:
            try:
                exercises = self._left.popleft()
            except IndexError:
                return
            for exercise in exercises:
                self._compile(exercise.name)
                self._compiled[exercise.name].set()

    def _compile(self, name: str) -> None:
        """Return when the process has compiled an exercise, or has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(f"{name}\n")
            self._process.stdin.flush()
            self._process.stdout.readline()


@contextmanager
def _folder_lock(folder: Path, check: Callable[[], None]) -> Iterator[bool]:
    """Wait for the lock of the folder of kernels, and hold it; False where there can be none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
    except OSError:
        yield False
        return
    with file:
        yield _lock(file, check)


def _lock(file: TextIO, check: Callable[[], None]) -> bool:
    """Wait until the file is locked; return False where its file system has no locks."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another program has the lock
            check()
            time.sleep(_CHECK_SECONDS)
        except OSError:
            return False
        else:
            return True


def _mark(folder: Path) -> Path:
    """Return the file that is there once all kernels are compiled for this processor."""
    return mark(folder, cpu_target.target_context.codegen().magic_tuple())


def _compiler() -> str:
    """Return what kernels are compiled by, and for which CPU."""
    _, cpu, _ = cpu_target.target_context.codegen().magic_tuple()
    major, minor = sys.version_info[:2]
    return f"numba {numba.__version__}, Python {major}.{minor}, {cpu}"


def _tell_of_installed_kernels() -> None:
    """Say why kernels that were installed compiled are not taken."""
    marks = sorted((COMPILED_FOLDER / CACHE_FOLDER.name).glob("complete-*"))
    if marks:
        installed = "; ".join(mark.read_text() for mark in marks)
        _log.info("kernels were installed for %s, but here is %s", installed, _compiler())


def main() -> None:
    """Compile the exercises that are named on the standard input, a line each.

    The end of that input ends the process at once, whatever it compiles.
    """
    threading.Thread(target=_end_with_input, name="gcws-end", daemon=True).start()
    _load_numba_without_blas()
    exercises = {exercise.name: exercise for exercise in chain.from_iterable(chains())}
    for line in sys.stdin:
        exercises[line.strip()].run()
        sys.stdout.write(line)
        sys.stdout.flush()


def _end_with_input() -> None:
    """End the process once nobody is left who could name an exercise: the server was killed."""
    closed = select.poll()
    closed.register(sys.stdin, 0)  # no event but the end of a pipe, which is always told
    closed.poll()
    os._exit(0)


if __name__ == "__main__":
    main()
