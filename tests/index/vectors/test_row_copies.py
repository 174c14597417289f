"""Copies in bytes: what they say of their rows, and that they are kept up with them."""

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

from gcws_search.index.contracts.arrays import AnyArray
from gcws_search.index.contracts.batches import MIN_COPIED_FLOATS, RowCopies, VectorBatch
from gcws_search.index.kernels.quantized.rows import BYTES, SHORTS
from gcws_search.index.kernels.quantized.scan import scan_copies
from gcws_search.index.vectors import growing_rows
from gcws_search.index.vectors.equal_rows import equal_groups
from gcws_search.index.vectors.growing_rows import GrowingRows, copies_of
from gcws_search.index.vectors.quantization import QuantizedRows, Quantizer, choose_quantizer
from tests.support.counts import calls_of
from tests.support.data.adapters import batch_of, csr_of

DIM = 64
ENOUGH = MIN_COPIED_FLOATS // DIM
SLACK = 1e-6
"""Bounds are taken of numbers in float32."""


def grown(*batches: AnyArray) -> GrowingRows:
    rows = GrowingRows("dense", batches[0].shape[1])
    for each in batches:
        rows.append(batch_of(each))
    return rows


def copies_in(rows: VectorBatch) -> RowCopies:
    assert rows.copies is not None
    assert len(rows.copies.codes) == len(rows)
    return rows.copies


def check_bounds(rows: VectorBatch, rng: np.random.Generator) -> None:
    """Check that what copies say is true of 2,000 pairs of rows, and of each row."""
    copies, dense = copies_in(rows), rows.dense.astype(np.float64)
    step, origin = copies.step, copies.origin
    units = copies.codes[:, : dense.shape[1]].astype(np.int64) - origin
    inside = np.clip(dense, -origin * step, (255 - origin) * step)
    errors = np.abs(inside - step * units).sum(1)
    assert (copies.errors >= errors).all()
    np.testing.assert_allclose(copies.errors, errors, rtol=3e-5)
    np.testing.assert_allclose(copies.excesses, np.abs(dense - inside).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(copies.norms, np.abs(units).sum(1))
    assert (copies.codes[:, dense.shape[1] :] == origin).all()
    a, b = rng.integers(0, len(rows), (2, 2000))
    apart = np.abs(dense[a] - dense[b]).sum(1)
    bound = step * np.abs(units[a] - units[b]).sum(1) - copies.errors[a] - copies.errors[b]
    bound += np.abs(copies.excesses[a].astype(np.float64) - copies.excesses[b])
    assert (bound <= apart + SLACK * (rows.norms[a] + rows.norms[b])).all()


def test_copies_bound_distances_of_rows_that_fit_and_of_rows_that_do_not(
    rng: np.random.Generator,
) -> None:
    usual = rng.standard_normal((ENOUGH, DIM))
    rows = grown(usual, 40 * usual[:100], 1e-6 * usual[:100], np.abs(usual[:100]) * 1e20)
    check_bounds(rows.view(), rng)
    counts = rng.integers(0, 256, (ENOUGH, DIM))
    copies = copies_in(grown(counts).view())
    assert (copies.step, copies.origin) == (1.0, 0)
    assert not copies.errors.any()
    assert not copies.excesses.any()


def test_a_step_is_tried_by_the_scan_that_is_compiled_already(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An array with a stride would have the scan compiled again, while somebody writes."""
    contiguous: list[bool] = []

    def scan(*arguments: Any) -> int:  # noqa: ANN401  # those of a kernel
        arrays = (each for some in arguments if isinstance(some, tuple) for each in some)
        contiguous.extend(
            each.flags.c_contiguous for each in arrays if isinstance(each, np.ndarray)
        )
        return scan_copies(*arguments)

    monkeypatch.setattr(growing_rows, "scan_copies", scan)
    copies_in(grown(rng.standard_normal((2 * ENOUGH, DIM))).view())
    assert contiguous
    assert all(contiguous)


@pytest.mark.parametrize("tail", [1e3, 1e12])
def test_a_few_huge_numbers_do_not_make_the_step_wide(
    tail: float, rng: np.random.Generator
) -> None:
    rows = rng.standard_normal((ENOUGH, DIM))
    rows[:: ENOUGH // 10, 0] *= tail
    assert copies_in(grown(rows).view()).step < 0.05


def test_rows_have_copies_once_scans_gain_by_them(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((ENOUGH, DIM))
    growing = grown(rows[:-1])
    before = growing.view()
    assert before.copies is None
    growing.append(batch_of(rows[-1:]))
    assert before.copies is None
    check_bounds(growing.view(), rng)
    assert grown(rng.standard_normal((MIN_COPIED_FLOATS // 16, 16))).view().copies is None
    assert GrowingRows("sparse", None).view().copies is None


def test_rows_that_bytes_do_not_tell_apart_have_no_copies(rng: np.random.Generator) -> None:
    # All are nearer to each other than to their copies; or no number has digits.
    rows = rng.standard_normal(DIM) + 1e-4 * rng.standard_normal((ENOUGH, DIM))
    assert grown(rows).view().copies is None
    assert grown(rng.random((ENOUGH, DIM)) * 1e-37).view().copies is None


def test_copies_are_kept_up_with_rows(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((3 * ENOUGH, DIM))
    growing = grown(rows[:ENOUGH])
    first = growing.view()
    held = [part.copy() for part in copies_in(first)[:4]]
    for count in (1, 31, 1000):
        n = len(growing)
        growing.append(batch_of(rows[n : n + count]))
    check_bounds(growing.view(), rng)
    growing.truncate(ENOUGH + 5)
    growing.append(batch_of(-2 * rows[:100]))
    check_bounds(growing.view(), rng)
    some = np.sort(rng.permutation(len(growing))[:2000])
    taken = growing.take(growing.view(), some)
    check_bounds(taken.view(), rng)
    taken.append(batch_of(rows[-50:]))
    check_bounds(taken.view(), rng)
    for before, now in zip(held, copies_in(first)[:4], strict=True):
        np.testing.assert_array_equal(before, now)


def test_few_rows_that_a_compaction_leaves_have_copies_still(rng: np.random.Generator) -> None:
    growing = grown(rng.standard_normal((ENOUGH, DIM)))
    taken = growing.take(growing.view(), np.arange(0, ENOUGH, 100))
    check_bounds(taken.view(), rng)
    assert copies_in(taken.view()).step == copies_in(growing.view()).step


def test_a_step_that_later_rows_outgrow_is_replaced(rng: np.random.Generator) -> None:
    small, great = rng.standard_normal((ENOUGH, DIM)), rng.standard_normal((2 * ENOUGH, DIM))
    growing = grown(small)
    step = copies_in(growing.view()).step
    growing.append(batch_of(small[:1]))
    assert copies_in(growing.view()).step == step
    growing.append(batch_of(5 * great))
    assert copies_in(growing.view()).step > 3 * step
    check_bounds(growing.view(), rng)
    same = grown(small, great)
    assert copies_in(same.view()).step == step


def test_room_that_was_reserved_is_not_made_twice(rng: np.random.Generator) -> None:
    growing = GrowingRows("dense", DIM)
    growing.reserve(2 * ENOUGH)
    growing.append(batch_of(rng.standard_normal((ENOUGH, DIM))))
    bytes_ = growing.nbytes
    assert bytes_ == pytest.approx(2 * ENOUGH * (4 * DIM + 4 + DIM + 12), abs=64)
    growing.append(batch_of(rng.standard_normal((ENOUGH, DIM))))
    assert growing.nbytes == bytes_


@pytest.mark.parametrize("factor", [1.05, 30.0])
def test_copies_begin_as_a_graph_rounds_rows_and_are_judged_once_all_are_there(
    rng: np.random.Generator, factor: float
) -> None:
    rows = rng.standard_normal((2 * ENOUGH + 1, DIM))
    step = factor * copies_in(grown(rows).view()).step
    growing = GrowingRows("dense", DIM)
    growing.reserve(len(rows))
    growing.copy_with(step, 128)
    growing.append(batch_of(rows[:500]))
    assert copies_in(growing.view()).step == step
    growing.append(batch_of(rows[500:]))
    assert (copies_in(growing.view()).step == step) == (factor < 2)
    check_bounds(growing.view(), rng)


def test_few_rows_have_no_copies_though_a_graph_has(rng: np.random.Generator) -> None:
    growing = GrowingRows("dense", DIM)
    growing.reserve(ENOUGH - 1)
    growing.copy_with(0.03, 128)
    growing.append(batch_of(rng.standard_normal((500, DIM))))
    assert growing.view().copies is None


def test_slices_of_rows_have_copies_and_chosen_rows_have_none(rng: np.random.Generator) -> None:
    rows = grown(rng.standard_normal((ENOUGH, DIM))).view()
    part, copies = rows[10:500], copies_in(rows)
    np.testing.assert_array_equal(copies_in(part).codes, copies.codes[10:500])
    np.testing.assert_array_equal(copies_in(rows[:7]).errors, copies.errors[:7])
    assert rows[np.arange(5)].copies is None
    assert rows[::2].copies is None


def test_a_graph_shares_the_copies_of_its_rows(rng: np.random.Generator) -> None:
    growing = grown(rng.standard_normal((ENOUGH, DIM)))
    rows = growing.view()
    copies = copies_in(rows)
    quantized = QuantizedRows(Quantizer(BYTES, copies.step, copies.origin), DIM)
    view = quantized.cover(rows)
    assert quantized.nbytes == 0
    assert np.shares_memory(view.copies, copies.codes)
    own = QuantizedRows(view.quantizer, DIM).cover(batch_of(rows.dense)).copies
    np.testing.assert_array_equal(view.copies, own)
    taken = quantized.take(np.arange(0, ENOUGH, 2))
    np.testing.assert_array_equal(taken.cover(rows[np.arange(0, ENOUGH, 2)]).copies, own[::2])
    # Rows whose step was chosen anew are copied, and shared again once it is the same.
    like = copies_of(rows.dense, Quantizer(BYTES, 2 * copies.step, 128))
    other = VectorBatch("dense", dense=rows.dense, norms=rows.norms, copies=like)
    np.testing.assert_array_equal(quantized.cover(other).copies, own)
    assert quantized.nbytes > 0
    assert np.shares_memory(quantized.cover(rows).copies, copies.codes)
    assert quantized.nbytes == 0


def test_a_graph_takes_other_bytes_where_those_of_scans_are_worse(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((ENOUGH, DIM)).astype(np.float32)
    groups, centres = rows[:640].reshape(10, 64, DIM), rows[:640:64]
    fine, coarser, rough = (
        copies_of(rows, Quantizer(BYTES, step, 128)) for step in (0.03, 0.1, 2.0)
    )
    for shared in (fine, coarser):  # others would be held beside them
        chosen = choose_quantizer(groups, centres, rows, shared)
        assert chosen == Quantizer(BYTES, shared.step, 128)
    for copies in (rough, None):
        chosen = choose_quantizer(groups, centres, rows, copies)
        assert chosen.kind in (BYTES, SHORTS)
        assert chosen.step != 2.0


@pytest.mark.parametrize("count", [600, 9000])
@pytest.mark.parametrize("keys_differ", [False, True])
def test_groups_are_those_of_equal_rows(
    keys_differ: bool, count: int, rng: np.random.Generator
) -> None:
    """Whether or not rows that are not equal have equal keys."""
    kinds = rng.standard_normal((40, 16)).astype(np.float32)
    kinds[20:] = kinds[:20]
    kinds[20:, :2] = kinds[:20, 1::-1]  # the same norms
    kinds[:, 5] = 0.0
    which = rng.integers(0, 40, count)
    dense = kinds[which]
    dense[rng.random(count) < 0.5, 5] = -0.0
    rows = batch_of(dense)
    keys = np.stack([which if keys_differ else which % 2] * 3, axis=1).astype(np.uint64)
    found = equal_groups(rows, np.arange(count), keys, more_than=8)
    expected = [np.flatnonzero(which == kind).tolist() for kind in range(40)]
    assert sorted(each.tolist() for each in found) == sorted(
        each for each in expected if len(each) > 8
    )


def distinct_sets(rng: np.random.Generator, count: int) -> VectorBatch:
    """Return sets of ten numbers each, no two equal: the same norm."""
    sets = [rng.choice(1000, 9, replace=False).tolist() for _ in range(count)]
    return batch_of(
        csr_of([dict.fromkeys([*one, 1000 + row], 1.0) for row, one in enumerate(sets)]), 1 << 20
    )


def test_equal_sparse_rows_are_grouped_without_keys(rng: np.random.Generator) -> None:
    rows = distinct_sets(rng, 30)[np.array([*range(30), 4, 7, 4])]
    found = equal_groups(rows, np.arange(1, len(rows)), more_than=1)
    assert sorted(each.tolist() for each in found) == [[4, 30, 32], [7, 31]]


def test_different_rows_of_one_norm_are_not_compared_one_by_one(rng: np.random.Generator) -> None:
    counts = []
    for count in (50, 500):
        rows = distinct_sets(rng, count)
        group = partial(equal_groups, rows, np.arange(count), more_than=1)
        assert group() == []
        counts.append(calls_of(group))
    assert counts[1] < 2 * counts[0]


@pytest.mark.parametrize("resumes_by", ["resume_copies", "append"])
def test_rows_that_came_while_copies_were_paused_are_copied_too(
    rng: np.random.Generator, resumes_by: str
) -> None:
    rows, paused = batch_of(rng.standard_normal((ENOUGH + 1, DIM))), threading.Event()
    growing = GrowingRows("dense", DIM, paused=paused)
    paused.set()
    growing.append(rows[:-1])
    before = growing.view()
    assert before.copies is None
    paused.clear()
    if resumes_by == "append":
        growing.append(rows[-1:])
    else:
        growing.resume_copies()
    check_bounds(growing.view(), rng)
    assert before.copies is None
