"""Ports of this machine."""

import socket
from typing import Final

HOST: Final = "127.0.0.1"


def free_port() -> int:
    """Return a port nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
