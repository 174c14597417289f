"""Machines of a network of their own: namespaces of this kernel, joined by a bridge.

A thread enters a machine; the sockets that it opens there and the processes that it starts are the
machine's. A link that is cut loses packets, and nobody is told: that is how a network fails.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

from tests.support.service.ports import HOST

_NUMBERS: Final = count()
_PREFIX: Final = "10.77.0."
_DEVICE: Final = "eth0"
_NOBODY: Final = "02:00:00:00:00:bd"
"""A hardware address that no machine has: the bridge hands its packets to nobody."""
_NEW_NETWORK: Final = 0x40000000
"""CLONE_NEWNET of Linux."""
_QUEUE_SECONDS: Final = 5
"""Of a slow link: what would wait longer is lost."""


@cache
def unavailable() -> str | None:
    """Return why there can be no machines here; None where there can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "network namespaces need Linux, and root"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "network namespaces need the commands ip and tc: apt-get install iproute2"
    network = Network()
    try:
        network.add("probe")
    except AssertionError as error:
        return f"network namespaces are not permitted here: {error}"
    finally:
        network.remove()
    return None


@dataclass(frozen=True)
class Machine:
    """One machine.

    ``hardware``: its own hardware address.
    """

    name: str
    namespace: str
    address: str
    hardware: str

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Have this thread be on the machine until the block ends."""
        if self is HERE:
            yield
            return
        with (
            Path("/proc/thread-self/ns/net").open("rb") as before,
            Path("/run/netns", self.namespace).open("rb") as own,
        ):
            _enter(own.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())


HERE: Final = Machine("here", "", HOST, "")
"""This machine, on which all threads are that have entered no other."""


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _NEW_NETWORK) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class Network:
    """Machines that reach each other through a bridge in a namespace of its own."""

    def __init__(self) -> None:
        self._name = f"gcws-{os.getpid()}-{next(_NUMBERS)}"
        self._hub = f"{self._name}-hub"
        self._namespaces: list[str] = []
        self.machines: dict[str, Machine] = {}

    def add(self, name: str) -> Machine:
        """Add a machine that reaches all others."""
        if not self._namespaces:
            self._create(self._hub)
            _run("ip", "-n", self._hub, "link", "add", "bridge", "type", "bridge")
            _run("ip", "-n", self._hub, "link", "set", "bridge", "up")
        number = len(self.machines) + 1
        made = Machine(
            name, f"{self._name}-{name}", f"{_PREFIX}{number}", f"02:00:00:00:00:{number:02x}"
        )
        self._create(made.namespace)
        self.machines[name] = made
        own = ["name", _DEVICE, "address", made.hardware, "netns", made.namespace]
        _run("ip", "-n", self._hub, "link", "add", "name", name, "type", "veth", "peer", *own)
        _run("ip", "-n", self._hub, "link", "set", "dev", name, "master", "bridge", "up")
        _run("ip", "-n", made.namespace, "address", "add", f"{made.address}/24", "dev", _DEVICE)
        for device in ("lo", _DEVICE):
            _run("ip", "-n", made.namespace, "link", "set", device, "up")
        return made

    def _create(self, namespace: str) -> None:
        _run("ip", "netns", "add", namespace)
        self._namespaces.append(namespace)

    def cut_one_way(self, sender: Machine, receiver: Machine) -> None:
        """Lose what one machine sends another."""
        self._direct(sender, receiver, _NOBODY)

    def cut(self, one: Machine, *others: Machine) -> None:
        """Lose what a machine and some others send each other."""
        for other in others:
            self.cut_one_way(one, other)
            self.cut_one_way(other, one)

    @contextmanager
    def without(self, one: Machine, *others: Machine) -> Iterator[None]:
        """Cut the links between a machine and some others until the block ends."""
        self.cut(one, *others)
        try:
            yield
        finally:
            self.mend(one, *others)

    def mend(self, one: Machine, *others: Machine) -> None:
        """Lose nothing any more of what a machine and some others send each other."""
        for other in others:
            self._direct(one, other, other.hardware)
            self._direct(other, one, one.hardware)

    def _direct(self, sender: Machine, receiver: Machine, hardware: str) -> None:
        where = [receiver.address, "lladdr", hardware, "dev", _DEVICE, "nud", "permanent"]
        _run("ip", "-n", sender.namespace, "neighbour", "replace", *where)

    @contextmanager
    def slow(self, machine: Machine, bytes_per_second: int) -> Iterator[None]:
        """Have all that a machine sends and is sent take its time until the block ends."""
        ends = (machine.namespace, _DEVICE), (self._hub, machine.name)
        shape = ["rate", f"{8 * bytes_per_second}bit", "burst", "2000"]
        queue = ["limit", str(_QUEUE_SECONDS * bytes_per_second)]
        for namespace, device in ends:
            where = ["-n", namespace, "qdisc", "add", "dev", device, "root"]
            _run("tc", *where, "tbf", *shape, *queue)
        try:
            yield
        finally:
            for namespace, device in ends:
                _run("tc", "-n", namespace, "qdisc", "del", "dev", device, "root")

    def remove(self) -> None:
        """Remove all machines; their processes have ended."""
        while self._namespaces:
            with suppress(AssertionError):
                _run("ip", "netns", "del", self._namespaces.pop())
        self.machines.clear()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
