"""Ports of this machine."""

import itertools
import os
import socket
from contextlib import suppress
from typing import Final

HOST: Final = "127.0.0.1"
_FIRST: Final = 20_000  # above the ports of Ray, below those of the system
_COUNT: Final = 10_000
_turns: Final = itertools.count(os.getpid() * 101)
"""Other processes of the tests, which take ports at the same time, are elsewhere."""


def free_port() -> int:
    """Return a port nobody listens on, and that the system gives to nobody who asks for any.

    A server that is started takes it after seconds, and once more when it is started again.
    """
    for turn in itertools.islice(_turns, _COUNT):
        port = _FIRST + turn % _COUNT
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise OSError(f"no port of {_FIRST} to {_FIRST + _COUNT - 1} is free")
