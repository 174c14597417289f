"""Tables: every row under its key, whatever the order and the sizes in which rows came."""

import threading
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st

from gcws_search.index.lsh.tables import MAX_SEGMENTS, Tables, TableSegment
from gcws_search.index.threads import StoppedError, Workers

Keys = npt.NDArray[np.uint64]
BANDS = 4
ONE_THREAD = Workers(1)


def keys_of(rng: np.random.Generator, n: int, *, bits: int = 64) -> Keys:
    """Return random keys; few ``bits`` make many of them equal."""
    low = rng.integers(0, 2**bits, (n, BANDS), dtype=np.uint64)
    return low << np.uint64(64 - bits) if bits < 64 else low


def grown(keys: Keys, sizes: list[int], workers: Workers = ONE_THREAD) -> Tables:
    """Return tables extended batch by batch."""
    tables = Tables.of(BANDS, ())
    first = 0
    for size in sizes:
        batch = keys[first : first + size]
        tables = tables.extend(batch, first, workers)
        first += len(batch)
    return tables


def contents(tables: Tables) -> list[list[tuple[int, int]]]:
    """Return for each table its (key, row) pairs in the order of keys, then rows."""
    return [
        sorted(
            (int(key), int(row))
            for segment in tables.segments
            for key, row in zip(segment.keys[band], segment.rows[band], strict=True)
        )
        for band in range(BANDS)
    ]


def truth(keys: Keys, rows: npt.NDArray[np.int64] | None = None) -> list[list[tuple[int, int]]]:
    numbers = np.arange(len(keys)) if rows is None else rows
    return [
        sorted((int(key), int(row)) for key, row in zip(keys[:, band], numbers, strict=True))
        for band in range(BANDS)
    ]


def assert_sorted(segments: tuple[TableSegment, ...]) -> None:
    """Fail unless keys rise, and rows rise under equal keys."""
    for segment in segments:
        for keys, rows in zip(segment.keys, segment.rows, strict=True):
            assert np.all(keys[1:] >= keys[:-1])
            equal = keys[1:] == keys[:-1]
            assert np.all(rows[1:][equal] > rows[:-1][equal])


@pytest.mark.parametrize("bits", [1, 5, 20, 64])
@pytest.mark.parametrize(
    "sizes", [[700], [1] * 40, [0, 5, 0, 600, 1, 94], [1, 2, 4, 8, 16, 32, 64, 128], [300, 30, 3]]
)
def test_every_row_is_under_its_key_in_every_table(
    rng: np.random.Generator, bits: int, sizes: list[int]
) -> None:
    keys = keys_of(rng, sum(sizes), bits=bits)
    tables = grown(keys, sizes)
    assert len(tables) == sum(sizes)
    assert contents(tables) == truth(keys)
    assert_sorted(tables.segments)


@given(
    st.lists(st.integers(0, 900), max_size=7),
    st.sampled_from([2, 64]),
    st.integers(0, 2**32 - 1),
)
def test_any_sizes_of_batches_give_the_same_tables(sizes: list[int], bits: int, seed: int) -> None:
    keys = keys_of(np.random.default_rng(seed), sum(sizes), bits=bits)
    tables = grown(keys, sizes)
    assert contents(tables) == truth(keys)
    assert_sorted(tables.segments)
    merged = tables.merged(ONE_THREAD)
    if merged is None:
        assert not sum(sizes)
        return
    whole = grown(keys, [sum(sizes)]).merged(ONE_THREAD)
    assert whole is not None
    np.testing.assert_array_equal(merged.keys, whole.keys)
    np.testing.assert_array_equal(merged.rows, whole.rows)


def test_keys_of_every_pattern_are_sorted() -> None:
    patterns = [0, 1, 2**11 - 1, 2**11, 2**22, 2**33 - 1, 2**44, 2**55, 2**63, 2**64 - 1]
    column = np.array(patterns[::-1] * 3, np.uint64)
    keys = np.stack([column, column[::-1], np.roll(column, 7), np.full_like(column, 2**63)], 1)
    tables = grown(keys, [len(keys)])
    assert contents(tables) == truth(keys)
    assert_sorted(tables.segments)


def test_tables_held_by_a_reader_do_not_change(rng: np.random.Generator) -> None:
    keys = keys_of(rng, 3000)
    held = []
    tables = Tables.of(BANDS, ())
    first = 0
    for size in (10, 500, 20, 1000, 5, 1465):
        tables = tables.extend(keys[first : first + size], first, ONE_THREAD)
        first += size
        held.append((tables, contents(tables)))
    tables.renumber(np.arange(len(keys), dtype=np.int64)[::1] - 1)
    for old, before in held:
        assert contents(old) == before


def test_many_small_batches_do_not_leave_many_segments(rng: np.random.Generator) -> None:
    keys = keys_of(rng, 6000)
    tables = grown(keys, [3] * 2000)
    # Full segments grow by a constant factor, so there are few of them.
    assert len(tables.segments) <= 2 * np.log2(6000)
    assert contents(tables) == truth(keys)


def batches(keys: Keys, size: int, max_merge_rows: int | None) -> list[Tables]:
    """Return the tables after each batch."""
    made = [Tables.of(BANDS, ())]
    for first in range(0, len(keys), size):
        batch = keys[first : first + size]
        made.append(made[-1].extend(batch, first, ONE_THREAD, max_merge_rows))
    return made[1:]


def test_a_write_merges_no_more_rows_than_it_may_and_the_background_the_rest(
    rng: np.random.Generator,
) -> None:
    keys = keys_of(rng, 12_000)
    for before, after in pairwise(batches(keys, 600, 2000)):
        known = {id(segment) for segment in before.segments}
        new = [segment for segment in after.segments if id(segment) not in known]
        assert len(new) == 1
        assert len(new[0]) <= 2000
    assert after.merge_is_due
    merged = after.with_due_merges(ONE_THREAD, threading.Event())
    assert not merged.merge_is_due
    assert contents(after) == contents(merged) == truth(keys)
    assert_sorted(merged.segments)
    assert not batches(keys, 600, None)[-1].merge_is_due


def test_merging_in_the_background_can_be_stopped(rng: np.random.Generator) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        batches(keys_of(rng, 6000), 600, 1000)[-1].with_due_merges(ONE_THREAD, stop)


@pytest.mark.parametrize("sizes", [[600] * 100, [600, 20] * 100])
def test_there_are_never_many_segments(sizes: list[int], rng: np.random.Generator) -> None:
    keys, tables, first, most = keys_of(rng, sum(sizes)), Tables.of(BANDS, ()), 0, 0
    for size in sizes:
        tables = tables.extend(keys[first : first + size], first, ONE_THREAD, 600)
        first += size
        most = max(most, len(tables.segments))
    assert MAX_SEGMENTS <= most <= MAX_SEGMENTS + 4
    assert contents(tables) == truth(keys)


@pytest.mark.parametrize("known", [600, 1800, 2000, 2100, 5400, 6000])
def test_tables_take_over_the_rows_that_came_since(known: int, rng: np.random.Generator) -> None:
    keys = keys_of(rng, 6000)
    later = batches(keys, 600, 2000)[-1]
    first = grown(keys[:known], [known])
    both = first.with_rows_after(later)
    assert both.segments[0] is first.segments[0]
    assert contents(both) == truth(keys)
    assert_sorted(both.segments)


def test_memory_is_12_bytes_a_row_and_table(rng: np.random.Generator) -> None:
    tables = grown(keys_of(rng, 5000), [1000] * 5)
    assert 12 * BANDS * 5000 <= tables.nbytes <= 12 * BANDS * 5000 * 1.05


@pytest.mark.parametrize("sizes", [[2000], [700, 650, 600, 50], [3] * 500])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.999, 1.0])
def test_renumbered_tables_hold_the_rows_that_stay_under_their_new_numbers(
    rng: np.random.Generator, sizes: list[int], share: float
) -> None:
    keys = keys_of(rng, sum(sizes), bits=9)
    stays = rng.random(len(keys)) < share
    new_rows = np.where(stays, np.cumsum(stays) - 1, -1).astype(np.int64)
    tables = grown(keys, sizes).renumber(new_rows)
    assert len(tables) == stays.sum()
    assert contents(tables) == truth(keys[stays])
    assert_sorted(tables.segments)
    more = keys_of(rng, 100, bits=9)
    tables = tables.extend(more, int(stays.sum()), ONE_THREAD)
    assert contents(tables) == truth(np.concatenate([keys[stays], more]))
    assert_sorted(tables.segments)


def test_threads_do_not_change_tables(rng: np.random.Generator) -> None:
    keys = keys_of(rng, 30_000)
    sizes = [20_000, 9_000, 1_000]
    one = grown(keys, sizes)
    for threads in (2, 3):
        many = grown(keys, sizes, Workers(threads))
        assert len(one.segments) == len(many.segments)
        for a, b in zip(one.segments, many.segments, strict=True):
            np.testing.assert_array_equal(a.keys, b.keys)
            np.testing.assert_array_equal(a.rows, b.rows)


def test_no_rows_at_all() -> None:
    tables = Tables.of(BANDS, ())
    assert len(tables) == tables.nbytes == 0
    assert tables.merged(ONE_THREAD) is None
    assert len(tables.renumber(np.zeros(0, np.int64))) == 0
    assert len(tables.extend(np.empty((0, BANDS), np.uint64), 0, ONE_THREAD)) == 0
