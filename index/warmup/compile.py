"""Compile every kernel, or load it from numba's cache, before the first request needs it.

Small generated collections are put through everything that a service does. Compiling holds a lock
of the whole process. So at the first start on a machine, other processes compile, one per core,
and this process loads their results from numba's cache.
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
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numba
import numpy as np
from numba.core.registry import cpu_target

from gcws_search.imports import quick_imports
from gcws_search.index.backends import GcwsBackend, make_backend
from gcws_search.index.collection.ids import Ids
from gcws_search.index.contracts.batches import MIN_COPIED_FLOATS, SparseVector, VectorBatch
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    Form,
    GcwsParams,
    SearchParams,
    TextParams,
    Transform,
)
from gcws_search.index.contracts.policies import ProbePolicy
from gcws_search.index.exact.folded import FoldedJoin
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import Scanner, scan
from gcws_search.index.hashing.gcws import compress_rows
from gcws_search.index.joins import PairSink, PrefixJoin, all_pairs
from gcws_search.index.kernels import CACHE_FOLDER, COMPILED_FOLDER
from gcws_search.index.kernels.cache import KernelCache, mark
from gcws_search.index.kernels.gmm.rows import rows_of
from gcws_search.index.kernels.graph.layout import arrange
from gcws_search.index.kernels.graph.pair_walk import PairRows, meet
from gcws_search.index.kernels.quantized.rows import BYTES, SHORTS
from gcws_search.index.lsh.search import TableSearch
from gcws_search.index.similarities import gmm, gmm_matrix
from gcws_search.index.threads import Workers, available_threads
from gcws_search.index.vectors.growing_rows import GrowingRows, copies_of
from gcws_search.index.vectors.quantization import QuantizedRows, Quantizer
from gcws_search.index.vectors.space import VectorSpace

_ROWS: Final = 1100  # enough for postings and a second segment of tables
_EQUAL: Final = 20  # enough for ties at a limit of 3
_QUANTIZERS: Final = (Quantizer(BYTES, 0.03, 128), Quantizer(SHORTS, 1e-4))


@dataclass(frozen=True, slots=True)
class Exercise:
    """A call that compiles kernels."""

    name: str
    run: Callable[[], None]
    basic_for: Form | None = None  # form of vectors that cannot be stored and scanned without it


def chains() -> list[list[Exercise]]:
    """Return all exercises, the basic ones first.

    The exercises of a chain share kernels: one process should run them, in this order.
    """
    dense = _Collection(dim=24)
    collections: dict[Form, _Collection] = {"dense": dense, "sparse": _Collection(dim=None)}
    basics, others = [], []
    for form, some in collections.items():
        for first, second in (
            (("hashing", some.hash), ("tables", some.build)),
            (("scan", some.scan), ("similarity", some.compare)),
        ):
            basics.append([Exercise(f"{form} {word}", run, form) for word, run in (first, second)])
        three = ("search", some.probe), ("graph", some.link), ("pairs", some.join)
        others.append([Exercise(f"{form} {word}", run) for word, run in three])
    others.append([Exercise("dense copies", dense.copy), Exercise("quantization", dense.quantize)])
    others.append([Exercise("map", _arrange)])
    return basics + others


def _vectors(dim: int | None) -> list[list[float]] | list[SparseVector]:
    rng = np.random.default_rng(0)
    if dim is not None:
        dense: list[list[float]] = rng.standard_normal((_ROWS, dim)).tolist()
        return dense[:1] * _EQUAL + dense[_EQUAL:]
    some = [SparseVector(rng.permutation(40)[:6], rng.standard_normal(6)) for _ in range(_ROWS)]
    return some[:1] * _EQUAL + some[_EQUAL:]


def _arrange() -> None:
    """Arrange the positions of a map."""
    due, places = np.ones((2, 1)), np.zeros((2, 2))
    arrange(np.array([[1], [0]]), np.ones((2, 1)), 1, 1, np.uint64(0), due, places)


class _Collection:
    """One small collection, dense or sparse, put through all operations."""

    def __init__(self, *, dim: int | None) -> None:
        self._config = CollectionConfig(dim=dim, backend=GcwsParams(bands=4))
        self._backend = GcwsBackend(self._config, GcwsParams(bands=4), Workers(1))

    @cached_property
    def _rows(self) -> VectorBatch:
        rows = GrowingRows(self._config.form, self._config.dim)
        space = VectorSpace.of(self._config)
        rows.append(space.prepare(space.from_items(_vectors(self._config.dim))))
        return rows.view()

    @cached_property
    def _view(self) -> RowView:
        return RowView(self._rows, np.ones(_ROWS, np.uint8), _ROWS)

    @cached_property
    def _codes(self) -> Any:  # noqa: ANN401  # the backend's
        return self._backend.encode(self._rows)

    @cached_property
    def _state(self) -> Any:  # noqa: ANN401  # the backend's
        rows, codes = self._rows, self._codes
        state = self._backend.extend(self._backend.empty(), rows[:1000], codes[:1000])
        state = self._backend.extend(state, rows, codes[1000:])
        state = self._backend.with_all_tables(state, rows)
        return self._backend.renumber(state, rows, np.arange(_ROWS))

    @cached_property
    def _linked(self) -> Any:  # noqa: ANN401  # the backend's
        linked = self._backend.linked(
            self._state, self._rows, np.ones(_ROWS, np.uint8), threading.Event()
        )
        assert linked is not None
        assert linked.graph is not None
        linked.graph.neighbours.renumber(np.arange(_ROWS), self._rows)
        return linked

    def hash(self) -> None:
        """Hash rows in every way, and transform some."""
        dim = self._config.dim
        ids = Ids([*map(str, range(_ROWS))])
        ids.rows(["a"])
        ids[:]
        compress_rows(self._rows)  # as for rows that are too wide for a table
        self._backend.band_keys.keys(self._rows, 1)
        self._backend.sketch(self._rows, "b_bit")
        whole = CollectionConfig(dim=dim, backend=GcwsParams(bands=4, band_width=2))
        make_backend(whole, threads=1).encode(self._rows[:8])
        transform = Transform(power=0.5, normalize="l2")
        space = VectorSpace.of(CollectionConfig(dim=dim, transform=transform))
        space.prepare(space.from_items([SparseVector([1, 3], [0.5, -2.0])]))
        if dim is None:
            VectorSpace.of(CollectionConfig(dim=None, text=TextParams())).from_texts(["a text"])

    def build(self) -> None:
        """Build tables, and merge their segments."""
        assert self._state is not None

    def scan(self) -> None:
        """Scan rows in tables, rows of the delta, and rows that pass a filter."""
        nobody, none, rows = np.full(2, -1), InvertedIndex(), self._rows
        postings = none.cover(rows, Workers(1))
        for min_score in (0.0, 0.99):
            params = SearchParams(limit=3, recall=1.0, min_score=min_score)
            for count in (1, 2):
                for inverted in (postings, none):
                    some, own, one = rows[:count], nobody[:count], Workers(1)
                    scan(self._view, some, params, skip=own, inverted=inverted, workers=one)
        Scanner(self._view, none, 0.0).collect(rows[:1], -1, 0.5)

    def probe(self) -> None:
        """Search like collections without a graph."""
        backend, state = self._backend, self._state
        params = SearchParams(limit=3, recall=0.5, min_score=0.99)
        bands = backend.plan.first
        tables = TableSearch(
            backend.plan.of_first(bands),
            lambda queries: backend.band_keys.keys(queries, bands),
            state.tables,
            state.inverted,
            Workers(1),
            ProbePolicy(),
        )
        for count in (1, 2):
            queries, nobody = self._rows[:count], np.full(count, -1)
            backend.search(state, self._view, queries, params)
            # So few rows would be scanned.
            tables.answers(self._view, queries, params, nobody, np.full(count, np.inf))

    def quantize(self) -> None:
        """Round rows in each way that a graph may store them."""
        for quantizer in _QUANTIZERS:  # a collection's rows decide which one it uses
            QuantizedRows(quantizer, self._rows.width).cover(self._rows)

    def copy(self) -> None:
        """Copy rows wide enough for byte copies, and scan them."""
        times = -(-MIN_COPIED_FLOATS // self._rows.dense.size)
        dense, norms = np.tile(self._rows.dense, times), self._rows.norms * times
        copies = copies_of(dense, _QUANTIZERS[0])
        rows = VectorBatch("dense", dense=dense, norms=norms, copies=copies)
        view, none = RowView(rows, np.ones(len(rows), np.uint8), len(rows)), InvertedIndex()
        params, nobody = SearchParams(limit=3, recall=1.0), np.full(2, -1)
        scan(view, rows[:2], params, skip=nobody, inverted=none, workers=Workers(1))
        Scanner(view, none, 0.0).collect(rows[:1], -1, 0.5)
        all_pairs(view, min_score=0.99, limit=3, stop=None, workers=Workers(1))

    def link(self) -> None:
        """Build and calibrate the graph."""
        alive = np.ones(_ROWS, np.uint8)
        self._backend.graphs.scans_are_enough(self._rows, alive, self._state.inverted)
        assert self._linked is not None

    def join(self) -> None:
        """Find pairs: by tables, by the graph, and by comparing all rows."""
        for recall in (0.5, 1.0):
            self._backend.pairs(self._state, self._view, min_score=0.99, recall=recall)
        self._backend.pairs(self._linked, self._view, min_score=0.99, recall=0.5, limit=3)
        FoldedJoin(self._view, self._rows, 0.99, Workers(1))(self._rows)
        bands = self._backend.band_join(
            self._state, self._view, self._rows, min_score=0.99, recall=0.5
        )
        assert bands is not None
        bands(self._rows)
        rows, found = self._rows, np.empty((2, _ROWS), np.int32)
        if rows.form == "dense":  # used if collections are too large to compare all rows
            alive, some, threshold = np.ones(_ROWS, np.uint8), np.arange(2), np.float32(0.99)
            meet(PairRows(*rows_of(rows), alive), some, threshold, found[0], found[1])
            return
        # As for more rows; so few would all be compared.
        prefixes = PrefixJoin.of(self._view, 0.99)
        if prefixes is not None:
            prefixes.offer(PairSink(self._view, 0.99, None), Workers(1))

    def compare(self) -> None:
        """Score rows against rows."""
        gmm(self._rows[:1], self._rows[1:2])
        gmm_matrix(self._rows[:2], self._rows[:2])


Progress = Callable[[int, int, str], None]
"""Called with (exercises done, exercises in all, name of the exercise now done)."""

_MAX_PROCESSES: Final = 4
"""More would have nothing to do: a chain of exercises is compiled by one process."""
_CHECK_SECONDS: Final = 0.2

_log = logging.getLogger(__name__)


def ignore_form(_form: Form) -> None:
    """Ignore that the kernels of a form are ready."""


def kernels_are_cached(folder: Path = CACHE_FOLDER) -> bool:
    """Return whether kernels of these sources are compiled or installed for this processor."""
    return KernelCache.installed is not None or _mark(folder).exists()


def compile_kernels(
    progress: Progress | None = None,
    *,
    basics_ready: Callable[[Form], None] = ignore_form,
    check: Callable[[], None] = lambda: None,
    folder: Path = CACHE_FOLDER,
    without_blas: bool = False,
) -> float:
    """Run each kernel once on small generated data; return the seconds it took.

    The first run on a machine compiles for its processor, with one process per core. Later runs
    read numba's cache (beside the sources, or in the folder of NUMBA_CACHE_DIR). If compiled
    kernels are installed, the first run reads them.

    basics_ready: called with a form once its vectors can be stored and scanned without
      compiling.
    check: called a few times a second while other processes compile. If it raises, the work
      ends.
    folder: where a file records that kernels are compiled.
    without_blas: load numba without BLAS, which no kernel calls; its import takes a third of a
      start. Functions of numba that need BLAS then fail in this process.
    """
    started = time.perf_counter()
    if without_blas:
        _load_numba_without_blas()
    if not kernels_are_cached(folder):
        _tell_of_installed_kernels()
    run(chains(), progress, basics_ready=basics_ready, check=check, folder=folder)
    if KernelCache.installed is not None:
        return time.perf_counter() - started  # nothing to record
    if KernelCache.failure is None:
        with suppress(OSError):  # the folder may not be writable
            _mark(folder).write_text(_compiler())
    else:
        _log.warning(
            "compiled kernels could not be saved (%s), so each start compiles them; "
            "NUMBA_CACHE_DIR names a folder for them",
            KernelCache.failure,
        )
    return time.perf_counter() - started


def _load_numba_without_blas() -> None:
    """Load numba's array functions without SciPy's linear algebra."""
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
    """Run chains of exercises, the basic ones first: see `compile_kernels`."""
    turns = "dense", "sparse", None
    exercises = sorted(chain.from_iterable(todo), key=lambda each: turns.index(each.basic_for))
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
    """Let other processes compile; yield an event per exercise, set when it is done or left.

    One program at a time compiles for a folder. Others wait, and use the results.
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
            with suppress(OSError):  # the system may refuse to start more processes
                for _ in range(count):
                    compilers.append(_Compiler(left, compiled))
            for event in () if compilers else compiled.values():
                event.set()
            yield compiled
        finally:
            for compiler in compilers:
                compiler.close()


class _Compiler:
    """A process that compiles, and the thread that sends it work.

    ``left`` are the chains without a process yet, shared. ``compiled`` is set for an exercise when
    it is compiled, or will not be.
    """

    def __init__(
        self, left: deque[Sequence[Exercise]], compiled: Mapping[str, threading.Event]
    ) -> None:
        self._left = left
        self._compiled = compiled
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __spec__.name],  # no modules from the working directory
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "NUMBA_CACHE_DIR": str(CACHE_FOLDER.parent),  # may be set in this process only
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what fails there also fails here, and is reported
            text=True,
        )
        self._thread = threading.Thread(target=self._run, name="gcws-compiler", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._left.clear()
        self._process.kill()
        self._thread.join()
        with suppress(OSError), self._process:  # it may have ended before it read a name
            pass

    def _run(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        while True:
            try:
                exercises = self._left.popleft()
            except IndexError:
                return
            for exercise in exercises:
                with suppress(OSError, ValueError):  # the process has ended
                    self._process.stdin.write(f"{exercise.name}\n")
                    self._process.stdin.flush()
                    self._process.stdout.readline()
                self._compiled[exercise.name].set()


@contextmanager
def _folder_lock(folder: Path, check: Callable[[], None]) -> Iterator[bool]:
    """Wait for the lock of the kernels' folder, and hold it; False if it cannot be locked."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
    except OSError:
        yield False
        return
    with file:
        is_locked: bool | None = None
        while is_locked is None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_locked = True
            except BlockingIOError:  # another program holds the lock
                check()
                time.sleep(_CHECK_SECONDS)
            except OSError:  # a file system without locks
                is_locked = False
        yield is_locked


def _mark(folder: Path) -> Path:
    """Return the file that exists once all kernels are compiled for this processor."""
    return mark(folder, cpu_target.target_context.codegen().magic_tuple())


def _compiler() -> str:
    """Return what compiles the kernels, and for which CPU."""
    _, cpu, _ = cpu_target.target_context.codegen().magic_tuple()
    major, minor = sys.version_info[:2]
    return f"numba {numba.__version__}, Python {major}.{minor}, {cpu}"


def _tell_of_installed_kernels() -> None:
    """Log why installed compiled kernels are not used."""
    marks = sorted((COMPILED_FOLDER / CACHE_FOLDER.name).glob("complete-*"))
    if marks:
        installed = "; ".join(mark.read_text() for mark in marks)
        _log.info("kernels were installed for %s, but here is %s", installed, _compiler())


def main() -> None:
    """Compile the exercises that are named on standard input, one per line.

    The end of the input ends the process at once, even during a compilation.
    """
    threading.Thread(target=_end_with_input, name="gcws-end", daemon=True).start()
    _load_numba_without_blas()
    exercises = {exercise.name: exercise for exercise in chain.from_iterable(chains())}
    for line in sys.stdin:
        exercises[line.strip()].run()
        sys.stdout.write(line)
        sys.stdout.flush()


def _end_with_input() -> None:
    """End the process once its input is closed, because the server was killed."""
    closed = select.poll()
    closed.register(sys.stdin, 0)  # the end of a pipe is always reported
    closed.poll()
    os._exit(0)


if __name__ == "__main__":
    main()
