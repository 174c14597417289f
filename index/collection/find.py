"""Items found by a text: by the beginning of their ids, or by what ids and payloads contain."""

from __future__ import annotations

import json
import time
from typing import Final, NamedTuple

import numpy as np

from gcws_search.index.collection.items import View
from gcws_search.index.contracts.arrays import Int64s

_CHUNK: Final = 256
"""Rows between two looks at the clock."""
_SHARE: Final = 0.02
"""Of the time is for what ids and payloads contain, where some ids begin with the text: who types
the beginning of an id among 1,000,000 sees it soon."""


class FoundRows(NamedTuple):
    """Rows that a text finds, rising.

    prefixed: those whose ids begin with it.
    others: those whose ids or payloads contain it.
    complete: whether the time was enough to look at all rows, or at enough for the limit.
    """

    prefixed: Int64s
    others: Int64s
    complete: bool


def find_rows(view: View, text: str, limit: int, seconds: float) -> FoundRows:
    """Return the first ``limit`` live rows that a text finds.

    A payload is its JSON text, and contains the text as it is or as a part of a JSON string.

    seconds: after which the search ends; it looks at some rows in any case. Where ids begin with
    the text, what they and payloads contain is looked at for a fiftieth of it.
    """
    deadline = time.monotonic() + seconds
    prefixed: list[int] = []
    others: list[int] = []
    is_complete = True
    folded = text.casefold()
    texts = {folded, json.dumps(text, ensure_ascii=False)[1:-1].casefold()}

    def begins(row: int) -> bool:
        return view.ids[row].startswith(text)

    def contains(row: int) -> bool:
        payload = (view.payloads[row] or b"").decode().casefold()
        has_text = folded in view.ids[row].casefold() or any(each in payload for each in texts)
        return has_text and not begins(row)

    for found, holds in ((prefixed, begins), (others, contains)):
        if prefixed and found is others:
            deadline = min(deadline, time.monotonic() + _SHARE * seconds)
        any_holds = _any_begins if found is prefixed else _any_contains
        for start in range(0, len(view), _CHUNK):
            if len(prefixed) + len(others) >= limit:
                break
            if start and time.monotonic() >= deadline:
                is_complete = False
                break
            stop = min(start + _CHUNK, len(view))
            if any_holds(view, start, stop, {text} if found is prefixed else texts):
                live = start + np.flatnonzero(view.alive[start:stop])
                found.extend(filter(holds, live.tolist()))
    del prefixed[limit:], others[limit - len(prefixed) :]
    return FoundRows(np.array(prefixed, np.int64), np.array(others, np.int64), is_complete)


def _any_begins(view: View, start: int, stop: int, texts: set[str]) -> bool:
    """Return False where no id begins with one of the texts: one look at many rows."""
    ids = "\n".join(["", *view.ids[start:stop]])
    return any(f"\n{each}" in ids for each in texts)


def _any_contains(view: View, start: int, stop: int, texts: set[str]) -> bool:
    """Return False where no row contains one of the folded texts: one look at many rows."""
    payloads = b"\n".join(view.payloads[row] or b"" for row in range(start, stop))
    text = "\n".join([*view.ids[start:stop], payloads.decode()]).casefold()
    return any(each in text for each in texts)
