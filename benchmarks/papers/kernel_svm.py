"""Accuracy of SVMs, linear, RBF and GMM: ``python -m benchmarks.papers.kernel_svm --data DIR``.

[GMM] Tables 1 and 5, and Tables 1 and 2 of its first version. As there, the accuracy is that on the
test rows at the best γ and C, so the choice is slightly optimistic for every kernel alike.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, LinearSVC

from benchmarks.papers.labelled import SETS, Labelled, load, made, unit_rows
from benchmarks.papers.sheet import Options, Sheet, main, panels
from benchmarks.papers.sweep import Best, coarse_to_fine, exhaustive
from benchmarks.report import Table
from benchmarks.timing import in_threads
from index.arrays import Float32s, Float64s, Int64s
from index.similarity import gmm_matrix

COSTS: Final = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
GAMMAS: Final = (
    0.001, 0.01, *(round(0.1 * i, 1) for i in range(1, 21)), 2.5, *range(3, 21),
    *range(25, 55, 5), *range(60, 101, 10), 120, 150, 200, 300, 500, 1000,
)  # fmt: skip
FINE_COSTS: Final = tuple(10 ** (i / 4) for i in range(-8, 13))
"""Where rows are so few that accuracy jumps between powers of ten."""
RANDOM_SETS: Final = ("Vowel, halves", "Shuttle500")
SPLITS: Final = 10
FULL_GRID_ROWS: Final = 600
"""Up to so many training rows every (γ, C) is tried."""
LARGE_ROWS: Final = 9000
"""From so many training rows on, C is one of `LARGE_COSTS`: others were never the best."""
LARGE_COSTS: Final = (1.0, 10.0, 100.0)
CHUNK: Final = 256
COLUMNS: Final = (
    "data", "train / test", "rows of the GMM column", "linear, hinge", "linear, squared hinge",
    "paper", "RBF (γ, C)", "paper (γ)", "GMM (C)", "paper", "GMM on unit rows",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kernels:
    """Two kernel matrices, in buffers that are written anew for every γ.

    Attributes
    ----------
    train : (n, n) float64
        As libsvm takes it.
    test : (m, n) float64
    """

    train: Float64s
    test: Float64s

    @classmethod
    def for_set(cls, data: Labelled) -> "Kernels":
        """Return room for the kernels of one set."""
        n, m = len(data.train), len(data.test)
        return cls(np.empty((n, n)), np.empty((m, n)))

    def fill(self, part: Callable[[int, int, int], Float32s]) -> None:
        """Write what ``part(which, first row, last row)`` returns, a few rows at a time."""
        for which, out in enumerate((self.train, self.test)):
            for first in range(0, len(out), CHUNK):
                last = min(first + CHUNK, len(out))
                out[first:last] = part(which, first, last)

    def accuracy(self, data: Labelled, cost: float) -> float:
        """Return the accuracy of one-versus-one SVMs on the test rows, in per cent."""
        machine = SVC(C=cost, kernel="precomputed", cache_size=500)
        machine.fit(self.train, data.train_labels)
        return per_cent(machine.predict(self.test), data.test_labels)


@dataclass(frozen=True, slots=True)
class Result:
    """Accuracies of one set, in per cent, each at its best parameters."""

    data: Labelled
    hinge: Best
    squared_hinge: Best
    rbf: Best
    gmm: Best
    gmm_unit: Best


def per_cent(found: Int64s, true: Int64s) -> float:
    """Return the share of equal labels, in per cent."""
    return 100 * float(np.mean(found == true))


def linear(data: Labelled, cost: float, *, loss: str) -> float:
    """Return the accuracy of one-versus-rest linear SVMs on unit rows, in per cent."""
    train, test = data.unit()
    machine = LinearSVC(
        C=cost, loss=loss, fit_intercept=loss == "squared_hinge", max_iter=2000, random_state=0
    )
    machine.fit(train.astype(np.float64), data.train_labels)
    return per_cent(machine.predict(test.astype(np.float64)), data.test_labels)


def rbf(data: Labelled, kernels: Kernels, gammas: Sequence[float], costs: Sequence[float]) -> Best:
    """Return the best accuracy of the kernel e^{−γ(1−ρ)} on unit rows."""
    train, test = data.unit()

    def kernel(gamma: float, which: int, first: int, last: int) -> Float32s:
        cosines = (train, test)[which][first:last] @ train.T
        part: Float32s = np.exp(np.float32(gamma) * (cosines - np.float32(1)))
        return part

    def accuracies(gamma: float, some: Sequence[float]) -> list[float]:
        kernels.fill(partial(kernel, gamma))
        return [kernels.accuracy(data, cost) for cost in some]

    if len(data.train) <= FULL_GRID_ROWS:
        return exhaustive(accuracies, gammas, costs)
    published = data.published.gamma if data.published is not None else None
    return coarse_to_fine(accuracies, gammas, costs, start=published)


def gmm(data: Labelled, kernels: Kernels, costs: Sequence[float]) -> Best:
    """Return the best accuracy of the GMM kernel."""
    train, test = data.batches()

    def kernel(which: int, first: int, last: int) -> Float32s:
        return gmm_matrix((train, test)[which][first:last], train)

    kernels.fill(kernel)
    return Best.of((kernels.accuracy(data, cost), None, cost) for cost in costs)


def measure(data: Labelled, *, gammas: Sequence[float], costs: Sequence[float]) -> Result:
    """Return the accuracies of every kernel on one set."""
    kernels = Kernels.for_set(data)
    some = LARGE_COSTS if len(data.train) >= LARGE_ROWS else costs
    gmm_raw = gmm(data, kernels, gmm_costs(data, some))
    on_unit = Labelled(
        data.name, unit_rows(data.train), data.train_labels, unit_rows(data.test), data.test_labels
    )
    gmm_unit = gmm(on_unit, kernels, gmm_costs(data, some))
    best_rbf = rbf(data, kernels, gammas, some)
    hinge, squared = (
        Best.of((linear(data, cost, loss=loss), None, cost) for cost in costs)
        for loss in ("hinge", "squared_hinge")
    )
    return Result(data, hinge, squared, best_rbf, gmm_raw, gmm_unit)


def gmm_costs(data: Labelled, costs: Sequence[float]) -> Sequence[float]:
    """Return the values of C to be tried with GMM."""
    return FINE_COSTS if len(data.train) <= FULL_GRID_ROWS else costs


def spread(folder: Path) -> Table:
    """Return the accuracies of GMM over several random splits."""
    table = Table("kernel_svm splits", ("data", "GMM, mean", "sd", "least", "greatest", "paper"))
    for name in RANDOM_SETS:
        found = []
        for seed in range(SPLITS):
            data = load(name, folder, seed=seed)
            found.append(gmm(data, Kernels.for_set(data), FINE_COSTS).accuracy)
        paper = f"{data.published.gmm:.2f}" if data.published is not None else ""
        cells = (np.mean(found), np.std(found, ddof=1), min(found), max(found))
        table.add(name, *(f"{cell:.2f}" for cell in cells), paper)
    table.notes.append(f"{SPLITS} random splits of a set for which the papers name no split.")
    return table


def add_row(table: Table, result: Result) -> None:
    """Put one set's accuracies beside the published ones."""
    data, paper = result.data, result.data.published
    gamma = f" ({paper.gamma:g})" if paper is not None and paper.gamma is not None else ""
    table.add(
        data.name,
        f"{len(data.train):,} / {len(data.test):,}",
        data.preparation,
        f"{result.hinge.accuracy:.2f}",
        f"{result.squared_hinge.accuracy:.2f}",
        f"{paper.linear:.2f} ({paper.where})" if paper is not None else "",
        f"{result.rbf.accuracy:.2f} ({result.rbf.gamma:g}, {result.rbf.cost:g})",
        f"{paper.rbf:.2f}{gamma}" if paper is not None else "",
        f"**{result.gmm.accuracy:.2f}** ({result.gmm.cost:.3g})",
        f"{paper.gmm:.2f}" if paper is not None else "",
        f"{result.gmm_unit.accuracy:.2f}",
    )


def draw(axes: Axes, results: Sequence[Result]) -> None:
    """Draw ours as bars, and what the papers have as marks on them."""
    ours = [(r.squared_hinge.accuracy, r.rbf.accuracy, r.gmm.accuracy) for r in results]
    at = np.arange(len(results))
    for i, name in enumerate(("linear", "RBF", "GMM")):
        places = at + 0.27 * (i - 1)
        axes.bar(places, [row[i] for row in ours], 0.25, label=f"{name}, ours")
        for place, result in zip(places, results, strict=True):
            if (paper := result.data.published) is not None:
                value = (paper.linear, paper.rbf, paper.gmm)[i]
                axes.plot([place - 0.12, place + 0.12], [value, value], "k-", linewidth=2)
    axes.plot([], [], "k-", linewidth=2, label="published")
    axes.set_xticks(at, [r.data.name for r in results], rotation=25, ha="right", fontsize=8)
    axes.set(ylabel="accuracy on test rows, %", ylim=(25, 101))
    axes.legend(fontsize=8, ncols=2, loc="lower right")


def run(options: Options) -> Sheet:
    """Return accuracies of all sets."""
    gammas: Sequence[float] = GAMMAS
    costs: Sequence[float] = COSTS
    if options.quick:
        sets = [made()] if options.data is None else [load("Splice", options.data)]
        gammas, costs = (0.1, 1.0, 10.0), (1.0, 10.0)
    else:
        if options.data is None:
            raise ValueError(options.data)
        sets = [load(name, options.data) for name in SETS]
    results: dict[int, Result] = {}
    waiting = sorted(range(len(sets)), key=lambda i: len(sets[i].train))  # pop: the largest first

    def work(_: int) -> None:
        while waiting:
            i = waiting.pop()
            results[i] = measure(sets[i], gammas=gammas, costs=costs)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # LIBLINEAR at large C; see the note
        in_threads(work, options.threads)()
    table = Table("kernel_svm", COLUMNS)
    for i in range(len(sets)):
        add_row(table, results[i])
    table.notes.append(
        "Accuracy in per cent on the test rows, at the γ and C that are best on them, as in the "
        "papers. Linear and RBF on rows of unit L2 norm (after the mapping, where one is named); "
        "GMM on rows as named, not normalised, and in the last column on unit rows. Kernels: "
        "one-versus-one (libsvm, precomputed matrices); linear: one-versus-rest (LIBLINEAR), hinge "
        "without intercept and squared hinge with one, 2,000 passes at most. C from 0.01 to 1,000 "
        f"by tens (1 to 100 for {LARGE_ROWS:,} training rows or more; for GMM by quarters of a ten "
        f"up to {FULL_GRID_ROWS:,}). γ: the papers' grid of "
        f"{len(GAMMAS)} values, all of it up to {FULL_GRID_ROWS:,} training rows; above, every "
        "eighth value and the published one at C = 10, then the neighbours of the best, then every "
        "C for the best. A, B: the tables of Linearized GMM Kernels and of its first version."
    )
    figure, axes = panels(1)
    figure.set_size_inches(11, 4.5)
    draw(axes[0], [results[i] for i in range(len(sets))])
    tables = [table]
    if options.data is not None and not options.quick:
        tables.append(spread(options.data))
    return Sheet("kernel_svm", "Kernel SVMs", figure, tables)


if __name__ == "__main__":
    main(run, "Accuracy of linear, RBF and GMM SVMs.", needs_data=True)
