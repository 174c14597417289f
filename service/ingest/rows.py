"""A chunk of a load: ids, payloads, and vectors that are not validated yet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from gcws_search import index as ix
from gcws_search.index import Int64s
from gcws_search.service.errors import InvalidRequest, MalformedBody
from gcws_search.service.problems import message_at


class RowError(MalformedBody):
    """A row, by its number in the whole load, that cannot be read at all."""

    def __init__(self, row: int, detail: str) -> None:
        self.row = row
        super().__init__(f"row {row}: {detail}")


@dataclass(frozen=True, slots=True)
class Reject:
    """A row, by its number in the whole load, that cannot be stored; the error begins with it."""

    number: int
    error: Exception

    @classmethod
    def of(cls, number: int, error: Exception, *inner: str) -> Reject:
        """Return the reject for what is wrong with one row, or with its field ``inner``."""
        match error:
            case ix.InvalidInput():
                return cls(number, error.at("rows", number, *inner))
            case ix.ItemExists():
                return cls(number, ix.ItemExists(error.item_id, number))
            case InvalidRequest():
                found = [(("rows", number, *loc), message) for loc, message in error.errors]
                return cls(number, InvalidRequest(error.code, found, message_at(*found[0])))
        return cls(number, RowError(number, str(error)))


@dataclass(frozen=True, slots=True)
class ItemRows:
    """A chunk of a load: n readable rows by their numbers in the whole load.

    The collection numbers an item whose id is None. ``rejects`` are unreadable rows of this
    stretch, ``size`` the bytes of the body up to its end.
    """

    numbers: Int64s
    ids: list[str | None]
    payloads: list[bytes | None]
    vectors: ix.InputVectors
    rejects: list[Reject] = field(default_factory=list)
    size: int = 0

    def __len__(self) -> int:
        """Return the number of readable rows."""
        return len(self.ids)

    @property
    def end(self) -> int:
        """The number of the row after this chunk."""
        rejected = max((reject.number for reject in self.rejects), default=-1)
        return 1 + max(rejected, int(self.numbers[-1]) if len(self) else -1)

    def after(self, number: int) -> ItemRows:
        """Return the part of this chunk from a row on."""
        first = int(np.searchsorted(self.numbers, number))
        rejects = [reject for reject in self.rejects if reject.number >= number]
        if not first and len(rejects) == len(self.rejects):
            return self
        chosen = self.part(np.arange(first, len(self)))
        return replace(chosen, rejects=rejects, size=self.size)

    def part(self, rows: Int64s) -> ItemRows:
        """Return some of the readable rows, without rejects."""
        return ItemRows(
            self.numbers[rows],
            [self.ids[row] for row in rows],
            [self.payloads[row] for row in rows],
            self.vectors.part(rows),
        )
