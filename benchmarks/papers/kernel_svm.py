"""Accuracy of SVMs, linear, RBF and GMM: ``python -m benchmarks.papers.kernel_svm --data DIR``.

[GMM] Tables 1 and 5, and Tables 1 and 2 of its first version. As there, the accuracy is that on the
test rows at the best γ and C, so the choice is slightly optimistic for every kernel alike.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, LinearSVC

from benchmarks.harness.report import Table
from benchmarks.harness.timing import in_threads
from benchmarks.papers.kept import Kept, Key
from benchmarks.papers.labelled import SETS, Labelled, load, made, unit_rows
from benchmarks.papers.sheet import Options, Sheet, main, panels
from benchmarks.papers.sweep import Best, coarse_to_fine, exhaustive
from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s
from gcws_search.index.similarities import gmm_matrix

COSTS: Final = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
GAMMAS: Final = (
    0.001, 0.01, *(round(0.1 * i, 1) for i in range(1, 21)), 2.5, *range(3, 21),
    *range(25, 55, 5), *range(60, 101, 10), 120, 150, 200, 300, 500, 1000,
)  # fmt: skip
FINE_COSTS: Final = tuple(10 ** (i / 4) for i in range(-8, 13))
"""Where rows are so few that accuracy jumps between powers of ten."""
RANDOM_SETS: Final = ("Vowel, halves", "Shuttle500")
SPLITS: Final = 10
FEW_ROWS: Final = 600
"""Up to so many training rows C takes the values of `FINE_COSTS` for GMM."""
FULL_GRID_ROWS: Final = 1000
"""Up to so many training rows every (γ, C) is tried."""
CHUNK: Final = 512
PASSES: Final = 2000
COLUMNS: Final = (
    "data", "train / test", "rows of the GMM column", "linear, hinge", "linear, squared hinge",
    "paper", "RBF (γ, C)", "paper (γ)", "GMM (C)", "paper", "GMM on unit rows",
)  # fmt: skip

Part: TypeAlias = Callable[[int, int, int], Float32s]
"""``part(which, first, last)``: kernel values of some rows and all training rows; ``which`` is 0
for rows of training, 1 for those of the test."""


def accuracies(data: Labelled, part: Part, costs: Sequence[float]) -> list[float]:
    """Return the accuracies of one-versus-one SVMs on the test rows, in per cent, at each C."""
    n, m = len(data.train), len(data.test)
    kernel = np.empty((n, n))
    for first in range(0, n, CHUNK):
        last = min(first + CHUNK, n)
        kernel[first:last] = part(0, first, last)
    machines = [
        SVC(C=cost, kernel="precomputed", cache_size=500).fit(kernel, data.train_labels)
        for cost in costs
    ]
    right = np.zeros(len(costs), np.int64)
    for first in range(0, m, CHUNK):
        last = min(first + CHUNK, m)
        values = part(1, first, last).astype(np.float64)
        for i, machine in enumerate(machines):
            right[i] += np.sum(voted(machine, values) == data.test_labels[first:last])
    return [100 * float(count) / m for count in right]


def voted(machine: SVC, values: Float64s) -> Int64s:
    """Return what ``machine.predict`` does, several times as fast: all pairs' sums by one product.

    Parameters
    ----------
    machine : SVC
        Of a precomputed kernel, fitted.
    values : (m, n) float64
        Kernel values with all training rows.
    """
    ends = np.append(0, machine.n_support_.cumsum())
    classes, held = len(ends) - 1, values[:, machine.support_]
    # Row j of dual_coef_ has a class's multipliers against its j-th opponent, itself left out.
    sums = [
        held[:, ends[c] : ends[c + 1]] @ machine.dual_coef_[:, ends[c] : ends[c + 1]].T
        for c in range(classes)
    ]
    if classes == 2:  # of two classes the second is the positive one
        wins = sums[0][:, 0] + sums[1][:, 0] + machine.intercept_[0] > 0
        return np.asarray(machine.classes_[wins.astype(np.int64)])
    votes = np.zeros((len(values), classes), np.int64)
    for number, (a, b) in enumerate(combinations(range(classes), 2)):
        first = sums[a][:, b - 1] + sums[b][:, a] + machine.intercept_[number] > 0
        votes[:, a] += first
        votes[:, b] += ~first
    return np.asarray(machine.classes_[votes.argmax(axis=1)])


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


def linear_accuracy(data: Labelled, cost: float, *, loss: str) -> float:
    """Return the accuracy of one-versus-rest linear SVMs on unit rows, in per cent."""
    train, test = data.unit()
    machine = LinearSVC(
        C=cost,
        loss=loss,
        dual=loss == "hinge",
        fit_intercept=loss == "squared_hinge",
        max_iter=PASSES,
        random_state=0,
    )
    machine.fit(train.astype(np.float64), data.train_labels)
    return per_cent(machine.predict(test.astype(np.float64)), data.test_labels)


def rbf(data: Labelled, kept: Kept, gammas: Sequence[float], costs: Sequence[float]) -> Best:
    """Return the best accuracy of the kernel e^{−γ(1−ρ)} on unit rows."""
    units = data.unit()

    def part(gamma: float, which: int, first: int, last: int) -> Float32s:
        cosines = units[which][first:last] @ units[0].T
        values: Float32s = np.exp(np.float32(gamma) * (cosines - np.float32(1)))
        return values

    def at(gamma: float, some: Sequence[float]) -> list[float]:
        key: Key = (data.name, "RBF", gamma, *some)
        return kept.figures(key, lambda: accuracies(data, partial(part, gamma), some))

    if len(data.train) <= FULL_GRID_ROWS:
        return exhaustive(at, gammas, costs)
    published = data.published.gamma if data.published is not None else None
    return coarse_to_fine(at, gammas, costs, start=published)


def gmm(data: Labelled, kept: Kept, costs: Sequence[float], *, split: int = 0) -> Best:
    """Return the best accuracy of the GMM kernel."""
    batches = data.batches()

    def part(which: int, first: int, last: int) -> Float32s:
        return gmm_matrix(batches[which][first:last], batches[0])

    key: Key = (data.name, "GMM", data.preparation, split, *costs)
    found = kept.figures(key, lambda: accuracies(data, part, costs))
    return Best.of(zip(found, [None] * len(costs), costs, strict=True))


def linear(data: Labelled, kept: Kept, costs: Sequence[float], *, loss: str) -> Best:
    """Return the best accuracy of one-versus-rest linear SVMs on unit rows."""

    def at(cost: float) -> list[float]:
        return [linear_accuracy(data, cost, loss=loss)]

    return Best.of(
        (kept.figures((data.name, "linear", loss, cost), partial(at, cost))[0], None, cost)
        for cost in costs
    )


def measure(
    data: Labelled, kept: Kept, *, gammas: Sequence[float], costs: Sequence[float]
) -> Result:
    """Return the accuracies of every kernel on one set."""
    on_unit = replace(
        data,
        train=unit_rows(data.train),
        test=unit_rows(data.test),
        preparation=f"{data.preparation}, unit rows",
    )
    return Result(
        data,
        gmm=gmm(data, kept, gmm_costs(data, costs)),
        gmm_unit=gmm(on_unit, kept, gmm_costs(data, costs)),
        rbf=rbf(data, kept, gammas, costs),
        hinge=linear(data, kept, costs, loss="hinge"),
        squared_hinge=linear(data, kept, costs, loss="squared_hinge"),
    )


def gmm_costs(data: Labelled, costs: Sequence[float]) -> Sequence[float]:
    """Return the values of C to be tried with GMM."""
    return FINE_COSTS if len(data.train) <= FEW_ROWS else costs


def spread(folder: Path, kept: Kept) -> Table:
    """Return the accuracies of GMM over several random splits."""
    table = Table("kernel_svm splits", ("data", "GMM, mean", "sd", "least", "greatest", "paper"))
    for name in RANDOM_SETS:
        found = []
        for seed in range(SPLITS):
            data = load(name, folder, seed=seed)
            found.append(gmm(data, kept, FINE_COSTS, split=seed).accuracy)
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
    kept = options.kept("kernel_svm")
    results: dict[int, Result] = {}
    waiting = sorted(range(len(sets)), key=lambda i: -len(sets[i].train))  # pop: the smallest first

    def work(_: int) -> None:
        while waiting:
            i = waiting.pop()
            results[i] = measure(sets[i], kept, gammas=gammas, costs=costs)

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
        f"without intercept and squared hinge with one, {PASSES:,} passes at most. C from 0.01 to "
        f"1,000 by tens (for GMM by quarters of a ten up to {FEW_ROWS:,} training rows). γ: the "
        f"papers' grid of {len(GAMMAS)} values, all of it up to {FULL_GRID_ROWS:,} training rows; "
        "above, every eighth value and the published one at C = 10, then the neighbours of the "
        "best, then every C for the best. A, B: the tables of Linearized GMM Kernels and of its "
        "first version."
    )
    figure, axes = panels(1)
    figure.set_size_inches(11, 4.5)
    draw(axes[0], [results[i] for i in range(len(sets))])
    tables = [table]
    if options.data is not None and not options.quick:
        tables.append(spread(options.data, kept))
    return Sheet("kernel_svm", "Kernel SVMs", figure, tables)


if __name__ == "__main__":
    main(run, "Accuracy of linear, RBF and GMM SVMs.", needs_data=True)
