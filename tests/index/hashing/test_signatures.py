"""GCWS: one vector has one signature, however it is sent and whichever kernel draws it."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.hashing.gcws import ALGORITHM_VERSION, Gcws
from tests.support.data.adapters import (
    LARGE_DIM,
    HashParameters,
    Sketch,
    batch_of,
    dense_of,
    full_sketch,
    hash_parameters,
    prepared,
    space_of,
)
from tests.support.data.generated import Floats
from tests.support.data.strategies import sparse_vectors
from tests.support.processes import run_python
from tests.support.reference import mathematics
from tests.support.reference.gcws import plain_arrivals, plain_sketch

Vector = dict[int, float]
DIM = 24


def dense(values: npt.ArrayLike) -> Vector:
    return mathematics.from_dense(np.asarray(values, np.float32).tolist())


def assert_same(a: Sketch, b: Sketch) -> None:
    np.testing.assert_array_equal(a.slots, b.slots, strict=True)
    np.testing.assert_array_equal(a.levels, b.levels, strict=True)


@given(st.lists(sparse_vectors(DIM), min_size=1, max_size=5))
def test_a_vector_has_one_signature_whether_sent_dense_or_sparse_in_any_space(
    rows: list[Vector],
) -> None:
    sent_dense = full_sketch(batch_of(dense_of(rows, DIM)), seed=9, samples=64)
    for dim in (DIM, 4096, LARGE_DIM, None):
        assert_same(full_sketch(prepared(space_of(dim), rows), seed=9, samples=64), sent_dense)


def test_parameters_are_made_of_the_samples_that_have_been_wanted(rng: np.random.Generator) -> None:
    """Whichever these were, the samples are the same."""
    rows = batch_of(rng.standard_normal((20, DIM)).astype(np.float32))
    whole = full_sketch(rows, seed=9, samples=64)
    for wanted in ([16, 64], [40, 64], [64, 16]):
        hash_ = Gcws(seed=9, samples=64, dense_width=rows.width)
        assert hash_.nbytes == 0
        most = 0
        for count in wanted:
            some, most = hash_.sketch(rows, count=count), max(most, count)
            np.testing.assert_array_equal(some.slots[:, :count], whole.slots[:, :count])
            np.testing.assert_array_equal(some.levels[:, :count], whole.levels[:, :count])
            assert hash_.nbytes == 2 * rows.width * -(-most // 16) * 16 * 4 * 4
    further = Gcws(seed=9, samples=64, dense_width=rows.width).sketch(rows, first=32, count=16)
    np.testing.assert_array_equal(further.slots, whole.slots[:, 32:48])


@pytest.mark.parametrize("dim", [DIM, LARGE_DIM, None])
def test_a_vector_has_one_signature_alone_and_in_any_batch(
    rng: np.random.Generator, dim: int | None
) -> None:
    rows = [
        {int(i): float(rng.standard_normal()) for i in rng.choice(DIM, rng.integers(1, 20), False)}
        for _ in range(300)
    ]
    batch = prepared(space_of(dim), rows)
    together = full_sketch(batch, seed=4, samples=96)
    for i in (0, 1, 150, 299):
        alone = full_sketch(prepared(space_of(dim), [rows[i]]), seed=4, samples=96)
        assert_same(alone, Sketch(together.slots[i : i + 1], together.levels[i : i + 1]))
    order = rng.permutation(300)
    permuted = full_sketch(batch[order.astype(np.int64)], seed=4, samples=96)
    assert_same(permuted, Sketch(together.slots[order], together.levels[order]))


@pytest.mark.parametrize("dim", [DIM, LARGE_DIM])
def test_any_run_of_samples_can_be_drawn_by_itself(rng: np.random.Generator, dim: int) -> None:
    batch = prepared(space_of(dim), [dense(row) for row in rng.standard_normal((5, DIM))])
    many = full_sketch(batch, seed=4, samples=1024)
    for samples in (16, 128, 512):
        few = full_sketch(batch, seed=4, samples=samples)
        assert_same(few, Sketch(many.slots[:, :samples], many.levels[:, :samples]))
    family = Gcws(seed=4, samples=1024, dense_width=32 if dim == DIM else None)
    for first, count in ((0, 16), (16, 32), (496, 512), (1008, 16)):
        run = slice(first, first + count)
        part = family.sketch(batch, first=first, count=count)
        assert_same(part, Sketch(many.slots[:, run], many.levels[:, run]))


DIGEST = """
import hashlib

from gcws_search.index.hashing.banding import BandPlan
from gcws_search.index.contracts.parameters import GcwsParams
from tests.support.data.adapters import LARGE_DIM, full_sketch, prepared, space_of

# Values of many sizes and either sign, exact in float32.
rows = [
    {(i + 3 * j) % 40: ((37 * i + 101 * j) % 997 - 498.5) * 2.0 ** (i % 40 - 20) for j in range(12)}
    for i in range(50)
]
digest = hashlib.sha256()
for dim in (40, LARGE_DIM, None):
    sketch = full_sketch(prepared(space_of(dim), rows), seed=123, samples=256)
    digest.update(sketch.slots.astype("<u4").tobytes())
    digest.update(sketch.levels.astype("<i4").tobytes())
    for encoding in ("full", "zero_bit", "b_bit"):
        for width in (None, 5):
            plan = BandPlan.of(GcwsParams(bands=8, band_width=width, encoding=encoding))
            digest.update(plan.keys(sketch).astype("<u8").tobytes())
print(digest.hexdigest())
"""
DIGESTS = {2: "8cbbdc66868be641bad6de326a6c8e67e63709648bc6ac6d6becb11c1fca6f98"}
"""What `DIGEST` prints, by algorithm version."""


def test_the_samples_and_keys_of_an_algorithm_version_never_change() -> None:
    """Stored codes are compared with queries hashed by later programs, on other machines."""
    assert run_python("-c", DIGEST).stdout.strip() == DIGESTS[ALGORITHM_VERSION]


# --- agreement with the slow truth -------------------------------------------------------------

ROUNDING = 2.0**-24


def agrees(u: Vector, sample: tuple[int, int], r: Vector, c: Vector, beta: Vector) -> bool:
    """Return whether a sample is the reference's, up to ties that float32 cannot tell apart.

    t = floor(L/r + β) takes a logarithm, 1/r, a product and a sum, each rounded: an error of at
    most 5 roundings of |L/r| + 1. a = log c - r(1 - β) - r·t likewise, with terms of at most
    |log c|, r and |L| + 2r.
    """

    def levels_of(slot: int) -> list[int]:
        draw = mathematics.gcws_draw(slot, u[slot], r[slot], c[slot], beta[slot])
        error = 5 * ROUNDING * (abs(math.log(u[slot])) / r[slot] + 1)
        position = math.log(u[slot]) / r[slot] + beta[slot]
        return sorted({draw.level, math.floor(position - error), math.floor(position + error)})

    def arrival(slot: int, level: int) -> float:
        return math.log(c[slot]) - r[slot] * (level + 1 - beta[slot])

    def error_of(slot: int) -> float:
        size = abs(math.log(c[slot])) + 4 * r[slot] + abs(math.log(u[slot]))
        return 6 * ROUNDING * size

    slot, level = sample
    if slot not in u or level not in levels_of(slot):
        return False
    mine = arrival(slot, level) - error_of(slot)
    return all(
        mine <= max(arrival(other, t) for t in levels_of(other)) + error_of(other) for other in u
    )


def parameters_of(parameters: HashParameters, slots: Sequence[int], sample: int) -> list[Vector]:
    return [
        {slot: float(values[slot, sample]) for slot in slots}
        for values in (parameters.r, parameters.c, parameters.beta)
    ]


@pytest.mark.parametrize("dim", [DIM, LARGE_DIM])
@settings(max_examples=25)
@given(entries=sparse_vectors(DIM))
def test_every_sample_is_the_references_up_to_rounding(dim: int, entries: Vector) -> None:
    samples = 32
    parameters = hash_parameters(seed=6, slots=2 * DIM, samples=samples)
    sketch = full_sketch(prepared(space_of(dim), [entries]), seed=6, samples=samples)
    expanded = mathematics.expand(entries)
    for j in range(samples):
        drawn = (int(sketch.slots[0, j]), int(sketch.levels[0, j]))
        assert agrees(expanded, drawn, *parameters_of(parameters, list(expanded), j))


def test_nearly_every_sample_of_ordinary_vectors_is_exactly_the_references(
    rng: np.random.Generator,
) -> None:
    samples, rows = 128, [dense(row) for row in rng.standard_normal((16, DIM))]
    parameters = hash_parameters(seed=6, slots=2 * DIM, samples=samples)
    sketch = full_sketch(prepared(space_of(DIM), rows), seed=6, samples=samples)
    wrong = 0
    for i, row in enumerate(rows):
        expanded = mathematics.expand(row)
        for j in range(samples):
            expected = mathematics.gcws_sample(
                expanded, *parameters_of(parameters, list(expanded), j)
            )
            wrong += expected != (int(sketch.slots[i, j]), int(sketch.levels[i, j]))
    # A float32 tie has a probability of about 1e-6 a slot and sample.
    assert wrong <= 2


# --- agreement with drawing everything ---------------------------------------------------------

MIN = float(np.finfo(np.float32).smallest_subnormal)


KINDS: dict[str, Callable[[np.random.Generator, int], npt.NDArray[np.floating]]] = {
    "ordinary": lambda rng, count: np.abs(rng.standard_t(3, count)),
    "equal": lambda _, count: np.ones(count),
    "few different": lambda rng, count: rng.integers(1, 4, count) * 1e30,
    "huge": lambda rng, count: 10.0 ** rng.uniform(28, 33, count),
    "subnormal": lambda rng, count: 10.0 ** rng.uniform(-44.5, -38, count),
    "of all sizes": lambda rng, count: 10.0 ** rng.uniform(-44.5, 33, count),
}


def magnitudes(kind: str, count: int, rng: np.random.Generator) -> Floats:
    values: Floats = np.maximum(KINDS[kind](rng, count), MIN).astype(np.float32)
    return values


def sparse_batch(kind: str, counts: list[int], rng: np.random.Generator) -> VectorBatch:
    slots = [np.sort(rng.choice(2**32 - 1, count, replace=False)) for count in counts]
    return VectorBatch(
        "sparse",
        indptr=np.cumsum([0, *counts]),
        slots=np.concatenate(slots).astype(np.uint32),
        values=magnitudes(kind, sum(counts), rng),
        norms=np.ones(len(counts), np.float32),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 1), (32, 6), (16, 8), (0, 9), (0, 16), (16, 64), (48, 128), (0, 500), (32, 992)],
)
def test_skipping_what_cannot_win_changes_no_sample(
    rng: np.random.Generator, kind: str, first: int, count: int
) -> None:
    counts = [1, 2, 3, 100, 23, 24, 25, 26, 31, 33, 45, 64, 100, 1, 300, 1000]
    batch = sparse_batch(kind, counts, rng)
    for seed in (0, 7, 2**62 + 5):
        family = Gcws(seed=seed, samples=1024, dense_width=None)
        mine = family.sketch(batch, first=first, count=count)
        plain = plain_sketch(batch, seed=seed, first=first, count=-(-count // 16) * 16)
        wanted = slice(count)  # of sixteens
        assert_same(
            Sketch(mine.slots[:, wanted], mine.levels[:, wanted]),
            Sketch(plain.slots[:, wanted], plain.levels[:, wanted]),
        )


def test_skipping_changes_no_sample_of_very_many_slots(rng: np.random.Generator) -> None:
    for kind in ("ordinary", "equal"):
        batch = sparse_batch(kind, [50_000], rng)
        mine = Gcws(seed=2, samples=64, dense_width=None).sketch(batch)
        assert_same(mine, plain_sketch(batch, seed=2, first=0, count=64))


def test_samples_whose_least_arrival_is_unusually_late_are_found_as_well(
    rng: np.random.Generator,
) -> None:
    batch = sparse_batch("ordinary", [60] * 40, rng)
    plain = plain_arrivals(batch, seed=3, first=0, count=512)
    totals = np.add.reduceat(batch.values, batch.indptr[:-1]).astype(np.float64)
    late = [np.exp(a.min(axis=0)) * total for (a, _), total in zip(plain, totals, strict=True)]
    assert np.sum(np.array(late) > 7) > 5
    mine = Gcws(seed=3, samples=512, dense_width=None).sketch(batch)
    assert_same(mine, plain_sketch(batch, seed=3, first=0, count=512))


def test_of_equal_arrivals_the_first_slot_wins(rng: np.random.Generator) -> None:
    # Numbers near log 1e34 are 2^-17 apart in float32: a few samples in 10^6 have a tie.
    batch = sparse_batch("equal", [26] * 1600, rng)
    batch.values[:] = 1e34
    tied = sum(
        int(np.sum(np.sum(a == a.min(axis=0), axis=0) > 1))
        for a, _ in plain_arrivals(batch, seed=6, first=0, count=512)
    )
    assert tied > 1
    mine = Gcws(seed=6, samples=512, dense_width=None).sketch(batch)
    assert_same(mine, plain_sketch(batch, seed=6, first=0, count=512))


@pytest.mark.parametrize("width", [48, 208])  # the latter in parts
@pytest.mark.parametrize("kind", ["ordinary", "few different", "of all sizes"])
def test_stored_parameters_give_the_samples_of_drawing_everything(
    rng: np.random.Generator, kind: str, width: int
) -> None:
    rows = magnitudes(kind, 20 * width, rng).reshape(20, width)
    rows *= rng.choice([-1, 0, 1], (20, width))
    rows[:, 5] = 1.0
    rows[7, 40:160] = 0.0
    batch = VectorBatch("dense", dense=rows.astype(np.float32), norms=np.ones(20, np.float32))
    family = Gcws(seed=8, samples=128, dense_width=width)
    for first, count in ((0, 128), (32, 16)):
        mine = family.sketch(batch, first=first, count=count)
        assert_same(mine, plain_sketch(batch, seed=8, first=first, count=count))
