"""The first start compiles in other processes, and takes what they have compiled."""

import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from gcws_search.index.warmup import compile as warmup
from gcws_search.index.warmup.compile import Exercise, chains, run
from tests.support.paths import REPOSITORY
from tests.support.processes import run_python

PROGRAM = """
import json, os, resource, sys
from gcws_search.index.kernels import CACHE_FOLDER
from gcws_search.index.kernels.gmm import dense, exact_rerank, rows
from gcws_search.index.warmup import compile as warmup
from gcws_search.index.warmup.compile import compile_kernels, kernels_are_cached
from gcws_search.index.warmup.compile import chains

if "alone" in sys.argv:
    warmup.available_threads = lambda: 1
if "broken" in sys.argv:
    sys.executable = "/bin/false"
if "elsewhere" in sys.argv:
    os.environ["NUMBA_CACHE_DIR"] = os.devnull
if "disk full" in sys.argv:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
todo = [[one for one in chain if one.name == "dense similarity"] for chain in chains()]
warmup.chains = lambda: todo
seen = []
compile_kernels(lambda *progress: seen.append(progress), basics_ready=seen.append)
used = exact_rerank.exact_rows.compiled, dense.matrix_dense, rows.dense_norms
stats = [kernel.stats for kernel in used]
counts = [sum(map(len, each)) for each in zip(*((s.cache_hits, s.cache_misses) for s in stats))]
print(json.dumps([seen, *counts, kernels_are_cached(), str(CACHE_FOLDER)]))
"""

ENDLESS = """
import threading
from gcws_search.index.warmup import compile as warmup
from gcws_search.index.warmup.compile import Exercise

def wait():
    print("at work", flush=True)
    threading.Event().wait()

warmup.chains = lambda: [[Exercise("endless", wait)]]
warmup.main()
"""


class Compiled(NamedTuple):
    """What a new process reports: kernels found in the cache and compiled, and its messages."""

    seen: list[object]
    hits: int
    misses: int
    is_cached: bool
    folder: str
    told: str


SEEN = [[1, 1, "dense similarity"], "dense"]
KERNELS = 3


def _similarity_compiled(cache: Path, *how: str, folder: Path = REPOSITORY) -> Compiled:
    done = run_python("-P", "-c", PROGRAM, *how, folder=folder, NUMBA_CACHE_DIR=str(cache))
    seen, hits, misses, is_cached, where = json.loads(done.stdout)
    return Compiled(seen, hits, misses, is_cached, where, done.stderr)


def test_kernels_that_others_compiled_are_taken_and_those_cut_short_compiled_again(
    tmp_path: Path,
) -> None:
    """The others would not find the cache by themselves."""
    cache = tmp_path / "cache"
    (tmp_path / "numba.py").write_text("raise SystemExit")  # the others do not import this
    first = _similarity_compiled(cache, "elsewhere", folder=tmp_path)
    assert first[:4] == (SEEN, KERNELS, 0, True)
    assert Path(first.folder).parent == cache
    for pattern, share in (
        ("exact_rerank.exact_rows-*.nbi", 0.0), ("dense.matrix_dense-*.nbi", 0.5),
        ("rows.dense_norms-*.nbc", 0.5),
    ):  # fmt: skip
        [file] = cache.rglob(pattern)
        os.truncate(file, int(share * file.stat().st_size))
    assert _similarity_compiled(cache, "alone")[:3] == (SEEN, 0, KERNELS)
    assert _similarity_compiled(cache, "alone")[:4] == (SEEN, KERNELS, 0, True)


def test_a_process_compiles_where_no_other_does_once_a_full_disk_has_room(tmp_path: Path) -> None:
    first = _similarity_compiled(tmp_path, "broken", "disk full")
    assert first[:4] == (SEEN, 0, KERNELS, False)
    assert "compiled kernels could not be saved" in first.told
    assert _similarity_compiled(tmp_path, "broken")[:4] == (SEEN, 0, KERNELS, True)


def test_a_process_that_compiles_ends_with_the_one_that_it_compiles_for() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as compiler:
        assert compiler.stdin is not None
        assert compiler.stdout is not None
        compiler.stdin.write("endless\n")
        compiler.stdin.flush()
        assert compiler.stdout.readline() == "at work\n"
        compiler.stdin.close()
        try:
            assert compiler.wait(60) == 0
        finally:
            compiler.kill()


def test_basics_of_dense_vectors_come_first_and_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "available_threads", lambda: 1)
    told: list[object] = []
    todo = [
        [Exercise("b", lambda: told.append("run b"), "dense"), Exercise("c", lambda: None)],
        [Exercise("d", lambda: None, "sparse"), Exercise("a", lambda: None, "dense")],
    ]
    run(todo, lambda done, total, name: told.append((done, total, name)), basics_ready=told.append)
    assert told == ["run b", (1, 4, "b"), (2, 4, "a"), "dense", (3, 4, "d"), "sparse", (4, 4, "c")]


def test_all_exercises_have_names_of_their_own() -> None:
    names = [exercise.name for chain in chains() for exercise in chain]
    assert len(set(names)) == len(names)


def test_a_check_ends_the_wait_for_another_program(tmp_path: Path) -> None:
    def stop() -> None:
        raise InterruptedError

    def wait_for_ourselves(*_: object) -> None:
        with pytest.raises(InterruptedError):
            run([[exercise]], check=stop, folder=tmp_path)

    exercise = Exercise("a", lambda: None)
    run([[exercise]], wait_for_ourselves, folder=tmp_path)


def test_a_file_system_without_locks_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    def stop() -> None:
        raise InterruptedError

    monkeypatch.setattr(fcntl, "flock", refuse)
    compiled: list[str] = []
    run([[Exercise("a", lambda: compiled.append("a"))]], check=stop, folder=tmp_path)
    assert compiled == ["a"]
