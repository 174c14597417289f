"""Delete expired items if no other change does."""

from __future__ import annotations

import logging
from typing import Final

from gcws_search.index.collection.expiry import Expirations
from gcws_search.index.collection.writer import ChosenItems, Writer
from gcws_search.index.contracts.errors import StoreError
from gcws_search.index.threads import BackgroundTask

_LEAST_REST_SECONDS: Final = 1.0
"""What expires meanwhile is deleted by one commit."""
_MAX_REST_SECONDS: Final = 10.0
"""A clock may be set, and an item put that expires before all others."""
_log = logging.getLogger(__name__)


class Expirer(BackgroundTask):
    """Deletes expired items, at most once a second; it runs while any item can expire."""

    name = "expirer"

    def __init__(self, expirations: Expirations, writer: Writer) -> None:
        super().__init__()
        self._expirations = expirations
        self._writer = writer

    def is_due(self) -> bool:
        """Return whether an item has expired, or will expire and nobody waits for this thread."""
        left = self._expirations.seconds_left
        return left == 0 or (left is not None and not self.skip_pause.is_set())

    def step(self) -> None:
        """Wait until an item expires; then delete it."""
        left = self._expirations.seconds_left
        if left is not None:
            self.skip_pause.wait(max(_LEAST_REST_SECONDS, min(left, _MAX_REST_SECONDS)))
        if self.stopping.is_set() or self._expirations.seconds_left != 0:
            return
        try:
            self._writer.commit(ChosenItems())  # each change deletes expired items first
        except StoreError as error:
            _log.warning("items that have expired stay in the file (%s)", error)
            self.stopping.wait(0 if self.skip_pause.is_set() else _MAX_REST_SECONDS)
