"""How kernels are compiled, for which CPUs, and where they are saved."""

import atexit
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit, types

from gcws_search.index.contracts.arrays import Int64s
from gcws_search.index.kernels.cache import (
    AGREED,
    KernelCache,
    cache_folder,
    cpus_of,
    features_here,
)
from gcws_search.index.kernels.compiling import inlined, inner, kernel
from gcws_search.index.kernels.gmm import dense
from gcws_search.index.warmup import release
from tests.support.paths import REPOSITORY
from tests.support.processes import run_python


class Part(NamedTuple):
    first: int
    second: int


@inner
def _sum(number: int, further: int) -> int:
    return number + further


@inlined
def _twice(number: int) -> int:
    return 2 * number


@kernel
def total(part: Part, number: int, out: Int64s) -> int:
    part = Part(*part)
    out[0] = _sum(part.first, 0) + _sum(3, number) + _twice(part.second)
    return number


def test_named_tuples_are_given_to_kernels_as_plain_ones() -> None:
    out = np.zeros(1, np.int64)
    assert total(Part(1, 2), 5, out) == 5
    assert out[0] == 1 + 8 + 4
    called: Any = total
    [(part, number, _)] = called.compiled.signatures
    assert isinstance(part, types.UniTuple)
    assert number == types.int64


def test_numbers_known_in_compiling_do_not_compile_an_inner_function_again() -> None:
    compiled: Any = _sum
    numba: Any = types
    _, _, arguments, _ = compiled.get_call_template([numba.literal(3), numba.literal(4)], {})
    assert list(arguments) == [types.int64, types.int64]
    assert len(compiled.signatures) == 1


@pytest.mark.parametrize("function", [_sum, _twice])
def test_inner_functions_refuse_python(function: Callable[..., int]) -> None:
    compiled: Any = function
    total(Part(1, 2), 5, np.zeros(1, np.int64))
    with pytest.raises(TypeError, match="can be called by kernels only"):
        function(*range(compiled.py_func.__code__.co_argcount))


NAME = "kernels-1"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file, below which there are no folders; the user has no home, and nothing failed."""
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("HOME", str(file))
    monkeypatch.setattr(KernelCache, "failure", None)
    return file


def test_the_folder_that_the_user_names_comes_first(nowhere: Path, tmp_path: Path) -> None:
    assert cache_folder(tmp_path / "sources", str(tmp_path / "named"), NAME) == (
        tmp_path / "named" / NAME
    )
    assert not (tmp_path / "sources").exists()


def test_a_folder_that_cannot_be_written_to_is_passed_over(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below, beside = str(nowhere / "named"), tmp_path / "__pycache__" / NAME
    assert cache_folder(tmp_path, below, NAME) == cache_folder(tmp_path, "", NAME) == beside
    monkeypatch.setenv("HOME", str(tmp_path))
    home = tmp_path / ".cache" / "gcws-search" / NAME
    assert cache_folder(nowhere, below, NAME) == home
    assert KernelCache.failure is None


def test_a_process_that_can_write_to_none_of_them_has_a_folder_until_it_ends(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending: list[Callable[[], object]] = []

    def register(function: Callable[..., object], *given: object, **named: object) -> None:
        ending.append(lambda: function(*given, **named))

    monkeypatch.setattr(atexit, "register", register)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = cache_folder(nowhere, str(nowhere / "named"), NAME)
    assert folder.parent.parent == tmp_path
    assert folder.parent.is_dir()
    assert "Not a directory" in (KernelCache.failure or "")
    [end] = ending
    end()
    assert not folder.parent.exists()


@njit(cache=True)
def _of_others(number: float) -> float:
    return 2 * number


def test_functions_of_others_have_the_cache_that_numba_gives_them() -> None:
    functions: list[Any] = [_of_others, dense.matrix_dense]
    theirs, ours = (Path(function.stats.cache_path) for function in functions)
    digest = ours.parent.name
    assert digest.startswith("kernels-")
    assert digest not in theirs.parts


V4, V3, GENERIC = AGREED
NOTE = """
import os, pathlib
name, features = os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"]
pathlib.Path(os.environ["NUMBA_CACHE_DIR"], name).write_text(features)
"""


def test_a_machine_takes_the_best_that_it_has_all_features_of() -> None:
    assert cpus_of(frozenset(V4.features) | {"vaes"}) == (V4, V3, GENERIC)
    assert cpus_of(frozenset(V4.features) - {"avx512vl"}) == (V3, GENERIC)
    assert cpus_of(frozenset(V3.features) - {"bmi2"}) == cpus_of(frozenset({"neon"})) == (GENERIC,)


def test_code_is_known_by_all_features_of_its_cpu() -> None:
    assert GENERIC.settings == {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    assert V3.settings["NUMBA_CPU_FEATURES"].startswith("+avx,+avx2,+bmi,")
    program = (
        "from numba.core.registry import cpu_target\n"
        "print(cpu_target.target_context.codegen().magic_tuple())"
    )
    for cpu in AGREED:
        done = run_python("-c", program, folder=REPOSITORY, status=0, **cpu.settings)
        assert (done.stdout.strip(), done.stderr) == (str(cpu.codegen), "")


def test_every_cpu_is_compiled_for_in_a_process_of_its_own(tmp_path: Path) -> None:
    release.compile_for(AGREED, tmp_path, program=NOTE)
    noted = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert noted == {cpu.name: cpu.settings["NUMBA_CPU_FEATURES"] for cpu in AGREED}


def test_what_does_not_compile_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        release.compile_for([GENERIC], tmp_path, program="raise SystemExit(1)")


def test_llvm_knows_the_cpus_of_this_machine(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Compiles one line for each CPU; LLVM would take another CPU and say so on stderr."""
    program = "import numba; numba.njit('f8(f8)')(lambda x: x + 1)"
    release.compile_for(cpus_of(features_here()), tmp_path, program=program)
    assert capfd.readouterr().err == ""


def test_a_cpu_that_this_machine_cannot_run_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(release, "features_here", lambda: frozenset(V3.features))
    with pytest.raises(SystemExit):
        release.main(["install", "--cpu", "generic", "x86-64-v4"])
    assert "invalid choice: 'x86-64-v4'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "cpus"),
    [
        (["install"], (V3, GENERIC)),
        (["install", "--cpu", "generic"], (GENERIC,)),
        (["wheel", "source", "--out", "out"], (V3,)),
        (["wheel", "source", "--out", "out", "--cpu", "generic", "x86-64-v3"], (V3, GENERIC)),
    ],
)
def test_a_release_compiles_for_what_it_is_told(
    arguments: list[str], cpus: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[object] = []
    monkeypatch.setattr(release, "features_here", lambda: frozenset(V3.features))
    monkeypatch.setattr(release, "compile_for", lambda cpus, folder: compiled.extend(cpus))
    monkeypatch.setattr(release, "build_wheel", lambda source, out, cpus: compiled.extend(cpus))
    release.main(arguments)
    assert tuple(compiled) == cpus
