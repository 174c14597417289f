"""Compile kernels for agreed CPUs, so that users need not compile them.

``install`` compiles for the installation that runs it, for example in an image. ``wheel`` makes a
platform wheel with the kernels beside their sources. Both use the installed numba. With another
numba, Python or CPU, or with other sources, a start compiles as usual.
"""

import argparse
import base64
import csv
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import distribution
from itertools import chain
from pathlib import Path
from typing import Final

from gcws_search.index.kernels import COMPILED_FOLDER
from gcws_search.index.kernels.cache import AGREED, Cpu, cpus_of, features_here

COMPILE: Final = """
from gcws_search.index import compile_kernels, kernels_are_cached
compile_kernels()
raise SystemExit(not kernels_are_cached())
"""
_WITHIN: Final = Path("gcws_search", "index", "kernels", COMPILED_FOLDER.name)
"""Where kernels lie in a wheel."""


def compile_for(
    cpus: Sequence[Cpu],
    folder: Path,
    *,
    variables: Mapping[str, str] | None = None,
    program: str = COMPILE,
) -> None:
    """Compile every kernel for each CPU, one by one, into the common cache folder.

    This machine must be able to run code for the CPUs, because compiling a kernel includes running
    it. ``variables`` are added to the environment. Raises subprocess.CalledProcessError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for cpu in cpus:
        settings = {
            **(variables or {}),
            **cpu.settings,
            "NUMBA_CACHE_DIR": str(folder),
            "NUMBA_DISABLE_INTEL_SVML": "1",  # a library that users may not have
        }
        command = [sys.executable, "-P", "-c", program]  # no modules from the working directory
        subprocess.run(command, env={**os.environ, **settings}, check=True)
    for lock in folder.glob("*/lock"):
        lock.unlink()


def build_wheel(source: Path, folder: Path, cpus: Sequence[Cpu], *, program: str = COMPILE) -> Path:
    """Write a wheel with kernels for these CPUs to a folder; return its path.

    ``source`` is a source tree, or a wheel without kernels. Raises subprocess.CalledProcessError.
    """
    with tempfile.TemporaryDirectory(prefix="gcws-search-") as name:
        plain, packages = Path(name, "plain"), Path(name, "packages")
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir"]
        subprocess.run([*pip, plain, source], check=True)
        [wheel] = plain.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
        variables = {"PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"}
        compile_for(cpus, packages / _WITHIN, variables=variables, program=program)
        folder.mkdir(parents=True, exist_ok=True)
        return _pack(packages, folder)


def _pack(packages: Path, folder: Path) -> Path:
    """Write a wheel of unpacked packages, for the platforms of the installed numba."""
    [information] = packages.glob("*.dist-info")
    tags = _tags_of_numba()
    fixed = [
        line
        for line in (information / "WHEEL").read_text().splitlines()
        if line and not line.startswith(("Tag:", "Root-Is-Purelib:"))
    ]
    lines = [*fixed, "Root-Is-Purelib: false", *(f"Tag: {tag}" for tag in tags)]
    (information / "WHEEL").write_text("\n".join(lines) + "\n")
    parts = zip(*(tag.split("-") for tag in tags), strict=True)
    tag = "-".join(".".join(dict.fromkeys(part)) for part in parts)
    record = information / "RECORD"
    files = sorted(path for path in packages.rglob("*") if path.is_file() and path != record)
    with record.open("w", newline="") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerows(_record_of(path, packages) for path in files)
        rows.writerow([record.relative_to(packages).as_posix(), "", ""])
    wheel = folder / f"{information.stem}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in chain(files, [record]):
            archive.write(path, path.relative_to(packages))
    return wheel


def _tags_of_numba() -> list[str]:
    """Return the tags of the installed numba: kernels run on the same platforms only."""
    lines = (distribution("numba").read_text("WHEEL") or "").splitlines()
    return [line.removeprefix("Tag:").strip() for line in lines if line.startswith("Tag:")]


def _record_of(path: Path, packages: Path) -> list[str]:
    """Return the row of a file in the RECORD of a wheel."""
    content = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return [path.relative_to(packages).as_posix(), f"sha256={digest}", str(len(content))]


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile kernels for an installation or a wheel."""
    here = cpus_of(features_here())
    parser = argparse.ArgumentParser(prog="python -m gcws_search.index.warmup.release")
    actions = parser.add_subparsers(dest="action", required=True)
    install = actions.add_parser("install", help="compile for this installation")
    wheel = actions.add_parser("wheel", help="build a wheel that has compiled kernels")
    wheel.add_argument("source", type=Path, help="a source tree, or a wheel without kernels")
    wheel.add_argument("--out", type=Path, required=True, help="the folder of the wheel")
    for action in (install, wheel):
        action.add_argument(
            "--cpu",
            nargs="+",
            choices=[cpu.name for cpu in here],
            help="what to compile for; else all that this machine can run, but a wheel leaves out "
            "generic where there is a better one",
        )
    given = parser.parse_args(arguments)
    if given.action == "install":
        compile_for(_named(given.cpu) or here, COMPILED_FOLDER)
        return
    better = [cpu for cpu in here if cpu.features]
    path = build_wheel(given.source, given.out, _named(given.cpu) or better or here)
    sys.stdout.write(f"{path}\n")


def _named(names: Sequence[str] | None) -> list[Cpu]:
    return [cpu for cpu in AGREED if cpu.name in (names or ())]


if __name__ == "__main__":
    main()
