"""Items in memory by row: arrays and lists that grow at their end, and which rows live."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from gcws_search.index.collection.backend_index import Attached
from gcws_search.index.collection.items import EncodedBatch, View
from gcws_search.index.contracts.arrays import Int64s, UInt8s, with_room
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.payload.columns import Columns
from gcws_search.index.vectors.growing_rows import GrowingRows

_NONE_ATTACHED: Final[Attached] = MappingProxyType({})
_BYTES_PER_ID: Final = 49 + 8 + 104
"""A short string, its place in the list, its place in the dictionary of rows."""
_BYTES_PER_PAYLOAD: Final = 33


class RowStore:
    """The items of one numbering of rows; one writer adds, readers hold views of the first n.

    Parameters
    ----------
    rows : GrowingRows
    ids : list of str
        Of the rows; owned from here on, as are all others.
    payloads : list of bytes or None
    sequences : (n,) int64

    Attributes
    ----------
    rows, ids, payloads, sequences
        The last may be longer than the number of rows.
    alive : (n,) uint8
        1 for each row that is not dead; there may be room for more.
    columns : Columns
        Of the payloads.
    """

    def __init__(
        self, rows: GrowingRows, ids: list[str], payloads: list[bytes | None], sequences: Int64s
    ) -> None:
        self.rows = rows
        self.ids = ids
        self.payloads = payloads
        self.sequences = sequences
        self.alive: UInt8s = np.ones(len(ids), np.uint8)
        self.columns = Columns(payloads)
        self.text_bytes = _text_bytes(ids, payloads)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory they take, columns and mapped files left out."""
        return self.rows.nbytes + self.alive.nbytes + self.sequences.nbytes + self.text_bytes

    def append(self, items: EncodedBatch) -> None:
        """Add items as live rows at the end; their sequence numbers are above all before."""
        before, n = len(self.rows), len(self.rows) + len(items)
        self.rows.append(items.vectors)
        self.ids.extend(items.ids)
        self.payloads.extend(items.payloads)
        self.text_bytes += _text_bytes(items.ids, items.payloads)
        self.sequences = with_room(self.sequences, before, n)
        self.alive = with_room(self.alive, before, n)
        self.sequences[before:n] = items.sequences
        self.alive[before:n] = 1

    def view(
        self,
        state: object,
        count: int,
        version: int,
        attached: Attached = _NONE_ATTACHED,
        rows: VectorBatch | None = None,
    ) -> View:
        """Return a view of the present rows.

        Parameters
        ----------
        state, count, version, attached
            As of `View`.
        rows : VectorBatch or None
            What ``rows.view`` returned, where that is at hand.
        """
        vectors = self.rows.view() if rows is None else rows
        n = len(vectors)
        return View(
            vectors=vectors,
            alive=self.alive[:n],
            count=count,
            sequences=self.sequences[:n],
            ids=self.ids,
            payloads=self.payloads,
            columns=self.columns,
            state=state,
            version=version,
            attached=attached,
        )

    def take(self, places: Int64s) -> RowStore:
        """Return the items of some rows, (m,) and rising, all of them live."""
        chosen = places.tolist()
        ids, payloads = [self.ids[row] for row in chosen], [self.payloads[row] for row in chosen]
        return RowStore(self.rows.take(places), ids, payloads, self.sequences[places])

    def truncate(self, count: int) -> None:
        """Forget all rows but the first ``count``; no reader has seen the others."""
        self.rows.truncate(count)
        self.text_bytes -= _text_bytes(self.ids[count:], self.payloads[count:])
        del self.ids[count:], self.payloads[count:]

    def mark_dead(self, rows: Sequence[int]) -> None:
        """Make tombstones of some rows, for new views."""
        self.alive = self.alive.copy()  # readers hold the old one
        self.alive[list(rows)] = 0


def _text_bytes(ids: Sequence[str], payloads: Sequence[bytes | None]) -> int:
    """Return about how many bytes of memory ids and payloads hold."""
    total = sum(map(len, ids)) + _BYTES_PER_ID * len(ids)
    for payload in payloads:
        if payload is not None:
            total += len(payload) + _BYTES_PER_PAYLOAD
    return total
