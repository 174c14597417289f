"""Quick scores by small copies of rows, and by spread sparse queries."""

import numpy as np
import pytest
from numba import njit

from gcws_search.index.kernels.lanes.vector import pointer
from gcws_search.index.kernels.quantized.rows import (
    BYTES,
    FLOATS,
    MAX_SHORT,
    SHORTS,
    SPARSE,
    hold,
    places,
    release,
    rows_at,
    score_rows,
)
from gcws_search.index.vectors.quantization import (
    QuantizedRows,
    QuantizedView,
    Quantizer,
    choose_quantizer,
    dimension,
)
from tests.support.data.adapters import batch_of
from tests.support.data.generated import Csr, Floats
from tests.support.reference import mathematics

SIGNED_BYTES = Quantizer(BYTES, 0.25, 128)
POSITIVE_BYTES = Quantizer(BYTES, 0.25, 0)
WHOLE_SHORTS = Quantizer(SHORTS, 0.25)
RANGES = {SIGNED_BYTES: (-128, 127), POSITIVE_BYTES: (0, 255), WHOLE_SHORTS: (-16383, 16383)}
ROUNDING_ERROR = 1e-6
"""Sums of a few hundred float32 in 16 lanes, at most 2⁻²⁴ relative each step."""


@njit(nogil=True)
def _scores(addresses, table, row, numbers, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    rows = rows_at(addresses)
    held = hold(rows, row, pointer(table))
    score_rows(rows, held, pointer(numbers), 0, len(numbers), pointer(out))
    release(rows, row, held)


def scores_of(view: QuantizedView, row: int) -> list[float]:
    """Return the quick scores of a row and every row."""
    longest = int(np.diff(view.rows.indptr).max(initial=1))
    table = np.zeros(places(longest), np.float32)
    out = np.empty(len(view.rows), np.float32)
    _scores(view.addresses, table, row, np.arange(len(out), dtype=np.int32), out)
    assert not table.any()
    scores: list[float] = out.tolist()
    return scores


@pytest.mark.parametrize("dim", [1, 16, 17, 31, 32, 33, 63, 64, 65, 100, 129, 784])
@pytest.mark.parametrize("quantizer", RANGES, ids=["signed bytes", "bytes", "shorts"])
def test_a_quick_score_is_that_of_the_rounded_rows(
    quantizer: Quantizer, dim: int, rng: np.random.Generator
) -> None:
    low, high = RANGES[quantizer]
    rows = (rng.standard_t(2.0, (12, dim)) * high / 12).astype(np.float32)
    rows[:3] *= 30  # cut off
    rows[3] = 1e-3 * rng.random(dim)  # rounded to nothing
    rows = np.abs(rows) + np.float32(1e-6) if low == 0 else rows
    batch = batch_of(rows)
    copies = QuantizedRows(quantizer, batch.dense.shape[1])
    copies.cover(batch[:5])
    view = copies.cover(batch)  # the later rows take their place behind the first
    units = [
        mathematics.from_dense(mathematics.rounded(row, step=quantizer.step, low=low, high=high))
        for row in rows.astype(float)
    ]
    assert not units[3]
    for i in (0, 4, 3, 11):
        expected = [
            mathematics.gmm(units[i], other) if units[i] or other else 0.0 for other in units
        ]
        assert scores_of(view, i) == pytest.approx(expected, abs=ROUNDING_ERROR)


@pytest.mark.parametrize("dim", [1, 16, 33, 100])
def test_floats_are_scored_as_they_are(dim: int, rng: np.random.Generator) -> None:
    rows = rng.standard_t(2.0, (10, dim)).astype(np.float32)
    batch = batch_of(rows)
    view = QuantizedRows(Quantizer(FLOATS), batch.dense.shape[1]).cover(batch)
    vectors = [mathematics.from_dense(row) for row in rows]
    expected = [mathematics.gmm(vectors[4], other) for other in vectors]
    assert scores_of(view, 4) == pytest.approx(expected, abs=ROUNDING_ERROR)


def random_sparse(rng: np.random.Generator, lengths: list[int], width: int) -> Csr:
    indices = [np.sort(rng.choice(width, length, replace=False)) for length in lengths]
    values = rng.standard_t(2.0, sum(lengths)).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Csr(indptr, np.concatenate(indices).astype(np.int64), values)


@pytest.mark.parametrize("length", [1, 3, 4, 7, 60, 3000])
def test_a_sparse_quick_score_is_never_below_the_exact_one(
    length: int, rng: np.random.Generator
) -> None:
    # 3000 slots meet in the largest table; of most pairs some slots share a place.
    rows = random_sparse(rng, [length, *rng.integers(1, 2 * length + 1, 12).tolist()], 4 * length)
    batch = batch_of(rows)
    view = QuantizedRows(Quantizer(SPARSE), 0).cover(batch)
    vectors = [mathematics.from_pairs(*rows.row(i)) for i in range(len(rows))]
    for i in (0, 5):
        exact = [mathematics.gmm(vectors[i], other) for other in vectors]
        quick = scores_of(view, i)
        assert all(a >= b - ROUNDING_ERROR for a, b in zip(quick, exact, strict=True))
        assert max(a - b for a, b in zip(quick, exact, strict=True)) < 0.02
        assert quick[i] == pytest.approx(1.0)


def test_a_sparse_quick_score_is_exact_where_no_slots_share_a_place(
    rng: np.random.Generator,
) -> None:
    rows = random_sparse(rng, [3, 2, 3, 1, 3], 6)
    slots = np.unique(batch_of(rows).slots)
    table = np.uint32(slots * np.uint32(0x9E3779B1)) >> np.uint32(32 - 11)
    assert len(np.unique(table)) == len(slots)  # also in the larger tables
    vectors = [mathematics.from_pairs(*rows.row(i)) for i in range(len(rows))]
    view = QuantizedRows(Quantizer(SPARSE), 0).cover(batch_of(rows))
    for i in range(len(rows)):
        exact = [mathematics.gmm(vectors[i], other) for other in vectors]
        assert scores_of(view, i) == pytest.approx(exact, abs=ROUNDING_ERROR)


def near_groups(rows: Floats, centres: Floats) -> Floats:
    far = np.abs(centres[:, None] - rows[None]).sum(2)
    groups: Floats = rows[np.argsort(far, axis=1)[:, 1:65]]
    return groups


def test_bytes_are_chosen_where_they_tell_near_rows_apart(rng: np.random.Generator) -> None:
    signed = rng.standard_normal((2000, 64)).astype(np.float32)
    quantizer = choose_quantizer(near_groups(signed, signed[:40]), signed[:40], signed)
    assert (quantizer.kind, quantizer.origin) == (BYTES, 128)
    positive = np.abs(signed)
    quantizer = choose_quantizer(near_groups(positive, positive[:40]), positive[:40], positive)
    assert (quantizer.kind, quantizer.origin) == (BYTES, 0)


@pytest.mark.parametrize(
    ("dim", "kinds"), [(64, [BYTES, SHORTS, FLOATS]), (48, [BYTES, FLOATS, FLOATS])]
)
def test_finer_rows_are_chosen_where_bytes_lose_what_is_near(
    dim: int, kinds: list[int], rng: np.random.Generator
) -> None:
    chosen = []
    for spread in (1.0, 1e-2, 1e-5):
        centres = rng.standard_normal((40, dim))
        groups = centres[:, None] + spread * rng.standard_normal((40, 64, dim))
        rows = groups.reshape(-1, dim).astype(np.float32)
        chosen.append(choose_quantizer(groups.astype(np.float32), centres.astype(np.float32), rows))
    assert [each.kind for each in chosen] == kinds


def test_two_bytes_have_room_for_rows_that_were_not_sampled_but_not_at_any_price(
    rng: np.random.Generator,
) -> None:
    centres = rng.standard_normal((40, 64))
    groups = (centres[:, None] + 1e-2 * rng.standard_normal((40, 64, 64))).astype(np.float32)
    greater = 3 * rng.standard_normal((1000, 64)).astype(np.float32)
    steps = []
    for rows in (groups[0], greater, -np.abs(greater), greater * np.float32(1e6)):
        chosen = choose_quantizer(groups, centres.astype(np.float32), rows)
        assert chosen.kind == SHORTS
        steps.append(chosen.step * MAX_SHORT)
    assert steps[1:3] == pytest.approx([np.abs(greater).max()] * 2)
    assert steps[3] == pytest.approx(np.abs(groups).max())


def test_bytes_are_not_chosen_for_clusters_that_they_make_one_though_these_are_small(
    rng: np.random.Generator,
) -> None:
    centres = 5 * rng.standard_normal((200, 32))
    rows = (centres.repeat(15, axis=0) + 1e-3 * rng.standard_normal((3000, 32))).astype(np.float32)
    chosen = choose_quantizer(near_groups(rows, rows[::50]), rows[::50], rows)
    assert chosen.kind == FLOATS


def test_rows_that_bytes_make_one_are_not_told_apart_by_the_order_they_come_in(
    rng: np.random.Generator,
) -> None:
    centres = np.full((40, 32), 3.0, np.float32)
    groups = centres[:, None] + 1e-3 * rng.standard_normal((40, 64, 32)).astype(np.float32)
    groups[4:] = 2 * rng.standard_normal((36, 64, 32))  # one near group in ten is tight
    far = np.abs(groups - centres[:, None]).sum(2)
    nearest_first = np.take_along_axis(groups, np.argsort(far, axis=1)[..., None], 1)
    for rows in (nearest_first, groups):
        assert choose_quantizer(rows, centres, centres).kind != BYTES


@pytest.mark.parametrize("dimensions", [2.0, 5.0, 20.0])
def test_the_dimension_is_how_fast_rows_become_more(
    dimensions: float, rng: np.random.Generator
) -> None:
    centres = np.full((64, 4), 1000.0, np.float32)
    groups = np.repeat(centres[:, None], 64, axis=1)
    groups[:, :, 0] += 100 * rng.random((64, 64)) ** (1 / dimensions)
    # log(r_max / r) is exponential: its mean over 64² is 1/64 off by so much, 4σ; and the farthest
    # is counted, and distances are not quite in proportion.
    assert dimension(groups, centres) == pytest.approx(dimensions, rel=4 / 64 + 1 / 64 + 0.03)


def test_copies_lie_along_no_dimensions_or_any_number_of_them() -> None:
    rows = np.ones((3, 5, 4), np.float32)
    assert dimension(rows, rows[:, 0]) == np.inf
    rows[:, 0] = 2.0  # of five rows near to each four are copies of it
    assert dimension(rows, np.ones((3, 4), np.float32)) < 1


@pytest.mark.parametrize("size", [0.0, 1e-43, 1e-38, 1e-36])
def test_rows_of_numbers_too_small_to_divide_by_are_kept_as_they_are(
    size: float, rng: np.random.Generator
) -> None:
    rows = (rng.standard_normal((4, 30, 8)) * size).astype(np.float32)
    assert choose_quantizer(rows, rows[:, 0], rows[:, 0]) == Quantizer(FLOATS)


def test_the_copies_of_chosen_rows_are_taken_along(rng: np.random.Generator) -> None:
    batch = batch_of(rng.standard_normal((9, 20)).astype(np.float32))
    copies = QuantizedRows(SIGNED_BYTES, batch.dense.shape[1])
    copies.cover(batch)
    kept = np.array([1, 4, 8])
    view = copies.take(kept).cover(batch[kept])
    assert scores_of(view, 1) == [scores_of(copies.cover(batch), 4)[row] for row in kept]


@pytest.mark.parametrize("rows", [10, 40_000], ids=["few", "many"])
@pytest.mark.parametrize("quantizer", [SIGNED_BYTES, WHOLE_SHORTS], ids=["bytes", "shorts"])
def test_fresh_copies_begin_with_a_cache_line(quantizer: Quantizer, rows: int) -> None:
    dense = np.ones((rows, 128), np.float32)
    copies = QuantizedRows(quantizer, 128).cover(batch_of(dense)).copies
    assert copies.ctypes.data % 64 == 0
    assert copies.shape[1] % 64 == 0


@pytest.mark.parametrize("dim", [1, 16, 17])
def test_rows_as_short_as_their_copies_have_none(rng: np.random.Generator, dim: int) -> None:
    batch = batch_of(rng.standard_normal((3000, dim)))
    groups = near_groups(batch.dense, batch.dense[:40])
    kind = choose_quantizer(groups, batch.dense[:40], batch.dense).kind
    assert kind in ((BYTES, SHORTS) if dim > 16 else (FLOATS,))
