"""Fixtures and settings every test shares."""

import functools
import gc
import logging
import os
import shutil
import signal
import ssl
import sys
import tempfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# Kernels compiled for tests stay apart from those of a service. numba reads this once; processes
# that tests start inherit it.
os.environ.setdefault(
    "NUMBA_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "kernels")
)

# Tests would mostly wait for the disk; a sync to memory takes no time. Processes that tests start
# inherit this.
SHARED_MEMORY = Path("/dev/shm")
ROOM_BYTES = 8 << 30
if (
    "TMPDIR" not in os.environ
    and SHARED_MEMORY.is_dir()
    and shutil.disk_usage(SHARED_MEMORY).free >= ROOM_BYTES
):
    os.environ["TMPDIR"] = str(SHARED_MEMORY)
    tempfile.tempdir = None  # it is found anew

# Each client of httpx would read all root certificates, which takes longer than most tests do;
# nothing here is encrypted.
ssl.create_default_context = functools.cache(ssl.create_default_context)  # type: ignore[assignment]

# A shell that starts this in the background has interrupts ignored; tests send some.
signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
MARKS = {
    "browser": ("page/",),
    "cluster": ("service/cluster/", "deploy/"),
    "slow": (
        "architecture/test_docs", "architecture/test_installation",
        "architecture/test_walk", "benchmarks/", "client/test_embedded", "client/test_forks",
        "client/test_scenario", "commands/", "crashes/", "fuzz/", "index/backends/",
        "index/collection/test_analysis", "index/collection/test_attached_backends",
        "index/collection/test_audit", "index/collection/test_catalog",
        "index/collection/test_changed_files", "index/collection/test_compaction",
        "index/collection/test_compare_and_explain", "index/collection/test_damaged_files",
        "index/collection/test_false_files", "index/collection/test_fit",
        "index/collection/test_mapped_storage",
        "index/collection/test_optimizer", "index/collection/test_reservations",
        "index/collection/test_snapshots", "index/collection/test_storage_faults",
        "index/comparison/", "index/corpus/", "index/exact/", "index/graph/",
        "index/hashing/test_banding", "index/hashing/test_gcws", "index/joins/",
        "index/kernels/", "index/lsh/", "index/warmup/", "model/", "names/", "promise/",
        "service/api/test_join", "service/api/test_long_bodies", "service/fronts/",
        "service/ingest/test_hostile", "service/test_cli", "service/test_limits",
        "service/test_models",
    ),
}  # fmt: skip
"""Marks of folders and files; what starts processes or takes more than a second a test is slow."""

settings.register_profile(
    "suite",
    deadline=None,  # the first example may compile a kernel
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the tests of the page say where their screenshots go."""
    parser.addoption("--screenshots", metavar="DIR", help="keep screenshots of the page here")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse a name that differs from process to process: those that share the tests must agree."""
    if " at 0x" in item.nodeid:
        raise pytest.UsageError(f"expected a name without an address in memory, got {item.nodeid}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import nothing of the folders and files that ``-m 'not MARK and not …'`` leaves out."""
    clauses = config.option.markexpr.split(" and ")
    if not all(clause.startswith("not ") for clause in clauses):
        return None
    name = collection_path.relative_to(TESTS.parent).as_posix()
    name = f"{name.removeprefix('tests/')}{'/' if collection_path.is_dir() else ''}"
    left_out = (MARKS.get(clause.removeprefix("not "), ()) for clause in clauses)
    return True if any(name.startswith(folders) for folders in left_out) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without collecting garbage, of which there is hardly any yet."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folders: the quick ones are those without a mark."""
    for item in items:
        name = item.path.relative_to(TESTS).as_posix()
        for mark, folders in MARKS.items():
            if name.startswith(folders):
                item.add_marker(mark)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking through modules and tests again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Return a generator seeded by the name of the test: the same draws in any order of tests."""
    name: str = request.node.name
    return np.random.default_rng(zlib.crc32(name.encode()))


@pytest.fixture(autouse=True)
def kernels_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile in the first application of the process, not in each: to look takes half a second."""
    if startup := sys.modules.get("gcws_search.service.startup"):
        monkeypatch.setattr(startup, "compile_kernels", lambda *_, **__: compile_seconds())


@functools.cache
def compile_seconds() -> float:
    """Compile all kernels, once; return how long that took."""
    from gcws_search.index import compile_kernels  # noqa: PLC0415 (tests of files need no index)

    return compile_kernels()


@pytest.fixture
def root_log() -> Iterator[None]:
    """Take all handlers off the root logger, and give them back: `serve` sets one of its own.

    Under a runner of commands that one writes to a stream that is closed with the command.
    """
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    root.handlers = []
    yield
    root.handlers = handlers
    root.setLevel(level)
