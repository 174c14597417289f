"""Small copies of dense rows with how far each is from its row: many queries scan them first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, UInt8s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.kernels.quantized.rows import BYTES
from gcws_search.index.kernels.quantized.scan import BoundedCopies, rounding_errors
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.quantization import QuantizedView, Quantizer

_MIN_WIDTH: Final = 96
"""Floats of a row from which this pays: a copy of fewer is hardly smaller than the row."""


@dataclass(frozen=True, slots=True)
class BoundedRows:
    """Rows of bytes by which a scan finds the rows that it must look at.

    Attributes
    ----------
    rounding : Quantizer
    copies : (n, stride) uint8
    errors : (n,) float32
        How far each row is from its copy; see `kernels.quantized.scan.rounding_errors`.
    """

    rounding: Quantizer
    copies: UInt8s
    errors: Float32s

    @classmethod
    def of(cls, coarse: QuantizedView, workers: Workers) -> BoundedRows | None:
        """Return the copies that lists have of rows; None where scanning them would not pay."""
        if coarse.rounding.kind != BYTES or coarse.rows.dense.shape[1] < _MIN_WIDTH:
            return None
        return cls.measured(coarse, workers)

    @classmethod
    def measured(cls, coarse: QuantizedView, workers: Workers) -> BoundedRows:
        """Return copies of bytes with their errors."""
        rows, rounding = coarse.rows.dense, coarse.rounding
        errors = np.empty(len(rows), np.float32)

        def measure(first: int, last: int) -> None:
            rounding_errors(
                rows, coarse.copies, rounding.step, rounding.origin, first, last, errors
            )

        workers.split(len(rows), measure)
        return cls(rounding, coarse.copies, errors)

    @property
    def bounded(self) -> BoundedCopies:
        """What `scan_rounded` takes."""
        return BoundedCopies(self.copies, self.errors, self.rounding.step)

    def of_queries(self, queries: VectorBatch) -> BoundedRows:
        """Return queries rounded as the rows are."""
        copies, _ = self.rounding.round(queries.dense, queries.norms)
        errors = np.empty(len(queries), np.float32)
        step, origin = self.rounding.step, self.rounding.origin
        rounding_errors(queries.dense, copies, step, origin, 0, len(queries), errors)
        return BoundedRows(self.rounding, copies, errors)
