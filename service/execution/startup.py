"""The start: kernels compiled and collections read in the background, while /livez answers."""

import logging
import threading
from dataclasses import dataclass
from typing import Literal

from gcws_search.index import Catalog, compile_kernels, kernels_are_cached
from gcws_search.service.http.errors import NotReady, Stopping

Phase = Literal["starting", "compiling", "loading", "ready", "failed", "stopping"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the start has come: kernels while compiling, items while loading."""

    phase: Phase
    loaded: int = 0
    total: int = 0


class _Stopped(Exception):  # no error: the order to stop, seen by the thread
    """The service is stopping; leave the work."""


class Startup:
    """Brings one catalog up, in a thread of its own."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._progress = Progress("starting")
        self._stopping = threading.Event()
        self._announced = logging.DEBUG  # level at which compiling is told
        self._thread = threading.Thread(target=self._run, name="gcws-startup", daemon=True)

    @property
    def progress(self) -> Progress:
        """The present state."""
        return self._progress

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait until the work is over; tell whether everything is ready."""
        self._thread.join(seconds)
        return self._progress.phase == "ready"

    def stop(self) -> None:
        """Leave the work at its next step and wait for that."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._progress = Progress("stopping")

    def require_kernels(self) -> Catalog:
        """Return the catalog; a collection that still loads says so itself.

        Raises
        ------
        NotReady, Stopping
        """
        if self._progress.phase in ("ready", "loading"):
            return self._catalog
        if self._progress.phase == "stopping":
            raise Stopping
        raise NotReady(self._progress.phase)

    def _run(self) -> None:
        try:
            self._progress = Progress("compiling")
            if not kernels_are_cached():
                self._announced = logging.INFO
                _log.info("first start here: compiling kernels, once; this takes about two minutes")
            seconds = compile_kernels(self._compiled)
            _log.info("kernels ready after %.1f s", seconds)
            self._progress = Progress("loading")
            self._catalog.load(self._loaded)
        except _Stopped:
            return
        except Exception:
            _log.exception("the start failed; the service stays unready")
            self._progress = Progress("failed", self._progress.loaded, self._progress.total)
            return
        self._progress = Progress("ready", self._progress.loaded, self._progress.total)
        _log.info("ready")

    def _compiled(self, done: int, total: int, name: str) -> None:
        self._step(Progress("compiling", done, total))
        _log.log(self._announced, "compiled %d of %d: %s", done, total, name)

    def _loaded(self, _collection: str, done: int, total: int) -> None:
        self._step(Progress("loading", done, total))

    def _step(self, progress: Progress) -> None:
        if self._stopping.is_set():
            raise _Stopped
        self._progress = progress
