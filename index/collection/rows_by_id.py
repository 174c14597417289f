"""The row of each item, by its id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_SHARDS: Final = 256
"""One dictionary of 1,000,000 ids grows in one step that holds the interpreter for 0.1 s."""


class RowsById:
    """A dictionary from ids to rows, in parts, none of which takes long to grow.

    Parameters
    ----------
    ids : iterable of str
        Distinct; their rows are 0, 1, 2 …
    """

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._shards: list[dict[str, int]] = [{} for _ in range(_SHARDS)]
        self.put(ids, 0)

    def __len__(self) -> int:
        """Return the number of ids."""
        return sum(map(len, self._shards))

    def get(self, item_id: str) -> int | None:
        """Return the row of an id, None when there is no such item."""
        return self._shards[hash(item_id) % _SHARDS].get(item_id)

    def put(self, ids: Iterable[str], first: int) -> None:
        """Give ids rows from ``first`` on, whether they had one or not."""
        shards = self._shards
        for row, item_id in enumerate(ids, first):
            shards[hash(item_id) % _SHARDS][item_id] = row

    def remove(self, item_id: str) -> None:
        """Forget an id; KeyError when it is not known."""
        del self._shards[hash(item_id) % _SHARDS][item_id]
