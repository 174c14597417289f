"""Growing rows, in memory or in mapped files, and their byte copies, which scans read first.

Views of rows stay valid. The step of the copies is chosen by trial: a sample of rows is searched,
and the step that leaves the fewest rows to be read as floats is used. If every step leaves too
many, there are no copies, and scans read floats. Rows of whole numbers from 0 to 255 equal their
copies: in memory only the bytes are stored, until a row arrives that differs from its copy.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import (
    AddressSpace,
    AnyArray,
    Float32s,
    Int64s,
    large,
    with_room,
)
from gcws_search.index.contracts.batches import MIN_COPIED_FLOATS, RowCopies, VectorBatch, row_width
from gcws_search.index.contracts.parameters import Form
from gcws_search.index.kernels.gmm.rows import HitFilter, rows_of
from gcws_search.index.kernels.ordering.hits import empty_heaps
from gcws_search.index.kernels.quantized.quantize import copy_rows
from gcws_search.index.kernels.quantized.rows import BYTES
from gcws_search.index.kernels.quantized.scan import scan_copies
from gcws_search.index.threads import end_if
from gcws_search.index.vectors.quantization import Quantizer, byte_quantizers

_MIN_RATIO: Final = 3
"""A row is at least this many times as long as its copy, or scans gain little."""
_SAMPLED: Final = 1024
_SEARCHED: Final = 32
_HITS: Final = 10
"""Rows by which a step is judged, those that are searched for, and the hits of each."""
_CUTS: Final = (1.0, 0.9999, 0.999, 0.99, 0.95, 0.8)
"""Shares of the magnitudes that bytes reach: what is cut off tells rows apart by its sum alone."""
_MAX_LEFT: Final = 0.25
"""Share of the rows that may be left to be read as floats, of so few rows."""
_GAIN: Final = 0.8
"""A new step leaves at most this share of the rows that the old one leaves."""
_MAX_WHOLE: Final = 255
_GROWTH: Final = 2
"""The step is judged again when the rows have grown by this factor."""


_WHOLE: Final = Quantizer(BYTES)
"""The bytes of whole numbers from 0 to 255 are the numbers."""


class GrowingCopies:
    """The copies of a collection's dense rows; one writer appends, readers hold views.

    are_rows: whether the bytes of all rows so far equal the rows.
    """

    def __init__(self, width: int, paused: threading.Event) -> None:
        self._paused = paused
        self._pays = 0 < _MIN_RATIO * Quantizer(BYTES).stride(width) <= 4 * width
        self._copies: RowCopies | None = None
        self._room = AddressSpace()
        self._judged = 0
        self._reserved = 0
        self.are_rows = False

    @property
    def nbytes(self) -> int:
        """Bytes of memory, including reserved room."""
        return sum(part.nbytes for part in (self._copies or ()) if isinstance(part, np.ndarray))

    def reserve(self, count: int) -> None:
        """Make room for ``count`` rows in total, once there are copies."""
        self._reserved = count

    def start_with(self, step: float, origin: int, width: int) -> None:
        """Copy the first rows with a step; judge it once all reserved rows are there.

        A graph that uses the same bytes then needs no copies of its own.
        """
        is_large = self._reserved * width >= MIN_COPIED_FLOATS
        if self._pays and is_large:
            self._copies = _empty(0, width, Quantizer(BYTES, step, origin))
            self._judged = self._reserved // _GROWTH

    def of_no_rows(self) -> GrowingCopies:
        """Return copies with the same step, without rows."""
        empty = GrowingCopies(0, self._paused)
        empty._pays, empty._judged = self._pays, self._judged
        known = self._copies
        if known is not None:
            empty._copies, empty.are_rows = known.part(slice(0)), self.are_rows
        return empty

    def cover(self, rows: VectorBatch, first: int) -> None:
        """Add the rows from ``first`` on, out of all rows; earlier views do not show them."""
        n, known = rows.count, self._copies
        were_rows, self.are_rows = self.are_rows, False
        if not self._pays:
            return
        if known is None and (rows.numbers < MIN_COPIED_FLOATS or self._paused.is_set()):
            return
        if n >= _GROWTH * self._judged:
            chosen = _choose_quantizer(rows, known)
            if chosen is None:
                self._copies, self._room = None, AddressSpace()
            elif known is None or (chosen.step, chosen.origin) != (known.step, known.origin):
                known, first = _empty(0, rows.width, chosen), 0
                self._copies = known
            self._judged = n  # last, because `of_no_rows` may run meanwhile
        if self._copies is None or known is None:
            return
        are_exact = self._write(rows.floats[first:], first, known)
        self.are_rows = are_exact and (were_rows or first == 0)

    def add_rows(self, dense: Float32s, first: int) -> bool:
        """Append rows while the copies equal the rows; return whether they still do."""
        known = self._copies
        self.are_rows = known is not None and self._write(dense, first, known)
        return self.are_rows

    def _write(self, dense: Float32s, first: int, known: RowCopies) -> bool:
        """Copy rows from ``first`` on; return whether their bytes equal the rows."""
        n = first + len(dense)
        room = max(n, self._reserved)
        self._copies = copies = RowCopies(
            self._room.with_room(known.codes, first, room),
            with_room(known.norms, first, room),
            with_room(known.errors, first, room),
            with_room(known.excesses, first, room),
            known.step,
            known.origin,
        )
        copy_rows(dense, first, copies)
        is_whole = (copies.step, copies.origin) == (_WHOLE.step, _WHOLE.origin)
        new = slice(first, n)
        return is_whole and not copies.errors[new].any() and not copies.excesses[new].any()

    def view(self, count: int) -> RowCopies | None:
        """Return the copies of the first rows; None if there are no copies."""
        return None if self._copies is None else self._copies.part(slice(0, count))


def copies_of(dense: Float32s, like: RowCopies | Quantizer) -> RowCopies:
    """Return copies of rows with the step and the origin of others."""
    copies = _empty(len(dense), dense.shape[1], like)
    copy_rows(dense, 0, copies)
    return copies


def _empty(count: int, width: int, like: RowCopies | Quantizer) -> RowCopies:
    """Return unwritten copies of ``count`` rows."""
    return RowCopies(
        large((count, Quantizer(BYTES).stride(width)), np.uint8),
        np.empty(count, np.float32),
        np.empty(count, np.float32),
        np.empty(count, np.float32),
        like.step,
        like.origin,
    )


def _choose_quantizer(rows: VectorBatch, known: RowCopies | None) -> Quantizer | None:
    """Return the best step; the known one unless another is much better."""
    places = np.linspace(0, len(rows) - 1, min(_SAMPLED, len(rows))).astype(np.int64)
    sample = rows[np.random.default_rng(0).permutation(places)]
    values = sample.dense[sample.dense != 0]
    if len(values) and values.min() > 0 and values.max() <= _MAX_WHOLE and not (values % 1).any():
        return _WHOLE
    signed = bool((values < 0).any())
    tried = byte_quantizers(np.abs(values), signed=signed, cuts=_CUTS)
    left = [_left(sample, each) for each in tried]
    if known is not None:
        own = Quantizer(BYTES, known.step, known.origin)
        share = _left(sample, own)
        if share <= _MAX_LEFT and not any(each < _GAIN * share for each in left):
            return own
    best = int(np.argmin(left)) if left else -1
    return tried[best] if left and left[best] <= _MAX_LEFT else None


def _left(sample: VectorBatch, quantizer: Quantizer) -> float:
    """Return the share of rows that a scan by copies must read as floats."""
    copies, n = copies_of(sample.dense, quantizer), len(sample)
    searched = np.arange(0, n, max(1, n // _SEARCHED))  # a stride would compile the scan again
    queries = sample[searched]
    wanted = HitFilter(np.ones(n, np.uint8), searched, np.float32(0.0))
    heaps = empty_heaps(len(queries), _HITS)
    read = scan_copies(rows_of(queries), rows_of(sample), copies, wanted, 0, n, heaps)
    return read / (n * len(queries))


_STEP: Final = 64 << 20
"""Bytes by which a file grows at least, once it has as many itself."""
_SHARE: Final = 8
"""It grows by the eighth part of itself where that is more."""
_TAKEN_AT_ONCE: Final = 65_536
"""Rows that are copied at a time: a second copy of all would need as much memory again."""


class MappedArray:
    """The file of one growing array, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def with_room(self, array: AnyArray, used: int, wanted: int) -> AnyArray:
        """Return ``array``, or another view of the file with room for at least ``wanted`` entries.

        Earlier views stay valid, and show the same entries. ``array`` is the last one returned,
        or one of no entries; ``used`` is there for `contracts.arrays.with_room`, which copies.
        Raises OSError (the disk is full; nothing has changed).
        """
        if wanted <= len(array):
            return array
        descriptor = self._open()
        row = math.prod(array.shape[1:]) * array.dtype.itemsize
        grown = array.nbytes + max(min(array.nbytes, _STEP), array.nbytes // _SHARE)
        bytes_ = -(-max(wanted * row, grown) // mmap.PAGESIZE) * mmap.PAGESIZE
        _require_space(descriptor, bytes_)
        # Writing to a page without disk space would kill the process if the disk is full.
        os.posix_fallocate(descriptor, 0, bytes_)
        memory = mmap.mmap(descriptor, bytes_)
        count = bytes_ // row
        items = count * row // array.dtype.itemsize
        return np.frombuffer(memory, array.dtype, items).reshape(count, *array.shape[1:])

    def write(self, array: AnyArray, first: int, values: AnyArray) -> None:
        """Write entries from ``first`` on into ``array``, which has room for them.

        Uses a system call: first writing a page through its mapping takes ten times as long.
        """
        row = math.prod(array.shape[1:]) * array.dtype.itemsize
        left = np.ascontiguousarray(values, array.dtype).reshape(-1).view(np.uint8).data
        place = first * row
        while left:
            done = os.pwrite(self._open(), left, place)
            left, place = left[done:], place + done

    def _open(self) -> int:
        """Return the descriptor of the file, which the first call creates."""
        if self._descriptor is None:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                self._descriptor = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._descriptor)
        return self._descriptor


def _require_space(descriptor: int, bytes_: int) -> None:
    """Raise OSError if a file cannot grow to ``bytes_``.

    Some file systems take all remaining space before they refuse; other writes would fail.
    """
    disk = os.fstatvfs(descriptor)
    missing = bytes_ - os.fstat(descriptor).st_size
    if disk.f_blocks and missing > disk.f_bavail * disk.f_frsize:  # some do not report it
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class GrowingRows:
    """All rows of a collection; one writer appends, readers hold views.

    If a folder is given, vectors are in its mapped files once `reserve` makes room for
    ``mapped_from`` bytes of them; norms and copies are always in memory. While ``paused`` is set,
    no copies are started.

    is_mapped: whether vectors are in files.
    is_outgrown: whether vectors in memory are large enough for files: `take` maps them.
    """

    def __init__(
        self,
        form: Form,
        dim: int | None,
        folder: Path | None = None,
        paused: threading.Event | None = None,
        mapped_from: int = 0,
    ) -> None:
        self._form: Form = form
        self._dim = dim
        self._folder = folder
        self._mapped_from = mapped_from
        # For dense rows or slots; for values.
        self._space: AddressSpace | MappedArray = AddressSpace()
        self._space_of_values: AddressSpace | MappedArray = AddressSpace()
        self.is_mapped = self.is_outgrown = False
        if not mapped_from:
            self._map()
        self._count = 0
        self._entries = 0
        self._holds_bytes = False  # and `_dense` has no row
        self._dense = np.empty((0, row_width(form, dim) or 0), np.float32)
        self._indptr = np.zeros(1, np.int64)
        self._slots = np.empty(0, np.uint32)
        self._values = np.empty(0, np.float32)
        self._norms = np.empty(0, np.float32)
        self._paused = paused or threading.Event()
        self._copies = GrowingCopies(self._dense.shape[1], self._paused)

    def __len__(self) -> int:
        return self._count

    @property
    def entries(self) -> int:
        """Number of entries of all sparse rows."""
        return self._entries

    @property
    def nbytes(self) -> int:
        """Bytes of memory, including reserved room, without mapped files."""
        arrays = self._indptr.nbytes + self._norms.nbytes + self._copies.nbytes
        return arrays + (0 if self.is_mapped else self._vector_bytes)

    @property
    def mapped_bytes(self) -> int:
        """Bytes of mapped files, including reserved room."""
        return self._vector_bytes if self.is_mapped else 0

    @property
    def _vector_bytes(self) -> int:
        return self._dense.nbytes + self._slots.nbytes + self._values.nbytes

    def reserve(self, count: int, entries: int = 0) -> None:
        """Make room for ``count`` rows in total, and for ``entries`` entries of sparse rows.

        Adding these rows then copies nothing, and needs no more disk space.

        Raises OSError (no disk space for mapped files; the rows are unchanged).
        """
        if not self._count and not self.is_mapped and self._outgrow_memory(count, entries):
            self._map()
        self._make_room(count, entries)
        self._copies.reserve(count)

    def _outgrow_memory(self, count: int, entries: int) -> bool:
        """Return whether this many rows or entries are large enough for files."""
        if self._copies.are_rows:  # scans read only the bytes, which are in memory
            return False
        bytes_ = 4 * count * self._dense.shape[1] + 8 * entries
        return self._folder is not None and bytes_ >= self._mapped_from

    def _map(self) -> None:
        """Put vectors into files of the folder, if there is one; there must be no rows yet."""
        if self._folder is not None:
            self._space = MappedArray(self._folder)
            self._space_of_values = MappedArray(self._folder)
            self.is_mapped = True

    def stay_in_memory(self) -> None:
        """Keep vectors in memory at any size; none may be mapped yet."""
        self._folder, self.is_mapped, self.is_outgrown = None, False, False
        if not self._count:
            self._space, self._space_of_values = AddressSpace(), AddressSpace()

    def copy_with(self, step: float, origin: int) -> None:
        """Copy rows with the step of a graph, so that it shares the copies; after `reserve`."""
        self._copies.start_with(step, origin, self._dense.shape[1])

    def resume_copies(self) -> None:
        """Copy rows added while copying was paused; earlier views do not show it."""
        if self._form == "dense" and self._copies.view(0) is None:
            self._copies.cover(self.view(), 0)
            if self._copies.are_rows and not self.is_mapped:
                self._drop_floats()

    def _drop_floats(self) -> None:
        """Keep only the copies, which equal the rows."""
        self._space, self._dense = AddressSpace(), self._dense[:0].copy()
        self._holds_bytes = True

    def _restore_floats(self, count: int) -> None:
        """Store the present rows as floats again, with room for ``count``."""
        rows, self._holds_bytes = self.view(), False
        self._dense = self._space.with_room(self._dense, 0, count)
        for first in range(0, self._count, _TAKEN_AT_ONCE):
            part = slice(first, min(first + _TAKEN_AT_ONCE, self._count))
            self._dense[part] = rows.codes[part, : rows.width]

    def _make_room(self, count: int, entries: int) -> None:
        self._norms = with_room(self._norms, self._count, count)
        if self._form == "dense":
            if not self._holds_bytes:
                self._dense = self._space.with_room(self._dense, self._count, count)
        else:
            self._indptr = with_room(self._indptr, self._count + 1, count + 1)
            self._slots = self._space.with_room(self._slots, self._entries, entries)
            self._values = self._space_of_values.with_room(self._values, self._entries, entries)

    def append(self, batch: VectorBatch) -> None:
        """Append rows, dense ones as floats; earlier views do not show them."""
        count, entries = self._count + batch.count, self._entries + len(batch.values)
        self._make_room(count, entries)
        self._norms[self._count : count] = batch.norms
        if self._form == "dense":
            if self._holds_bytes and not self._copies.add_rows(batch.floats, self._count):
                self._restore_floats(count)
            if not self._holds_bytes:
                self._space.write(self._dense, self._count, batch.floats)
                rows = VectorBatch("dense", dense=self._dense[:count], norms=self._norms[:count])
                self._copies.cover(rows, self._count)
                if self._copies.are_rows and not self.is_mapped:
                    self._drop_floats()
        else:
            self._indptr[self._count + 1 : count + 1] = batch.indptr[1:] + self._entries
            self._space.write(self._slots, self._entries, batch.slots)
            self._space_of_values.write(self._values, self._entries, batch.values)
            self._entries = entries
        self._count = count
        self.is_outgrown = not self.is_mapped and self._outgrow_memory(count, entries)

    def truncate(self, count: int) -> None:
        """Remove all rows but the first ``count``; no view may show the removed ones."""
        self._count = count
        if self._form == "sparse":
            self._entries = int(self._indptr[count])

    def view(self) -> VectorBatch:
        """Return all rows so far, without copying; valid as long as it is referenced."""
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

    def take(
        self, vectors: VectorBatch, rows: Int64s, stop: threading.Event | None = None
    ) -> GrowingRows:
        """Return new rows with some of those of a `view`, in the given order; any thread.

        Raises StoppedError once ``stop`` is set; OSError as `reserve`.
        """
        taken = GrowingRows(self._form, self._dim, self._folder, self._paused, self._mapped_from)
        taken._copies = self._copies.of_no_rows()
        entries = np.diff(vectors.indptr)[rows].sum() if self._form == "sparse" else 0
        taken.reserve(len(rows), int(entries))
        for first in range(0, len(rows), _TAKEN_AT_ONCE):
            end_if(stop)
            taken.append(vectors[rows[first : first + _TAKEN_AT_ONCE]])
        return taken
