"""Scans that look at rounded rows first against those that look at all rows."""

import numpy as np
import pytest

from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import BatchHits, RowView
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.quantized_scan import BoundedRows
from gcws_search.index.exact.scan import scan
from gcws_search.index.kernels.gmm.tiled_scan import MANY
from gcws_search.index.kernels.quantized.rows import BYTES, SHORTS
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.quantization import QuantizedRows, Quantizer
from gcws_search.index.vectors.space import VectorSpace
from tests.support.data import generated

WIDTH = 130
"""More than two registers of bytes, and the last of them not full."""
WIDER = 784
"""Of which fewer rows are looked at together."""
FINE, ROUGH, CUT = (
    Quantizer(BYTES, 0.02, 128),
    Quantizer(BYTES, 1.0, 128),
    Quantizer(BYTES, 1e-4, 128),
)


def dense(rows: generated.Floats) -> VectorBatch:
    space = VectorSpace.of(CollectionConfig(dim=rows.shape[1]))
    return space.prepare(space.from_dense(rows))


def wide(rng: np.random.Generator, count: int, *, alike: bool, width: int = WIDTH) -> VectorBatch:
    """Return rows in clusters, many of them twice."""
    centres = rng.standard_normal((8, width))
    spread = 1e-3 if alike else 0.3
    rows = centres[rng.integers(0, 8, count)] + spread * rng.standard_normal((count, width))
    rows[::5] = rows[0]
    return dense(rows.astype(np.float32))


def parts(hits: BatchHits) -> list[tuple[list[int], list[float]]]:
    return [
        (hits.rows[m, :size].tolist(), hits.scores[m, :size].tolist())
        for m, size in enumerate(hits.sizes)
    ]


@pytest.mark.parametrize("rounding", [FINE, ROUGH, CUT], ids=["fine", "rough", "cut off"])
@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("width", [WIDTH, WIDER])
def test_rounded_rows_change_no_answer(
    rounding: Quantizer, alike: bool, width: int, rng: np.random.Generator
) -> None:
    rows, queries = (wide(rng, n, alike=alike, width=width) for n in (1003, 2 * MANY + 1))
    permitted = (rng.random(1003) < 0.8).astype(np.uint8)
    view, workers = RowView(rows, permitted, int(permitted.sum())), Workers(2)
    rounded = BoundedRows.measured(QuantizedRows(rounding, width).cover(rows), workers)
    skip = rng.integers(-1, 1003, len(queries))
    for limit, min_score in ((1, 0.0), (10, 0.0), (10, 0.7), (2000, 0.0)):
        params = SearchParams(limit=limit, recall=1.0, min_score=min_score)
        with_copies, without = (
            scan(
                view, queries, params, skip=skip, inverted=InvertedIndex(), workers=workers,
                with_ties=False, rounded=each,
            )
            for each in (rounded, None)
        )  # fmt: skip
        assert parts(with_copies) == parts(without)


@pytest.mark.parametrize("width", [WIDTH, 513, WIDER])
def test_rows_of_whole_numbers_change_no_answer(width: int, rng: np.random.Generator) -> None:
    # Kept exactly, and nearer to each other than to nothing: all hangs on the norms.
    centres = rng.integers(0, 200, (8, width))
    counts = centres[rng.integers(0, 8, 1003 + 64)] + rng.integers(0, 56, (1003 + 64, width))
    rows, queries = dense(counts[:1003].astype(np.float32)), dense(counts[1003:].astype(np.float32))
    view, workers = RowView(rows, np.ones(1003, np.uint8), 1003), Workers(1)
    rounded = BoundedRows.measured(QuantizedRows(Quantizer(BYTES, 1.0), width).cover(rows), workers)
    for limit in (1, 10, 100):
        with_copies, without = (
            scan(
                view, queries, SearchParams(limit=limit, recall=1.0),
                skip=np.full(64, -1), inverted=InvertedIndex(), workers=workers,
                with_ties=False, rounded=each,
            )
            for each in (rounded, None)
        )  # fmt: skip
        assert parts(with_copies) == parts(without)


def test_an_error_is_how_far_a_row_is_from_its_copy(rng: np.random.Generator) -> None:
    rows = wide(rng, 50, alike=False)
    view = QuantizedRows(FINE, WIDTH).cover(rows)
    copies = view.copies[:, : rows.dense.shape[1]].astype(float) - FINE.origin
    expected = np.abs(rows.dense - FINE.step * copies).sum(1)
    errors = BoundedRows.measured(view, Workers(2)).errors
    assert (errors >= expected * (1 - 1e-7)).all()
    np.testing.assert_allclose(errors, expected, rtol=3e-5)


@pytest.mark.parametrize(
    ("rounding", "width", "taken"),
    [(FINE, 130, True), (FINE, 24, False), (Quantizer(SHORTS, 1e-4), 130, False)],
)
def test_only_bytes_of_wide_rows_are_scanned_first(
    rounding: Quantizer, width: int, taken: bool, rng: np.random.Generator
) -> None:
    rows = dense(rng.standard_normal((40, width)).astype(np.float32))
    view = QuantizedRows(rounding, width).cover(rows)
    assert (BoundedRows.of(view, Workers(1)) is not None) == taken
