"""New items that are stored, and wait for whoever reads the collection next to take them in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gcws_search.index.collection.items import Encoded


@dataclass(frozen=True, slots=True)
class NewItems:
    """Items to be taken in; parameters as of `memory_collection.MemoryCollection.put`."""

    ids: Sequence[str]
    payloads: Sequence[bytes | None]
    encoded: Encoded
    keys: Sequence[int]


class Later:
    """New items that wait, in the order in which they came.

    Attributes
    ----------
    ids : list of str
    numbers : int
        How many numbers a scan of their vectors reads.
    """

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.numbers = 0
        self._parts: list[NewItems] = []

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.ids)

    def add(self, new: NewItems) -> None:
        """Let further items wait."""
        self._parts.append(new)
        self.numbers += new.encoded.vectors.numbers
        self.ids.extend(new.ids)

    def joined(self) -> NewItems:
        """Return all of them; there is at least one."""
        parts = self._parts
        if len(parts) == 1:
            return parts[0]
        return NewItems(
            self.ids,
            [payload for part in parts for payload in part.payloads],
            Encoded.joined([part.encoded for part in parts]),
            [key for part in parts for key in part.keys],
        )
