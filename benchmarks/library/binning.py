"""Speed of random binning beside GCWS sketching: ``python -m benchmarks.library.binning``."""

from typing import Final

import numpy as np

from benchmarks.harness.report import Table, arguments
from benchmarks.harness.timing import interleaved
from benchmarks.library.sketch import VECTORS, dense_batch, sparse_batch, wide_batch
from gcws_search.index.comparison.random_binning import RandomBinning
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import Distribution, RandomBinningParams
from gcws_search.index.hashing.gcws import Gcws

SAMPLES: Final = 512
COLUMNS: Final = (
    "vectors",
    "pitches",
    "binning, ns a (coordinate, sample)",
    "GCWS, ns a (slot, sample)",
    "ratio",
)


def measure(batch: VectorBatch, distribution: Distribution) -> tuple[float, float]:
    """Return nanoseconds per (non-zero coordinate, sample) of binning and of GCWS, one thread."""
    width = batch.dense.shape[1] if batch.form == "dense" else None
    params = RandomBinningParams(distribution=distribution)
    binning = RandomBinning(params, samples=SAMPLES, dense_width=width)
    gcws = Gcws(seed=0, samples=SAMPLES, dense_width=width)
    seconds = interleaved([lambda: binning.sketch(batch), lambda: gcws.sketch(batch)], repeats=9)
    draws = SAMPLES * np.count_nonzero(batch.dense if batch.form == "dense" else batch.values)
    ours, theirs = (each / draws * 1e9 for each in seconds)
    return ours, theirs


def main() -> None:
    """Measure and print."""
    options = arguments("Speed of random binning.", data=False).parse_args()
    table = Table("binning", COLUMNS)
    dense = dense_batch(VECTORS)
    distributions: tuple[Distribution, ...] = ("gamma", "chi", "shifted_poisson")
    for name, batch in (
        ("dense, 128 non-zeros", dense),
        ("the same, one at a time", dense[:1]),
        ("dense, 784 non-zeros", wide_batch(VECTORS // 8)),
        ("sparse, 20 non-zeros of 2³¹", sparse_batch(VECTORS // 4, 20)),
        ("sparse, 100 non-zeros of 2³¹", sparse_batch(VECTORS // 4, 100)),
    ):
        for distribution in distributions:
            ours, theirs = measure(batch, distribution)
            table.add(name, distribution, ours, theirs, f"{ours / theirs:.2f} ×")
    table.publish(options, threads="1 thread")


if __name__ == "__main__":
    main()
