import os
import sys
from pathlib import Path

import pytest

from gcws_search.service.commands import container

V3_CPU = "processor : 0\nflags\t\t: fpu sse2 fma movbe xsave f16c abm bmi1 avx2 bmi2 vaes\n"
NOTE = """
import os, pathlib
pathlib.Path(os.environ["NUMBA_CACHE_DIR"], "target").write_text(os.environ["NUMBA_CPU_NAME"])
"""
OLD_CPU = "processor : 0\nflags\t\t: fpu sse2 fma movbe xsave f16c abm\n"


def test_a_machine_with_avx2_takes_the_better_kernels_first() -> None:
    assert container.targets(V3_CPU, "x86_64") == ("x86-64-v3", "generic")


@pytest.mark.parametrize(
    ("cpuinfo", "machine"), [(OLD_CPU, "x86_64"), (V3_CPU, "aarch64"), ("", "x86_64")]
)
def test_any_other_machine_takes_the_generic_kernels(cpuinfo: str, machine: str) -> None:
    assert container.targets(cpuinfo, machine) == ("generic",)


def test_a_target_the_builder_could_not_compile_for_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "generic").mkdir()
    assert container.choose(tmp_path, ("x86-64-v3", "generic")) == "generic"


def test_the_features_of_this_machine_stay_out_of_the_cache_key() -> None:
    environment = container.environment("generic", Path("cache"), {"HOME": "h"})
    assert environment == {
        "HOME": "h",
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_CACHE_DIR": "cache",
    }


def test_every_target_is_compiled_in_a_process_of_its_own(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    container.build(kernels, available=("x86-64-v3", "generic"), program=NOTE)
    noted = {path.parent.name: path.read_text() for path in kernels.glob("*/target")}
    assert noted == {"x86-64-v3": "x86-64-v3", "generic": "generic"}


def test_llvm_knows_the_cpu_of_each_target(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Compiles one line for each CPU; LLVM would take another CPU and say so on stderr."""
    container.build(tmp_path, program="import numba; numba.njit('f8(f8)')(lambda x: x + 1)")
    assert list(tmp_path.iterdir())
    assert capfd.readouterr().err == ""


def test_a_target_that_is_named_is_the_only_one_compiled(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    container.build(kernels, ["generic"], program=NOTE)
    assert [path.name for path in kernels.iterdir()] == ["generic"]


def test_a_target_that_this_machine_cannot_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected targets among generic, got x86-64-v3"):
        container.build(
            tmp_path / "kernels", ["generic", "x86-64-v3"], available=["generic"], program=NOTE
        )
    assert not (tmp_path / "kernels").exists()


def test_start_copies_the_kernels_and_becomes_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels, cache = tmp_path / "kernels", tmp_path / "cache"
    (kernels / "generic").mkdir(parents=True)
    (kernels / "generic" / "kernel.nbc").write_bytes(b"code")
    became: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *call: became.append(call))

    container.main(["start", str(kernels), str(cache), "serve", "--port", "0"])

    [(program, words, environment)] = became
    assert (cache / "kernel.nbc").read_bytes() == b"code"
    assert program == sys.executable
    assert words[1:] == ["-m", "gcws_search.service", "serve", "--port", "0"]
    assert environment["NUMBA_CPU_NAME"] == "generic"
    assert environment["NUMBA_CACHE_DIR"] == str(cache)


def test_copied_kernels_can_be_written_to(tmp_path: Path) -> None:
    inner = tmp_path / "image" / "index"
    inner.mkdir(parents=True)
    (inner / "kernel.nbc").write_bytes(b"code")
    inner.chmod(0o555)
    container.copy_files(tmp_path / "image", tmp_path / "cache")
    inner.chmod(0o755)
    assert (tmp_path / "cache" / "index").stat().st_mode & 0o200


def test_unknown_words_get_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert container.main(["dance"]) == 2
    assert container.USAGE in capsys.readouterr().err


def _written(folder: Path, text: str) -> Path:
    path = folder / "cpuinfo"
    path.write_text(text)
    return path
