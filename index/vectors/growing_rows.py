"""Rows in memory: arrays that grow by doubling, seen through views that stay valid."""

from __future__ import annotations

import numpy as np

from gcws_search.index.contracts.arrays import Int64s, with_room
from gcws_search.index.contracts.batches import VectorBatch, row_width
from gcws_search.index.contracts.parameters import Form
from gcws_search.index.vectors.row_copies import GrowingCopies


class GrowingRows:
    """All rows of a collection; one writer appends, readers hold views.

    Parameters
    ----------
    form : {"dense", "sparse"}
    dim : int or None
    """

    def __init__(self, form: Form, dim: int | None) -> None:
        self._form: Form = form
        self._dim = dim
        self._count = 0
        self._entries = 0
        self._dense = np.empty((0, row_width(form, dim) or 0), np.float32)
        self._indptr = np.zeros(1, np.int64)
        self._slots = np.empty(0, np.uint32)
        self._values = np.empty(0, np.float32)
        self._norms = np.empty(0, np.float32)
        self._copies = GrowingCopies(self._dense.shape[1])

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, room to grow included."""
        arrays = (self._dense, self._indptr, self._slots, self._values, self._norms)
        return sum(array.nbytes for array in arrays) + self._copies.nbytes

    def reserve(self, count: int) -> None:
        """Make room for ``count`` rows in all.

        Adding them copies nothing then, but for the entries of sparse rows, whose number is not
        known.
        """
        self._norms = with_room(self._norms, self._count, count)
        if self._form == "dense":
            self._dense = with_room(self._dense, self._count, count)
            self._copies.reserve(count)
        else:
            self._indptr = with_room(self._indptr, self._count + 1, count + 1)

    def append(self, batch: VectorBatch) -> None:
        """Add rows at the end; views made before do not see them."""
        count = self._count + len(batch)
        self._norms = with_room(self._norms, self._count, count)
        self._norms[self._count : count] = batch.norms
        if self._form == "dense":
            self._dense = with_room(self._dense, self._count, count)
            self._dense[self._count : count] = batch.dense
            rows = VectorBatch("dense", dense=self._dense[:count], norms=self._norms[:count])
            self._copies.cover(rows, self._count)
        else:
            entries = self._entries + len(batch.values)
            self._indptr = with_room(self._indptr, self._count + 1, count + 1)
            self._indptr[self._count + 1 : count + 1] = batch.indptr[1:] + self._entries
            self._slots = with_room(self._slots, self._entries, entries)
            self._slots[self._entries : entries] = batch.slots
            self._values = with_room(self._values, self._entries, entries)
            self._values[self._entries : entries] = batch.values
            self._entries = entries
        self._count = count

    def truncate(self, count: int) -> None:
        """Forget all rows but the first ``count``; nobody may hold a view of the others."""
        self._count = count
        if self._form == "sparse":
            self._entries = int(self._indptr[count])

    def view(self) -> VectorBatch:
        """Return all rows so far, without copying; valid for as long as it is held."""
        norms = self._norms[: self._count]
        if self._form == "dense":
            copies = self._copies.view(self._count)
            return VectorBatch(
                "dense", dense=self._dense[: self._count], norms=norms, copies=copies
            )
        return VectorBatch(
            "sparse",
            indptr=self._indptr[: self._count + 1],
            slots=self._slots[: self._entries],
            values=self._values[: self._entries],
            norms=norms,
        )

    def take(self, rows: Int64s) -> GrowingRows:
        """Return new rows holding only the chosen ones, in that order."""
        taken = GrowingRows(self._form, self._dim)
        taken._copies = self._copies.of_no_rows()
        taken.append(self.view()[rows])
        return taken
