"""What the container image runs: compile kernels for many machines, and start with them.

Compiled kernels are valid for the CPU they were compiled for. An image is built on one machine and
runs on another, so its kernels are compiled for two agreed CPUs instead of the builder's own:
``x86-64-v3`` (AVX2, FMA, BMI: any x86 server since 2015) and ``generic`` (any machine of the
architecture). A start takes the best one the machine can run. The image's file system may be
read-only and the kernel cache must be writable, so a start copies it (a few megabytes) first.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

GENERIC: Final = "generic"
V3: Final = "x86-64-v3"
V3_FLAGS: Final = frozenset({"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})
"""As Linux spells them; ``abm`` stands for LZCNT."""

COMPILE: Final = "from gcws_search.index import compile_kernels; compile_kernels()"
CPUINFO: Final = Path("/proc/cpuinfo")
USAGE: Final = "usage: container (build KERNELS [TARGET...] | start KERNELS CACHE COMMAND...)"


def targets(cpuinfo: str, machine: str) -> tuple[str, ...]:
    """Return the CPU names kernels may be compiled for and run as here, best first.

    Parameters
    ----------
    cpuinfo : str
        Text of Linux's ``/proc/cpuinfo``; empty where there is none.
    machine : str
        Architecture, as `platform.machine` names it.
    """
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    if machine == "x86_64" and set(flags.split()) >= V3_FLAGS:
        return (V3, GENERIC)
    return (GENERIC,)


def environment(target: str, cache: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Return ``base`` with the settings that make kernels those of ``target``, kept in ``cache``.

    The empty feature list matters: without it the features of the machine at hand become part of
    the cache's key, and a cache from elsewhere is never found.
    """
    return {
        **base,
        "NUMBA_CPU_NAME": target,
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_CACHE_DIR": str(cache),
    }


def build(
    kernels: Path,
    wanted: Sequence[str] = (),
    *,
    available: Sequence[str] | None = None,
    program: str = COMPILE,
) -> None:
    """Compile every kernel for every target at once, each into its own folder of ``kernels``.

    Parameters
    ----------
    kernels : Path
        Folder that gets one folder a target.
    wanted : sequence of str
        CPU names to compile for. Without any, all that this machine can run: compiling a kernel
        includes running it.
    available : sequence of str or None
        CPU names that this machine can run; None looks.
    program : str
        Python that compiles the kernels.

    Raises
    ------
    ValueError
        If a wanted target is none of those that this machine can run.
    subprocess.CalledProcessError
    """
    available = _targets_here() if available is None else available
    strange = [name for name in wanted if name not in available]
    if strange:
        raise ValueError(f"expected targets among {', '.join(available)}, got {strange[0]}")
    command = [sys.executable, "-c", program]
    compiling = []
    for target in wanted or available:
        cache = kernels / target
        cache.mkdir(parents=True, exist_ok=True)
        compiling.append(subprocess.Popen(command, env=environment(target, cache, os.environ)))
    ended = [(process, process.wait()) for process in compiling]
    for process, status in ended:
        if status:
            raise subprocess.CalledProcessError(status, process.args)


def choose(kernels: Path, available: Sequence[str]) -> str:
    """Return the best of ``available`` that ``kernels`` has a folder for; the last one if none."""
    return next((name for name in available if (kernels / name).is_dir()), available[-1])


def copy_files(source: Path, target: Path) -> None:
    """Copy a folder's files, but not their permissions: the copies can be written to."""
    for path in source.rglob("*"):
        if path.is_file():
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def start(kernels: Path, cache: Path, arguments: Sequence[str]) -> None:
    """Become the service, with the image's kernels in a writable ``cache``; does not return."""
    target = choose(kernels, _targets_here())
    copy_files(kernels / target, cache)
    command = [sys.executable, "-m", "gcws_search.service", *arguments]
    os.execve(sys.executable, command, environment(target, cache, os.environ))


def main(arguments: Sequence[str]) -> int:
    """Do what the first argument says; return the exit status."""
    match arguments:
        case ["build", kernels, *wanted]:
            build(Path(kernels), wanted)
        case ["start", kernels, cache, *rest]:
            start(Path(kernels), Path(cache), rest)
        case _:
            sys.stderr.write(f"{USAGE}\n")
            return 2
    return 0


def _targets_here() -> tuple[str, ...]:
    cpuinfo = CPUINFO.read_text() if CPUINFO.exists() else ""
    return targets(cpuinfo, platform.machine())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
