"""All reproductions of papers, one after another: ``python -m benchmarks.papers --data DIR``."""

from collections.abc import Callable
from typing import Final

from benchmarks.papers import (
    binning,
    collisions,
    correlation,
    fourier,
    hashed_svm,
    kernel_svm,
    search,
)
from benchmarks.papers.sheet import Options, Sheet, main

EXPERIMENTS: Final[tuple[Callable[[Options], Sheet], ...]] = (
    collisions.run, fourier.run, correlation.run, kernel_svm.run, hashed_svm.run, binning.run,
    search.run,
)  # fmt: skip

if __name__ == "__main__":
    main(EXPERIMENTS, "Every experiment of the papers.", needs_data=True)
