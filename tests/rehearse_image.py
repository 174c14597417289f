"""Runs the Dockerfile's own commands without Docker: ``python -m tests.rehearse_image [KERNELS]``.

Every RUN, COPY, ARG, ENV, WORKDIR, ENTRYPOINT, CMD and HEALTHCHECK is read from the Dockerfile and
carried out in an empty folder that stands for the image's ``/``, with an empty environment and the
Python at hand for the base image's. The container is then started as docker-compose.yml asks: a
read-only file system but for ``/data`` and ``/tmp``, no capabilities, no new privileges. It must
become healthy with the kernels of the image (none compiled anew), store an item, stop at SIGTERM,
and have the item after a second start.

Kernels are compiled for one of the image's CPUs, which every machine can run. The tests of
``index/warmup/release.py`` show that a build without a choice compiles for each of them. With a
folder KERNELS, the build finds there what `compile_kernels` compiles for this machine meanwhile.

What this cannot show: that the base image has what the commands need, and the layers themselves.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.support.documents.dockerfile import Instruction, instructions
from tests.support.long_runs import tell
from tests.support.paths import REPOSITORY
from tests.support.service.ports import HOST, free_port

IMAGE_PATHS = re.compile(r"(?<![\w./-])/(etc|opt|src|data|tmp)(?![\w-])")
PASSED_ON = ("PIP_", "SSL_", "http_proxy", "https_proxy", "no_proxy")
HEALTH_SECONDS = 1.0
"""Between two looks: each is a process."""
BUILD_ARGUMENTS = {"KERNEL_TARGETS": "generic"}
READY_SECONDS = 60.0
COMPILING_SECONDS = 900.0
COMPILING = "gcws_search.index.warmup.release install"
TAKE_KERNELS = """
import shutil, sys
from numba.core.caching import IndexDataCacheFile
from gcws_search.index.kernels import CACHE_FOLDER, COMPILED_FOLDER
from gcws_search.index.kernels.cache import AGREED
[cpu] = [each for each in AGREED if each.name == sys.argv[2]]
here, there = f"{sys.argv[1]}/{CACHE_FOLDER.name}", COMPILED_FOLDER / CACHE_FOLDER.name
shutil.copytree(here, there, ignore=shutil.ignore_patterns("complete-*", "lock"))
for path in there.rglob("*.nbi"):
    index = IndexDataCacheFile(str(path.parent), path.stem, CACHE_FOLDER.name)
    known = index._load_index().items()
    index._save_index({(call, cpu.codegen, code): file for (call, _, code), file in known})
"""
"""Copies compiled kernels into an installation, as if they had been compiled for a CPU."""
STOP_SECONDS = 30.0


class Image:
    """The state a Dockerfile builds up: a root folder, an environment, a working folder."""

    def __init__(self, root: Path, kernels: Path | None) -> None:
        self.root = root
        self.kernels = kernels
        self.stages: dict[str, Path] = {}
        self.stage = ""
        self.last: dict[str, Instruction] = {}
        self._reset()

    def _reset(self) -> None:
        """Begin a stage: an empty root with a ``python``, an environment of its own."""
        local = self.root / "usr/local/bin"
        for folder in (local, self.root / "tmp", self.root / "home"):
            folder.mkdir(parents=True)
        self.root.chmod(0o755)
        python = local / "python"
        base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
        python.write_text(f'#!/bin/sh\nexec "{base}" "$@"\n')
        python.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        self.env = {"PATH": f"{local}:/usr/bin:/bin", "HOME": str(self.root / "home"), **kept}
        self.workdir = self.root

    def path(self, text: str) -> Path:
        """Return where a path of the image is on this machine."""
        return self.root / text.lstrip("/") if text.startswith("/") else self.workdir / text

    def text(self, text: str) -> str:
        """Return ``text`` with the image's absolute paths put under its root."""
        return IMAGE_PATHS.sub(rf"{self.root}/\1", text)

    def carry_out(self, instruction: Instruction) -> None:
        """Do one instruction; ValueError for one this rehearsal does not know."""
        match instruction.keyword:
            case "FROM":
                self._from(instruction.text)
            case "RUN":
                if self.kernels is not None and COMPILING in instruction.text:
                    self._take_kernels(self.kernels)
                tell(f"RUN {instruction.text}")
                command = ["/bin/sh", "-ec", self.text(instruction.text)]
                subprocess.run(command, cwd=self.workdir, env=self.env, check=True)
            case "COPY":
                self._copy(instruction.text.split())
            case "ARG":
                name, _, default = instruction.text.partition("=")
                self.env[name] = BUILD_ARGUMENTS.get(name, default)
            case "ENV":
                for name, value in instruction.settings.items():
                    self.env[name] = self.text(value).replace("$PATH", self.env["PATH"])
            case "WORKDIR":
                self.workdir = self.path(instruction.text)
                self.workdir.mkdir(parents=True, exist_ok=True)
            case "USER" | "VOLUME" | "EXPOSE" | "STOPSIGNAL" | "HEALTHCHECK" | "ENTRYPOINT" | "CMD":
                self.last[instruction.keyword] = instruction
            case other:
                raise ValueError(other)

    def _from(self, text: str) -> None:
        """Put the finished stage aside and begin the next one at the same place."""
        if self.stage:
            aside = self.root.with_name(f"stage-{self.stage}")
            self.root.rename(aside)
            self.stages[self.stage] = aside
            self._reset()
        _, _, name = text.partition(" AS ")
        self.stage = name or "final"

    def _take_kernels(self, folder: Path) -> None:
        """Wait until all kernels are compiled in a folder, and take them."""
        end = time.monotonic() + COMPILING_SECONDS
        while not [*folder.glob("kernels-*/complete-*")]:
            if time.monotonic() > end:
                raise SystemExit(f"no kernels in {folder}")
            time.sleep(0.5)
        command = ["python", "-c", TAKE_KERNELS, str(folder), BUILD_ARGUMENTS["KERNEL_TARGETS"]]
        subprocess.run(command, cwd=self.workdir, env=self.env, check=True)

    def _copy(self, words: list[str]) -> None:
        """Copy from the repository, or from a finished stage."""
        source, target = words[-2:]
        destination = self.path(target)
        if words[0].startswith("--from="):
            stage = self.stages[words[0].removeprefix("--from=")]
            shutil.copytree(stage / source.lstrip("/"), destination, symlinks=True)
            return
        # What is ignored by git stays out of the build, too.
        listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", source]
        listed = subprocess.check_output(listing, cwd=REPOSITORY)
        for name in listed.decode().split("\0")[:-1]:
            inner = Path(name).relative_to(source) if name != source else Path(name).name
            (destination / inner).parent.mkdir(parents=True, exist_ok=True)
            # A link to a folder is copied as a link.
            shutil.copy(REPOSITORY / name, destination / inner, follow_symlinks=False)

    def command(self, keyword: str) -> list[str]:
        """Return the words of ENTRYPOINT, CMD or HEALTHCHECK, paths put under the root."""
        return [self.text(word) for word in self.last[keyword].command]


def confinement(image: Image) -> list[str]:
    """Return the prefix that runs a command as the container would be confined.

    The image's user is taken on where this machine's Python can be reached by it; else the caller
    stays who they are, without capabilities, and ``/data`` is handed to them.
    """
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        tell("not root: the container runs as you, with your privileges")
        return []
    prefix = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    user, group = image.last["USER"].text.split(":")
    switch = [f"--reuid={user}", f"--regid={group}", "--clear-groups"]
    # It must be this very Python with its own library, and see what is installed.
    inner = "gcws_search.commands.app"
    found = f"import sys, {inner}; sys.exit(sys.base_prefix != {sys.base_prefix!r})"
    probe = [*prefix, *switch, "python", "-c", found]
    tried = subprocess.run(
        probe, cwd=image.workdir, env=image.env, check=False, capture_output=True
    )
    if tried.returncode == 0:
        return [*prefix, *switch]
    tell(f"user {user} cannot reach this machine's Python: running as root without capabilities")
    os.chown(image.path("/data"), 0, 0)
    return prefix


def make_read_only(root: Path) -> None:
    """Take the right to write from everything but ``/data`` and ``/tmp``."""
    writable = {root / "data", root / "tmp"}
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if Path(folder, name) not in writable]
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & ~0o222)
    (root / "tmp").chmod(0o1777)


@contextmanager
def container(image: Image, prefix: list[str], port: int) -> Iterator[None]:
    """Run ENTRYPOINT and CMD until healthy; stop with SIGTERM and demand a clean end."""
    environment = {
        **image.env,
        "GCWS_PORT": str(port),
        "GCWS_PUBLISHED_HOST": HOST,
        "TMPDIR": str(image.path("/tmp")),
    }
    command = [*prefix, *image.command("ENTRYPOINT"), *image.command("CMD")]
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=image.workdir, env=environment)
    try:
        health = [*prefix, *image.command("HEALTHCHECK")]
        while subprocess.run(health, cwd=image.workdir, env=environment, check=False).returncode:
            if process.poll() is not None or time.monotonic() - began > READY_SECONDS:
                raise SystemExit(f"not healthy; exit status {process.returncode}")
            time.sleep(HEALTH_SECONDS)
        tell(f"healthy after {time.monotonic() - began:.1f} s")
        yield
        process.send_signal(signal.SIGTERM)
        status = process.wait(STOP_SECONDS)
        if status not in (0, -signal.SIGTERM):
            raise SystemExit(f"stopped with exit status {status}")
    finally:
        process.kill()
        process.wait()


def request(port: int, method: str, path: str, body: object) -> Any:  # noqa: ANN401
    """Send one request; return the JSON of a success, leave the program at anything else."""
    headers = {"Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    asked = Request(f"http://{HOST}:{port}{path}", data, headers, method=method)
    try:
        with urlopen(asked, timeout=10) as answer:
            return json.load(answer)
    except HTTPError as error:
        raise SystemExit(f"{method} {path}: {error.code} {error.read().decode()}") from None


def check_kernels(image: Image) -> None:
    """Leave the program unless the container ran on the kernels compiled at build."""
    built, compiled = ([*image.path(path).rglob("*.nbc")] for path in ("/opt/gcws", "/tmp"))
    if not built or compiled:
        raise SystemExit("kernels were compiled at the start: the image's were not found")
    tell(f"{len(built)} kernels, all from the image")


def rehearse(folder: Path, kernels: Path | None) -> None:
    """Build the image in ``folder``, start it twice and use it."""
    image = Image(folder / "image", kernels)
    for instruction in instructions():
        image.carry_out(instruction)
    make_read_only(image.root)
    prefix, port = confinement(image), free_port()
    with container(image, prefix, port):
        check_kernels(image)
        request(port, "PUT", "/v1/collections/c", {"dim": 2})
        request(port, "PUT", "/v1/collections/c/items", {"items": [{"id": "a", "vector": [1, -2]}]})
        check_kernels(image)
    with container(image, prefix, port):
        answer = request(port, "POST", "/v1/collections/c/query", {"vector": [1, -2]})
        if answer["hits"] != [{"id": "a", "score": 1.0, "payload": None}]:
            raise SystemExit(f"after a restart: {answer}")
    tell("the image's commands work: built, started, stored, stopped, started again")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as name:
        rehearse(Path(name), Path(sys.argv[1]).resolve() if sys.argv[1:] else None)
