"""Commands of ``gcws-search`` that listen, each a process, on this machine or one of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx

from tests.support.service.client import START_SECONDS
from tests.support.service.network import HERE, Machine
from tests.support.service.ports import free_port
from tests.support.waiting import wait_until

PORT: Final = 8000


class Program:
    """A command that listens.

    ``words``: of the command line. ``variables``: of its environment, in addition to ours.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        folder: Path,
        variables: Mapping[str, str],
        machine: Machine = HERE,
    ) -> None:
        self.machine = machine
        port = free_port() if machine is HERE else PORT
        self.address = f"{machine.address}:{port}"
        self.url = f"http://{self.address}"
        self._log = folder / f"{name}.log"
        self._command = [sys.executable, "-m", "gcws_search", *words, f"--port={port}"]
        self._command += [f"--host={machine.address}", f"--data-dir={folder / name}"]
        self._variables = {**os.environ, **variables}
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        with self._log.open("ab") as log, self.machine.entered():
            self.process = subprocess.Popen(
                self._command, env=self._variables, stdout=log, stderr=log
            )

    def wait_until_ready(self) -> None:
        """Return once it can be asked for all collections."""

        def is_ready() -> bool:
            assert self.process.poll() is None, self.said()
            with suppress(httpx.TransportError):
                return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
            return False

        wait_until(is_ready, self.said, seconds=START_SECONDS)

    def metrics(self) -> dict[str, float]:
        text = httpx.get(f"{self.url}/metrics", timeout=60).text
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def listed(self) -> list[int]:
        """Return how many replicas of each shard a router asks."""
        found = self.metrics().items()
        return [round(value) for name, value in found if name.startswith("gcws_router_replicas{")]

    def said(self) -> str:
        """Return the end of what it has said."""
        return f"{self._log.stem}: {self._log.read_text()[-3000:]}"

    def end(self) -> None:
        """Have it stop, and return when it has."""
        self.process.terminate()
        self.process.wait(60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
