"""Speed of GCWS sketching, and datasketch: ``python -m benchmarks.library.sketch``."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from datasketch import WeightedMinHashGenerator

from benchmarks.harness.datasets import made
from benchmarks.harness.report import Table, arguments
from benchmarks.harness.timing import in_threads, interleaved, median_seconds
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import CollectionConfig
from gcws_search.index.hashing.gcws import Gcws
from gcws_search.index.vectors.space import VectorSpace

VECTORS: Final = 2048
RIVAL_VECTORS: Final = 100
RIVAL_SAMPLES: Final = 256
DIM: Final = 128
COLUMNS: Final = (
    "vectors", "samples", "threads", "ours, µs a vector", "ours, ns a (slot, sample) and core",
    "datasketch `minhash`, µs", "ratio", "`minhash_many`, µs", "ratio",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rival:
    """Seconds per vector of datasketch, called one by one and in bulk."""

    single: float
    bulk: float


def dense_batch(count: int) -> VectorBatch:
    """Return clustered, signed vectors of 128 non-zero coordinates."""
    space = VectorSpace.of(CollectionConfig(dim=DIM))
    return space.prepare(space.from_dense(made(rows=count)))


def wide_batch(count: int) -> VectorBatch:
    """Return signed vectors of 784 non-zero coordinates."""
    space = VectorSpace.of(CollectionConfig(dim=784))
    return space.prepare(space.from_dense(np.random.default_rng(1).standard_normal((count, 784))))


def sparse_batch(count: int, non_zeros: int) -> VectorBatch:
    """Return vectors of ``non_zeros`` random coordinates out of 2^31."""
    rng = np.random.default_rng(2)
    space = VectorSpace.of(CollectionConfig(dim=None))
    indices = np.concatenate(
        [rng.choice(2**31 - 1, non_zeros, replace=False, shuffle=False) for _ in range(count)]
    )
    values = rng.standard_t(3, count * non_zeros)
    return space.prepare(space.from_sparse(np.arange(count + 1) * non_zeros, indices, values))


def rival(samples: int) -> Rival:
    """Return datasketch's times on vectors of 128 non-zero coordinates."""
    vectors = np.abs(made(rows=RIVAL_VECTORS)).astype(np.float64)
    generator = WeightedMinHashGenerator(DIM, samples)
    single, bulk = interleaved(
        [
            lambda: [generator.minhash(vector) for vector in vectors],
            lambda: generator.minhash_many(vectors),
        ],
        repeats=3,
    )
    return Rival(single / len(vectors), bulk / len(vectors))


def measure(batch: VectorBatch, *, samples: int, threads: int) -> tuple[float, float]:
    """Return seconds a vector, and seconds a (non-zero slot, sample) and core.

    Every thread sketches the whole batch.
    """
    width = batch.dense.shape[1] if batch.form == "dense" else None
    hashes = Gcws(seed=0, samples=samples, dense_width=width)
    work = in_threads(lambda _: hashes.sketch(batch), threads)
    seconds = median_seconds(work, repeats=9)
    non_zeros = np.count_nonzero(batch.dense if batch.form == "dense" else batch.values)
    return seconds / len(batch) / threads, seconds / (non_zeros * samples)


def main() -> None:
    """Measure and print."""
    options = arguments("Speed of GCWS sketching.", data=False).parse_args()
    table = Table("sketch", COLUMNS)
    theirs = rival(RIVAL_SAMPLES)
    dense, sparse = dense_batch(VECTORS), sparse_batch(VECTORS // 4, 100)
    for name, batch, samples, threads in (
        ("dense, 128 non-zeros", dense, 256, 1),
        ("dense, 128 non-zeros", dense, 256, 2),
        ("the same, one at a time", dense[:1], 256, 1),
        ("dense, 784 non-zeros, one at a time", wide_batch(1), 128, 1),
        ("sparse, 45 non-zeros of 2³¹", sparse_batch(VECTORS // 4, 45), 128, 1),
        ("sparse, 100 non-zeros of 2³¹", sparse, 512, 1),
        ("sparse, 100 non-zeros of 2³¹", sparse, 512, 2),
    ):
        vector, draw = measure(batch, samples=samples, threads=threads)
        ours = (name, f"{samples}", f"{threads}", vector * 1e6, draw * 1e9)
        if samples == RIVAL_SAMPLES and threads == 1:
            ratios = [f"{seconds / vector:,.0f} ×" for seconds in (theirs.single, theirs.bulk)]
            table.add(*ours, theirs.single * 1e6, ratios[0], theirs.bulk * 1e6, ratios[1])
        else:
            table.add(*ours, "", "", "", "")
    table.notes.append(
        "datasketch is `WeightedMinHashGenerator(128, 256)` on the magnitudes: it takes no "
        "negative values, and only coordinates from 0 to a fixed dimension."
    )
    table.publish(options, threads="threads as stated")


if __name__ == "__main__":
    main()
