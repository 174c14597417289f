"""Builds the image for real and runs it, without Docker: ``python -m tests.build_image``.

Debian's packages buildah, runc and debootstrap do what an engine would. No registry is asked for
the base image: ``debootstrap`` makes one of Debian's own Python, with this machine's certificates
and pip settings, under the name that the Dockerfile starts from. buildah then builds the
Dockerfile as it is. runc starts the image as docker-compose.yml says: a read-only file system but
for ``/data`` and ``/tmp``, no capabilities, no new privileges, the image's user. The container must
become healthy by the image's HEALTHCHECK with the kernels of the image, store an item, stop at
SIGTERM, and have the item after a second start.

It needs root, and some minutes. ``--base FOLDER`` saves what ``debootstrap`` made for the next run.
What this cannot show: the published base image, and an engine's own network and limits.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.rehearse_image import READY_SECONDS, STOP_SECONDS, free_port, request, say
from tests.support.documents.dockerfile import instructions
from tests.support.paths import REPOSITORY

TOOLS: Final = ("buildah", "runc", "debootstrap")
PACKAGES: Final = "python3,python3-venv,python3-pip,ca-certificates"
RELEASE: Final = "bookworm"
NAME: Final = "gcws-search-trial"
PATHS: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
KERNELS: Final = "generic"
CERTIFICATES: Final = Path("etc/ssl/certs/ca-certificates.crt")
PIP_SETTINGS: Final = Path("etc/pip.conf")


def run(*words: str | Path) -> str:
    """Run a command; return what it prints."""
    done = subprocess.run([*map(str, words)], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


class Storage:
    """Images and containers of buildah, below one folder."""

    def __init__(self, folder: Path) -> None:
        self._options = ("--root", folder / "store", "--runroot", folder / "run")

    def buildah(self, *words: str | Path) -> str:
        """Run buildah; return what it prints."""
        return run("buildah", "--storage-driver", "vfs", *self._options, *words)

    def take_base(self, root: Path, name: str) -> None:
        """Make an image of a folder."""
        container = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", container, root, "/")
        self.buildah("config", "--env", f"PATH={PATHS}", container)
        self.buildah("commit", "--quiet", "--rm", container, name)


def base(folder: Path) -> None:
    """Make the root of a base image, unless it is there."""
    if not (folder / "usr/bin/python3").exists():
        say("debootstrap")
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, folder)
    python = folder / "usr/bin/python"
    if not python.is_symlink():
        python.symlink_to("python3")
    for path in (CERTIFICATES, PIP_SETTINGS):
        if (Path("/") / path).exists():
            shutil.copyfile(Path("/") / path, folder / path)


def specification(root: Path, config: dict[str, Any], data: Path, port: int) -> dict[str, Any]:
    """Return what runc is to run: the image's command, confined as docker-compose.yml says."""
    user, group = map(int, config["User"].split(":"))
    settings = [f"GCWS_PORT={port}", "GCWS_PUBLISHED_HOST=127.0.0.1"]
    given = [each for each in config["Env"] if not each.startswith("GCWS_PORT=")]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": user, "gid": group},
            "args": [*config["Entrypoint"], *config["Cmd"]],
            "env": [*given, *settings],
            "cwd": "/",
            "capabilities": {
                kind: []
                for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")
            },
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
            {
                "destination": "/tmp",
                "type": "tmpfs",
                "source": "tmpfs",
                "options": ["nosuid", "nodev", "mode=1777", "size=512m"],
            },
            {"destination": "/data", "type": "bind", "source": str(data), "options": ["rbind"]},
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]},
    }


class Bundle:
    """A container that runc can start again and again.

    ``health``: the image's HEALTHCHECK.
    """

    def __init__(self, folder: Path, health: list[str]) -> None:
        self._folder = folder
        self._health = health
        self._runc = ("runc", "--root", str(folder / "state"))

    def inside(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container."""
        command = [*self._runc, "exec", NAME, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the container, wait until it is healthy; stop it by SIGTERM at the end."""
        began = time.monotonic()
        command = [*self._runc, "run", "--bundle", str(self._folder), NAME]
        process = subprocess.Popen(command)
        try:
            while self.inside(*self._health).returncode:
                if process.poll() is not None or time.monotonic() - began > READY_SECONDS:
                    raise SystemExit(f"not healthy; exit status {process.returncode}")
                time.sleep(0.2)
            say(f"healthy after {time.monotonic() - began:.1f} s")
            yield
            run(*self._runc, "kill", NAME, "TERM")
            if status := process.wait(STOP_SECONDS):
                raise SystemExit(f"stopped with exit status {status}")
        finally:
            subprocess.run([*self._runc, "delete", "--force", NAME], check=False)
            process.wait(STOP_SECONDS)

    def check(self) -> None:
        """Leave the program unless the container is confined and runs the image's kernels."""
        status = self.inside("cat", "/proc/1/status").stdout
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        rights = {name: int(value, 16) for name, value in fields.items() if name.startswith("Cap")}
        if any(rights.values()) or fields["NoNewPrivs"] != "1" or fields["Uid"].startswith("0"):
            raise SystemExit(f"not confined:\n{status}")
        for place in ("/x", "/opt/gcws/x", "/usr/x"):
            if self.inside("touch", place).returncode == 0:
                raise SystemExit(f"{place} could be written")
        built, compiled = (
            self.inside("find", folder, "-name", "*.nbc").stdout for folder in ("/opt/gcws", "/tmp")
        )
        if not built or compiled:
            raise SystemExit("kernels were compiled at the start: the image's were not found")
        say(f"confined; {len(built.splitlines())} kernels, all from the image")


def build(storage: Storage, root: Path) -> str:
    """Build the image of the Dockerfile; return the name of a container of it."""
    [name] = {each.text.split(" AS ")[0] for each in instructions() if each.keyword == "FROM"}
    say(f"base image {name}")
    storage.take_base(root, name)
    say("buildah bud")
    storage.buildah(
        "bud", "--isolation", "chroot", "--pull=never", "--network", "host", "--format", "docker",
        "--build-arg", f"KERNEL_TARGETS={KERNELS}", "--quiet", "--tag", NAME, REPOSITORY,
    )  # fmt: skip
    return storage.buildah("from", "--pull=never", NAME)


def trial(folder: Path, storage: Storage, container: str) -> None:
    """Start the image twice and use it."""
    config = json.loads(storage.buildah("inspect", container))["Docker"]["config"]
    root = Path(storage.buildah("mount", container))
    data, port = folder / "data", free_port()
    data.mkdir()
    os.chown(data, *map(int, config["User"].split(":")))
    wanted = specification(root, config, data, port)
    (folder / "config.json").write_text(json.dumps(wanted))
    kind, *health = config["Healthcheck"]["Test"]
    if kind != "CMD":
        raise SystemExit(f"expected a HEALTHCHECK of words, got {kind}")
    bundle = Bundle(folder, health)
    with bundle.running():
        bundle.check()
        request(port, "PUT", "/v1/collections/c", {"dim": 2})
        request(port, "PUT", "/v1/collections/c/items", {"items": [{"id": "a", "vector": [1, -2]}]})
    with bundle.running():
        answer = request(port, "POST", "/v1/collections/c/query", {"vector": [1, -2]})
        if answer["hits"] != [{"id": "a", "score": 1.0, "payload": None}]:
            raise SystemExit(f"after a restart: {answer}")
    say("the image works: built, started, stored, stopped, started again")


def main() -> None:
    """Build, start, use."""
    parser = argparse.ArgumentParser(description="Build the image for real, and run it.")
    parser.add_argument("--base", type=Path, metavar="FOLDER", help="root of the base image")
    options = parser.parse_args()
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        sys.exit(f"expected root and {', '.join(TOOLS)}; not here: {', '.join(missing) or 'root'}")
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        folder = Path(name)
        root = (options.base or folder / "base").resolve()
        base(root)
        storage = Storage(folder)
        try:
            trial(folder, storage, build(storage, root))
        finally:
            storage.buildah("rm", "--all")


if __name__ == "__main__":
    main()
