"""Error of k features as an approximation of the kernel matrix.

Samples and projections by their laws, for any data; Nyström, which has none, as measured.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from benchmarks.harness.report import Table
from benchmarks.papers.kept import Kept, Key
from benchmarks.papers.labelled import Labelled, batch_of
from benchmarks.papers.laws import normalised_variance
from gcws_search.index.comparison.features import NystroemMap, map_rows
from gcws_search.index.contracts.arrays import Float64s
from gcws_search.index.contracts.parameters import NystroemKind
from gcws_search.index.similarities import GMM, rbf_kernel

ROWS: Final = 500
"""Test rows whose kernel values with each other are looked at."""
MAX_LANDMARKS: Final = 1024
COLUMNS: Final = ("data", "k", "GMM: GCWS, law", "GMM-NYS", "RBF: NRFF, law", "RBF-NYS")

Landmarks = Callable[[NystroemKind, int, int], NystroemMap | None]
"""Nyström's map of a kind, with k training rows for landmarks, by a seed."""


def errors(
    data: Labelled, gamma: float, sizes: Sequence[int], landmarks: Landmarks, kept: Kept
) -> list[list[str]]:
    """Return lines of ‖K̂ − K‖_F/‖K‖_F, without the diagonal, of GMM and of RBF."""
    chosen = np.random.default_rng(0).permutation(len(data.test))[:ROWS]
    batch = batch_of(data.test[np.sort(chosen)])
    different = ~np.eye(len(batch), dtype=np.bool_)
    gmm = GMM.scores(batch, batch)[different]
    rbf = rbf_kernel(gamma).scores(batch, batch)[different]

    def measured(kind: NystroemKind, k: int, values: Float64s) -> str:
        def measure() -> list[float]:
            found = landmarks(kind, k, 0)
            if found is None:
                return []
            features = map_rows(found, batch)
            return [float(np.linalg.norm((features @ features.T)[different] - values))]

        key: Key = (data.name, data.preparation, "error", kind, gamma, k)
        return "".join(
            f"{error / np.linalg.norm(values):.4f}" for error in kept.figures(key, measure)
        )

    def law(variance: Float64s, k: int, values: Float64s) -> str:
        return f"{np.sqrt(variance.sum() / k) / np.linalg.norm(values):.4f}"

    return [
        [
            data.name,
            f"{k}",
            law(gmm * (1 - gmm), k, gmm),
            measured("gmm_nystroem", k, gmm),
            law(np.asarray(normalised_variance(rbf)), k, rbf),
            measured("rbf_nystroem", k, rbf),
        ]
        for k in sizes
    ]


def table(lines: Sequence[Sequence[str]]) -> Table:
    """Return the lines of all sets as a table."""
    made = Table("hashed_svm errors", COLUMNS, rows=list(lines))
    made.notes.append(
        f"‖K̂ − K‖_F/‖K‖_F over pairs of {ROWS} test rows: GCWS by GMM(1 − GMM)/k (full samples), "
        f"NRFF by V_n/k, Nyström measured, with landmarks out of the training rows."
    )
    return made
