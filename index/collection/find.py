"""Items found by a text: by the beginning of their ids, or by what ids and payloads contain."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from gcws_search.index.collection.items import View
from gcws_search.index.contracts.arrays import Int64s

_CHUNK: Final = 256
_IDS: Final = 1 << 16
"""Rows, and ids alone, between two looks at the clock."""
_SHARE: Final = 0.02
"""Of the time is for what ids and payloads contain, where some ids begin with the text: who types
the beginning of an id among 1,000,000 sees it soon."""


class FoundRows(NamedTuple):
    """Rows that a text finds, ascending.

    prefixed: rows whose ids begin with the text.
    others: rows whose ids or payloads contain it.
    complete: whether the time was enough for all rows, or for as many hits as the limit.
    """

    prefixed: Int64s
    others: Int64s
    complete: bool


def find_rows(view: View, text: str, limit: int, seconds: float) -> FoundRows:
    """Return the first ``limit`` live rows that a text finds.

    A payload is searched as JSON text, for the text as given and as escaped in a JSON string.

    seconds: time limit; some rows are examined in any case. If ids begin with the text, only a
    fiftieth of the time is spent on what ids and payloads contain.
    """
    deadline = time.monotonic() + seconds
    prefixed: list[int] = []
    others: list[int] = []
    is_complete = True
    folded = text.casefold()
    texts = {folded, json.dumps(text, ensure_ascii=False)[1:-1].casefold()}

    def contains(row: int) -> bool:
        payload = (view.payloads[row] or b"").decode().casefold()
        has_text = folded in view.ids[row].casefold() or any(each in payload for each in texts)
        return has_text and not view.ids[row].startswith(text)

    def parts(rows: int) -> Iterator[range]:
        """Yield parts of the view while more hits are needed and time is left."""
        nonlocal is_complete
        for start in range(0, len(view), rows):
            if len(prefixed) + len(others) >= limit:
                return
            if start and time.monotonic() >= deadline:
                is_complete = False
                return
            yield range(start, min(start + rows, len(view)))

    for part in parts(_IDS):
        rows = view.ids.beginning_with(text, part.start, part.stop)
        prefixed += rows[view.alive[rows] > 0].tolist()
    if prefixed:
        deadline = min(deadline, time.monotonic() + _SHARE * seconds)
    for part in parts(_CHUNK):
        if _any_contains(view, part.start, part.stop, texts):
            live = part.start + np.flatnonzero(view.alive[part.start : part.stop])
            others += filter(contains, live.tolist())
    del prefixed[limit:], others[limit - len(prefixed) :]
    return FoundRows(np.array(prefixed, np.int64), np.array(others, np.int64), is_complete)


def _any_contains(view: View, start: int, stop: int, texts: set[str]) -> bool:
    """Return False if no row contains any of the folded texts; checks many rows at once."""
    payloads = b"\n".join(view.payloads[row] or b"" for row in range(start, stop))
    text = "\n".join([*view.ids[start:stop], payloads.decode()]).casefold()
    return any(each in text for each in texts)
