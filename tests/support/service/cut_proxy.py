"""A TCP proxy before a database that cuts connections when they commit."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto

from tests.support.service.ports import HOST


class Cut(Enum):
    """Where a connection is cut."""

    BEFORE = auto()
    """The database never sees the COMMIT."""
    RACING = auto()
    """The database is sent the COMMIT, and its client is cut off at once."""
    AFTER = auto()
    """The database has answered, and its client does not see that."""


class CutProxy:
    """Forwards connections; cuts some that commit.

    ``port``: of the database.
    """

    def __init__(self, port: int) -> None:
        self._target = HOST, port
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.choose: Callable[[], Cut | None] = lambda: None
        """Called at each COMMIT; returns whether and where to cut."""
        self.cuts = 0
        self.refuses = False
        """Whether new connections are cut off at once."""
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuses:
                client.close()
                continue
            server = socket.create_connection(self._target)
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        silent = threading.Event()
        answering = threading.Thread(target=_answer, args=(client, server, silent), daemon=True)
        answering.start()
        self._ask(client, server, silent)
        answering.join()
        client.close()
        server.close()

    def _ask(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                cut = self._taken_cut() if b"COMMIT\0" in data else None
                if cut is Cut.BEFORE:
                    break
                if cut is not None:
                    silent.set()
                server.sendall(data)
                if cut is Cut.RACING:
                    break
        _end(client, server)

    def _taken_cut(self) -> Cut | None:
        with self._lock:
            cut = self.choose()
            self.cuts += cut is not None
        return cut


def _answer(client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
    with suppress(OSError):
        while (data := server.recv(1 << 16)) and not silent.is_set():
            client.sendall(data)
    _end(client, server)


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
