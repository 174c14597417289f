"""The start: compiles kernels and reads collections in the background; /livez answers meanwhile."""

import logging
import threading
import time
from dataclasses import dataclass
from typing import Literal, NoReturn

from gcws_search import index as ix
from gcws_search.index import Catalog, compile_kernels, kernels_are_cached
from gcws_search.service.errors import Refused, Stopping

Phase = Literal["starting", "compiling", "loading", "ready", "failed", "stopping"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartProgress:
    """Progress of the start: counts kernels during compilation, items during loading."""

    phase: Phase
    loaded: int = 0
    total: int = 0
    seconds_left: float | None = None
    """About how long the rest of the phase takes at the pace so far; None where that is unknown."""


class Startup:
    """Starts one catalog, in a separate thread."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.progress = StartProgress("starting")
        self.is_compiled = False
        """Whether all kernels are compiled; until then searches are exact (`require_basics`)."""
        self._phase_started = time.monotonic()
        self._stopping = threading.Event()
        self._announced = logging.DEBUG  # level at which compilation is logged
        self._basics: frozenset[ix.Form] = frozenset()
        self._thread = threading.Thread(target=self._run, name="gcws-startup", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the work; return whether everything is ready."""
        self._thread.join(seconds)
        return self.progress.phase == "ready"

    def stop(self) -> None:
        """Stop at the next step, and wait for that."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._enter(StartProgress("stopping"))

    def require_kernels(self) -> None:
        """Return once all kernels are compiled; raises Refused, Stopping."""
        if not self.is_compiled:
            self._refuse()

    def require_basics(self, form: ix.Form | None = None) -> None:
        """Return once vectors can be stored and scanned; a loading collection raises its own error.

        form: the form of vectors to store or to search; None for any.
        Raises Refused, Stopping (the kernels to store and to scan such vectors are not compiled
        yet).
        """
        if not (self.is_compiled or (self._basics if form is None else form in self._basics)):
            self._refuse()

    def _refuse(self) -> NoReturn:
        if self.progress.phase == "stopping":
            raise Stopping
        state = f"phase {self.progress.phase!r}{_rest(self.progress)}"
        raise Refused("loading", f"the service is not ready ({state}); try again")

    def _run(self) -> None:
        try:
            self._enter(StartProgress("compiling"))
            if not kernels_are_cached():
                self._announced = logging.INFO
                self._catalog.pause_optimizing()  # it would compile in this process
                _log.info("first start here: compiling kernels, once; this takes about a minute")
            else:
                _log.info("reading compiled kernels")
            seconds = compile_kernels(
                self._report_compiled,
                basics_ready=self._report_basics,
                check=self._check,
                without_blas=True,
            )
            _log.info("kernels ready after %.1f s; reading collections", seconds)
            self._enter(StartProgress("loading"))
            self._catalog.resume_optimizing()
            self._catalog.load(lambda _, done, total: self._step("loading", done, total))
        except ix.StoppedError:
            return
        except Exception:
            _log.exception("the start failed; the service stays unready")
            self._enter(StartProgress("failed", self.progress.loaded, self.progress.total))
            return
        self._enter(StartProgress("ready", self.progress.loaded, self.progress.total))
        _log.info("ready")

    def _report_compiled(self, done: int, total: int, name: str) -> None:
        self._step("compiling", done, total)
        rest = _rest(self.progress)
        _log.log(self._announced, "compiled %d of %d: %s%s", done, total, name, rest)

    def _report_basics(self, form: ix.Form) -> None:
        self._basics |= {form}
        _log.log(self._announced, "%s items can be stored, and searched exactly", form)

    def _enter(self, progress: StartProgress) -> None:
        if progress.phase != self.progress.phase:
            self._phase_started = time.monotonic()
        self.progress = progress
        self.is_compiled = progress.phase in ("ready", "loading")

    def _step(self, phase: Phase, done: int, total: int) -> None:
        self._check()
        elapsed = time.monotonic() - self._phase_started
        left = round(elapsed * (total - done) / done, 1) if done else None
        self._enter(StartProgress(phase, done, total, left))

    def _check(self) -> None:
        if self._stopping.is_set():
            raise ix.StoppedError


def _rest(progress: StartProgress) -> str:
    """Return the remaining time of a phase, as the end of a sentence."""
    left = progress.seconds_left
    return "" if left is None else f", about {left:.0f} s more"
