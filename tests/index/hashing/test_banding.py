"""Bands and codes: keys match as often as the S-curve says, and share prefixes of samples."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from gcws_search.index.backends import ExactBackend, GcwsBackend, make_backend
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    Encoding,
    ExactParams,
    GcwsParams,
)
from gcws_search.index.hashing.banding import BandPlan, match_probabilities
from gcws_search.index.hashing.gcws import Signatures
from tests.support.data import generated
from tests.support.data.adapters import (
    LARGE_DIM,
    batch_of,
    dense_of,
    full_sketch,
    prepared,
    space_of,
)
from tests.support.index.small_index import SmallIndex
from tests.support.reference import mathematics
from tests.support.statistics import assert_proportion

ENCODINGS: list[Encoding] = ["full", "zero_bit", "b_bit"]
DIM = 40


def signatures_of(rng: np.random.Generator, n: int, samples: int, *, slots: int = 3) -> Signatures:
    """Return random samples over few slots and levels, so that many agree."""
    return Signatures(
        rng.integers(0, slots, (n, samples)).astype(np.uint32),
        rng.integers(-1, 1, (n, samples)).astype(np.int32),
    )


def kept(signatures: Signatures, row: int, encoding: Encoding, bits: int) -> list[object]:
    """Return what the encoding keeps of each sample of a row."""
    slots: list[object] = signatures.slots[row].tolist()
    if encoding == "full":
        return list(zip(slots, signatures.levels[row].tolist(), strict=True))
    if encoding == "b_bit":
        return list(signatures.codes(bits, len(slots))[row])
    return slots


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("width", [1, 2, 7, 64])
def test_whole_keys_are_equal_exactly_when_all_samples_of_the_band_agree(
    rng: np.random.Generator, encoding: Encoding, width: int
) -> None:
    plan = BandPlan.of(GcwsParams(bands=5, band_width=width, encoding=encoding, bits=1))
    assert plan.samples == 5 * width
    signatures = signatures_of(rng, 60, plan.samples, slots=2 if width < 7 else 1)
    signatures.slots[30:] = signatures.slots[:30]
    signatures.slots[30:, ::3] += 2 * rng.integers(
        0, 2, (30, len(range(0, plan.samples, 3))), dtype=np.uint32
    )
    signatures.levels[30:] = signatures.levels[:30]
    keys = plan.keys(signatures)
    assert keys.shape == (60, 5)
    assert keys.dtype == np.uint64
    banding = mathematics.Banding(5, width)
    rows = [kept(signatures, i, encoding, 1) for i in range(60)]
    for i in range(60):
        for j in range(60):
            for band in range(5):
                agree = banding.share_prefix(rows[i], rows[j], band=band, depth=width)
                assert (keys[i, band] == keys[j, band]) == agree


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("bits", [1, 4, 8, 16])
def test_rows_that_share_samples_share_as_much_of_the_key(
    rng: np.random.Generator, encoding: Encoding, bits: int
) -> None:
    plan = BandPlan.of(GcwsParams(bands=3, encoding=encoding, bits=bits))
    assert plan.prefix
    assert plan.depths * plan.bits <= 64
    signatures = signatures_of(rng, 200, plan.samples)
    # The first half of the rows agree with row 0 for a while in every band.
    for row in range(1, 100):
        for band in range(3):
            start = band * plan.band_width
            same = slice(start, start + int(rng.integers(0, plan.band_width + 1)))
            signatures.slots[row, same] = signatures.slots[0, same]
            signatures.levels[row, same] = signatures.levels[0, same]
    keys = plan.keys(signatures)
    banding = mathematics.Banding(3, plan.band_width)
    rows = [kept(signatures, i, encoding, bits) for i in range(200)]
    for j in range(1, 200):
        for band in range(3):
            shared = 64 - int(keys[0, band] ^ keys[j, band]).bit_length()
            for depth in range(1, plan.depths + 1):
                samples = depth * plan.step
                if banding.share_prefix(rows[0], rows[j], band=band, depth=samples):
                    assert shared >= depth * plan.bits


def test_a_key_depends_on_its_own_band_alone(rng: np.random.Generator) -> None:
    for params in (GcwsParams(bands=4), GcwsParams(bands=4, band_width=3)):
        plan = BandPlan.of(params)
        before = signatures_of(rng, 10, plan.samples)
        keys = plan.keys(before)
        changed = Signatures(before.slots.copy(), before.levels.copy())
        changed.slots[:, plan.band_width : 2 * plan.band_width] += 17
        after = plan.keys(changed)
        assert np.all(keys[:, 1] != after[:, 1])
        np.testing.assert_array_equal(keys[:, [0, 2, 3]], after[:, [0, 2, 3]])


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_chance_matches_of_unrelated_vectors_are_independent_from_sample_to_sample(
    encoding: Encoding,
) -> None:
    """Vectors of one slot draw the same i* each time; their keys must part all the same."""
    rows = 500
    batch = prepared(space_of(None), [{i: 1.0} for i in range(rows)])
    plan = BandPlan.of(GcwsParams(bands=16, encoding=encoding))
    keys = plan.keys(full_sketch(batch, seed=3, samples=plan.samples))
    pairs = rows * (rows - 1) // 2 * 16
    for depth in (1, 2, 3):
        prefixes = keys >> np.uint64(64 - depth * plan.bits)
        matches = 0
        for band in range(16):
            _, sizes = np.unique(prefixes[:, band], return_counts=True)
            matches += int(np.sum(sizes * (sizes - 1) // 2))
        # Pairs that share a row are pairwise independent too: the bound is that of a binomial.
        assert_proportion(matches, pairs, plan.floor**depth)


@pytest.mark.parametrize(
    ("params", "depth", "expected"),
    [
        (GcwsParams(bands=4, band_width=3), 1, 0.5**3),
        (GcwsParams(bands=4), 3, (0.5 + 0.5 / 16) ** 3),
        (GcwsParams(bands=4, encoding="b_bit", bits=1), 3, 0.75**3),
    ],
)
def test_a_band_matches_if_all_samples_of_a_depth_do(
    params: GcwsParams, depth: int, expected: float
) -> None:
    (found,) = match_probabilities(BandPlan.of(params), np.array([0.5]), depth)
    assert found == pytest.approx(expected, rel=1e-12)


WIDTH = 24
Vector = dict[int, float]


def gcws(dim: int | None, params: GcwsParams, *, threads: int = 1) -> GcwsBackend:
    backend = make_backend(CollectionConfig(dim=dim, backend=params), threads=threads)
    assert isinstance(backend, GcwsBackend)
    return backend


def codes_of(backend: GcwsBackend, batch: VectorBatch) -> npt.NDArray[np.uint16]:
    codes = backend.sketch(batch, "b_bit")
    assert not isinstance(codes, Signatures)
    return codes


# --- codes and sketches ------------------------------------------------------------------------


@pytest.mark.parametrize("params", [GcwsParams(bands=5), GcwsParams(bands=3, band_width=3)])
def test_codes_are_the_same_dense_and_sparse_alone_and_in_a_batch_on_any_threads(
    rng: np.random.Generator, params: GcwsParams
) -> None:
    vectors = generated.mappings(rng, 700, WIDTH)
    expected = gcws(WIDTH, params).encode(batch_of(dense_of(vectors, WIDTH)))
    assert expected.shape == (700, params.bands)
    assert expected.dtype == np.uint64
    for threads in (1, 2, 3):
        for dim in (WIDTH, LARGE_DIM, None):
            backend = gcws(dim, params, threads=threads)
            stores_keys = dim == WIDTH or params.band_width is not None
            assert backend.code_width == (params.bands if stores_keys else 0)
            batch = prepared(space_of(dim), vectors)
            for some in (slice(None), slice(3, 4), slice(300, None), slice(0)):
                keys = backend.band_keys.keys(batch[some], params.bands)
                np.testing.assert_array_equal(keys, expected[some])
                stored = backend.encode(batch[some])
                np.testing.assert_array_equal(stored, keys[:, : backend.code_width])


def test_codes_differ_between_seeds_and_encodings(rng: np.random.Generator) -> None:
    batch = prepared(space_of(WIDTH), generated.mappings(rng, 20, WIDTH))
    encodings: tuple[Encoding, ...] = ("full", "zero_bit", "b_bit")
    codes = [
        gcws(WIDTH, GcwsParams(bands=4, seed=seed, encoding=encoding)).encode(batch)
        for seed in (0, 1, 2**40)
        for encoding in encodings
    ]
    for i, one in enumerate(codes):
        for other in codes[:i]:
            assert np.all(one != other)


@pytest.mark.parametrize("dim", [WIDTH, LARGE_DIM, None])
@pytest.mark.parametrize("params", [GcwsParams(bands=5), GcwsParams(bands=3, band_width=3)])
def test_a_sketch_shows_the_samples_that_are_banded(
    rng: np.random.Generator, dim: int | None, params: GcwsParams
) -> None:
    batch = prepared(space_of(dim), generated.mappings(rng, 30, WIDTH))
    backend = gcws(dim, params)
    full = backend.sketch(batch, "full")
    zero_bit = backend.sketch(batch, "zero_bit")
    assert isinstance(full, Signatures)
    assert isinstance(zero_bit, Signatures)
    assert full.slots.shape == full.levels.shape == (30, backend.plan.samples)
    expected = full_sketch(batch, seed=params.seed, samples=512)
    samples = backend.plan.samples
    np.testing.assert_array_equal(full.slots, expected.slots[:, :samples])
    np.testing.assert_array_equal(full.levels, expected.levels[:, :samples])
    np.testing.assert_array_equal(zero_bit.slots, full.slots)


PAIRS: dict[str, Callable[[np.random.Generator], npt.NDArray[np.float64]]] = {
    "signed": lambda rng: rng.standard_normal((2, 300)),
    "not negative": lambda rng: rng.gamma(1.0, size=(2, 300)),
    "few slots that win most": lambda rng: rng.gamma(1.0, size=(2, 300)) ** 12,
    "one slot each": lambda _: np.eye(2, 300),
}


@pytest.mark.parametrize("bits", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("name", PAIRS)
def test_codes_of_different_slots_are_equal_with_the_probability_of_their_bits(
    rng: np.random.Generator, name: str, bits: int
) -> None:
    rows: list[Vector] = [{i: float(x) for i, x in enumerate(row) if x} for row in PAIRS[name](rng)]
    batch = prepared(space_of(300), rows)
    hits = others = 0
    for seed in range(8):
        backend = gcws(300, GcwsParams(bands=256, bits=bits, seed=seed))
        codes, full = codes_of(backend, batch), backend.sketch(batch, "full")
        assert isinstance(full, Signatures)
        assert codes.dtype == np.uint16
        assert codes.max() < 2**bits
        equal, same = codes[0] == codes[1], full.slots[0] == full.slots[1]
        assert equal[same].all()
        hits, others = hits + int(equal[~same].sum()), others + int((~same).sum())
    assert others > 1000
    assert_proportion(hits, others, 2.0**-bits)


# --- figures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [WIDTH, None])
def test_memory_and_statistics_are_told(rng: np.random.Generator, dim: int | None) -> None:
    rows, _ = generated.clustered(rng, 3000, 1, dim=WIDTH)
    index = SmallIndex(CollectionConfig(dim=dim, backend=GcwsParams(bands=6))).add(rows)
    backend = index.backend
    assert isinstance(backend, GcwsBackend)
    if dim is None:
        assert backend.stats(index.state)["table_bytes"] == 0
        index.make_tables()
    held = backend.nbytes(index.state)
    assert held >= 12 * 3000 * 6
    figures = backend.stats(index.state)
    assert sum(figures["segments"]) == 3000
    assert 12 <= figures["bytes_per_item_and_table"] < 12.6
    exact = make_backend(CollectionConfig(dim=dim, backend=ExactParams()))
    assert isinstance(exact, ExactBackend)
    assert exact.nbytes(exact.empty()) == 0
