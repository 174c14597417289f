"""Clients that write until their server ends, and know what it has acknowledged."""

import random
import threading

from tests.crashes.servers import Asking, Ended
from tests.crashes.states import Changes, Request, State


class Writer:
    """Writes items that are its own, one request after the other.

    ``possible``: what its items may be by now: one, but while a request is under way.
    ``acknowledged``: writes that have been answered. ``unanswered``: requests that were under way
    when a server ended.
    """

    def __init__(self, number: int, seed: int) -> None:
        self.number = number
        self.possible = [State()]
        self.acknowledged = 0
        self.unanswered = 0
        self._changes = Changes(number, random.Random(f"{seed} {number}"))
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, port: int) -> None:
        """Write until the server ends."""
        [state] = self.possible
        self._thread = threading.Thread(target=self._run, args=(port, state))
        self._thread.start()

    def join(self) -> None:
        """Wait for the server's end; raise what went wrong before."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error

    def _run(self, port: int, state: State) -> None:
        asking = Asking(port)
        try:
            while True:
                request = self._changes.draw(state)
                self.possible = [state, *request.after]
                self._make(asking, request)
                state = request.after[-1]
                self.possible = [state]
                self.acknowledged += 1
        except Ended:
            self.unanswered += 1
        except BaseException as error:
            self._error = error
        finally:
            asking.close()

    def _make(self, asking: Asking, request: Request) -> None:
        if request.method == "LOAD":
            self._load(asking, request)
            return
        if request.method == "SNAPSHOT":
            [only] = asking.success("GET", request.path)["snapshots"]
            method, _, rest = request.document.partition(" ")
            status, answer = asking.ask(method, f"{request.path}/{only['name']}{rest}")
        else:
            status, answer = asking.ask(request.method, request.path, request.document)
        if status == 503 and answer["code"] == "shutting_down":
            raise Ended(str(answer))
        if status != request.status:
            raise AssertionError(f"{request}: {status} {answer}")

    def _load(self, asking: Asking, request: Request) -> None:
        line = None
        for done, line in enumerate(asking.lines(request.path, request.document)):
            if "seconds" not in line:
                self.possible = request.after[done:]
        if line is None or "seconds" not in line or "error" in line:
            raise Ended(f"a load was broken off: {line}")
