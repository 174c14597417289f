"""Agreed CPUs are sets of features, and compiled for as such."""

import subprocess
import sys
from pathlib import Path

import pytest

from gcws_search.index.kernels.cache import AGREED, cpus_of, features_here
from gcws_search.index.warmup import release

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
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=cpu.settings, capture_output=True, text=True, check=True)
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
