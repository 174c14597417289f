"""Linear SVMs on hashed data: ``python -m benchmarks.papers.hashed_svm --data DIR``.

[GMM] Figures 4-7 and [TGMM] §2.3: GCWS with b bits of i*, NRFF at the γ that is best for the RBF
kernel, and Nyström's features of both kernels, at equal numbers k of samples or features.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from benchmarks.harness.report import Table
from benchmarks.harness.timing import in_threads
from benchmarks.papers import approximation
from benchmarks.papers.approximation import MAX_LANDMARKS
from benchmarks.papers.kept import Kept, Key
from benchmarks.papers.labelled import Labelled, load, made
from benchmarks.papers.machines import Codes, Rows, accuracy
from benchmarks.papers.sheet import Options, Sheet, main, panels
from gcws_search.index.comparison.features import FeatureMap, FourierMap, NystroemMap, map_rows
from gcws_search.index.contracts.parameters import FourierParams, NystroemKind, NystroemParams
from gcws_search.index.hashing.gcws import ALGORITHM_VERSION, Gcws

SETS: Final = ("Letter", "Satimage", "Pendigits", "Splice", "Vowel")
SIZES: Final = (16, 64, 256, 1024, 4096)
QUICK_SIZES: Final = (32, 64)
COSTS: Final = (0.1, 1.0, 10.0, 100.0)
SWEPT: Final = 256
"""Up to this k every C is tried; above, the last best and the one below it: the more features, the
less C matters, and the less of it is wanted."""
REPEATS: Final = {16: 10, 64: 3}
"""How many seeds are averaged, by k; for others, where seeds differ little, there is one. At k = 16
the standard deviation of one seed is up to three points."""
BITS: Final = (1, 2, 4, 8)
NRFF, GMM_NYSTROEM, RBF_NYSTROEM = "NRFF", "GMM-NYS", "RBF-NYS"
METHODS: Final = (*(f"GCWS b={b}" for b in BITS), NRFF, GMM_NYSTROEM, RBF_NYSTROEM)
COLUMNS: Final = ("data", "k", *METHODS, "linear")
ORDERS: Final = (
    ("GCWS b=8", NRFF), ("GCWS b=4", NRFF), ("GCWS b=8", GMM_NYSTROEM),
    (GMM_NYSTROEM, RBF_NYSTROEM), (RBF_NYSTROEM, NRFF), ("GCWS b=4", "linear"),
)  # fmt: skip
"""(better, worse) as the papers have them."""

Maker = Callable[[int, int], tuple[Rows, Rows] | None]
"""Training and test rows of k features with a seed; None where there can be none."""


@dataclass(frozen=True, slots=True)
class Result:
    """Accuracies on one set, in per cent.

    Attributes
    ----------
    linear : float
        Of the raw unit rows.
    found : dict of (method, k) to float
    """

    data: Labelled
    linear: float
    found: dict[tuple[str, int], float] = field(default_factory=dict)

    def value(self, method: str, k: int) -> float | None:
        """Return an accuracy; the linear one whatever k is."""
        return self.linear if method == "linear" else self.found.get((method, k))


class Features:
    """What turns one set's rows into features, by method.

    Attributes
    ----------
    gamma : float
        That of the RBF kernel.
    """

    def __init__(self, data: Labelled) -> None:
        paper = data.published
        self.gamma = paper.gamma if paper is not None and paper.gamma is not None else 1.0
        self._batches = data.batches()
        self._width = self._batches[0].dense.shape[1]

    def maker(self, method: str) -> Maker:
        """Return the maker of a method's features."""
        if method.startswith("GCWS"):
            return partial(self._codes, int(method.partition("=")[2]))
        if method == NRFF:
            return self._fourier
        return partial(self._nystroem, "gmm_nystroem" if method == GMM_NYSTROEM else "rbf_nystroem")

    def _codes(self, b: int, k: int, seed: int) -> tuple[Rows, Rows]:
        family = Gcws(seed=seed, samples=k, dense_width=self._width)
        train, test = (family.sketch(batch).codes(b, k) for batch in self._batches)
        return Codes.of_both(train, test)

    def _fourier(self, k: int, seed: int) -> tuple[Rows, Rows]:
        params = FourierParams(kind="nrff", features=k, gamma=self.gamma, seed=seed)
        return self._mapped(FourierMap(params, self._width))

    def landmarks(self, kind: NystroemKind, k: int, seed: int) -> NystroemMap | None:
        """Return Nyström's map with k training rows as landmarks; None if that is impossible."""
        train = self._batches[0]
        if k > min(MAX_LANDMARKS, len(train)):
            return None
        params = NystroemParams(kind=kind, landmarks=k, gamma=self.gamma, seed=seed)
        rows = np.random.default_rng(seed).choice(len(train), k, replace=False)
        return NystroemMap(params, train[np.sort(rows)])

    def _nystroem(self, kind: NystroemKind, k: int, seed: int) -> tuple[Rows, Rows] | None:
        found = self.landmarks(kind, k, seed)
        return None if found is None else self._mapped(found)

    def _mapped(self, own_map: FeatureMap) -> tuple[Rows, Rows]:
        train, test = (map_rows(own_map, batch) for batch in self._batches)
        return train, test


class Sweep:
    """The accuracies of one method on one set, from small k to large.

    Parameters
    ----------
    data : Labelled
    kept : Kept
    name : str
        What stands for the method and its parameters.
    maker : Maker
    """

    def __init__(self, data: Labelled, kept: Kept, name: str, maker: Maker) -> None:
        self._data = data
        self._kept = kept
        self._name = name
        self._maker = maker
        self._best = COSTS[0]

    def at(self, k: int) -> float | None:
        """Return the mean accuracy over seeds at the best C; None without features."""
        if k <= SWEPT:
            costs: Sequence[float] = COSTS
            seeds = range(REPEATS.get(k, 1))
            found = np.array([self._seed(k, seed, costs) for seed in seeds])
        else:
            costs = [cost for cost in COSTS if self._best / 10 <= cost <= self._best]
            found = np.array([[each for cost in costs for each in self._seed(k, 0, [cost])]])
        if found.size == 0:
            return None
        means = found.mean(axis=0)
        self._best = costs[int(means.argmax())]
        return float(means.max())

    def _seed(self, k: int, seed: int, costs: Sequence[float]) -> list[float]:
        def measure() -> list[float]:
            rows = self._maker(k, seed)
            if rows is None:
                return []
            data, (train, test) = self._data, rows
            return [
                accuracy(train, data.train_labels, test, data.test_labels, cost=cost)
                for cost in costs
            ]

        key: Key = (self._data.name, self._data.preparation, self._name, k, seed, *costs)
        return self._kept.figures(key, measure)


def sweeps(data: Labelled, features: Features, kept: Kept) -> dict[str, Sweep]:
    """Return what measures each method on one set."""
    return {
        method: Sweep(data, kept, name, features.maker(method))
        for method in METHODS
        for name in [
            f"{method}, version {ALGORITHM_VERSION}"
            if method.startswith("GCWS")
            else f"{method}, γ = {features.gamma:g}"
        ]
    }


def raw(data: Labelled, kept: Kept) -> float:
    """Return the accuracy of the linear SVM of unit rows."""

    def measure() -> list[float]:
        train, test = data.unit()
        return [
            accuracy(train, data.train_labels, test, data.test_labels, cost=cost) for cost in COSTS
        ]

    return max(kept.figures((data.name, data.preparation, "linear", *COSTS), measure))


def accuracies(results: Sequence[Result], sizes: Sequence[int]) -> Table:
    """Return all accuracies, the best of each k in bold."""
    table = Table("hashed_svm", COLUMNS)
    for result in results:
        for k in sizes:
            values = [result.value(method, k) for method in METHODS]
            best = max(value for value in values if value is not None)
            cells = [
                "" if value is None else f"**{value:.2f}**" if value == best else f"{value:.2f}"
                for value in values
            ]
            table.add(result.data.name, f"{k}", *cells, f"{result.linear:.2f}")
    prepared = "; ".join(
        f"{result.data.name}: {result.data.preparation}, γ = "
        f"{result.data.published.gamma if result.data.published else 1:g}"
        for result in results
    )
    repeats = ", ".join(f"{seeds} seeds at k = {k}" for k, seeds in REPEATS.items())
    table.notes.append(
        "Accuracy in per cent on the test rows at the best C of "
        f"{', '.join(f'{cost:g}' for cost in COSTS)} (k above {SWEPT:,}: the C that was best "
        f"before, and a tenth of it); the mean of {repeats}, one above. "
        "Linear SVMs, one against the rest, squared hinge, no intercept: LIBLINEAR's objective. "
        "GCWS and Nyström of GMM see rows that are not normalised; the linear column unit rows. "
        "NRFF and RBF-NYS take the γ that the paper found best for the RBF kernel. "
        f"{prepared}. Nyström needs k rows to be landmarks, {MAX_LANDMARKS:,} here at most: "
        "taking more apart takes minutes."
    )
    return table


def orders(results: Sequence[Result], sizes: Sequence[int]) -> Table:
    """Return the difference of each pair of methods: positive if the papers' order holds."""
    table = Table(
        "hashed_svm order", ("data", "papers: better, worse", *(f"k = {k}" for k in sizes))
    )
    for result in results:
        for better, worse in ORDERS:
            cells = []
            for k in sizes:
                a, b = result.value(better, k), result.value(worse, k)
                cells.append("" if a is None or b is None else f"{a - b:+.2f}")
            table.add(result.data.name, f"{better} > {worse}", *cells)
    return table


def draw(axes: Axes, result: Result, sizes: Sequence[int]) -> None:
    """Draw accuracies against k."""
    for method in METHODS:
        known = [k for k in sizes if (method, k) in result.found]
        style = "--" if method.startswith("RBF") or method == NRFF else "-"
        values = [result.found[method, k] for k in known]
        axes.semilogx(known, values, style, marker="o", markersize=3, base=2, label=method)
    axes.axhline(result.linear, color="k", linewidth=0.8, label="linear, raw")
    axes.set(xlabel="k", ylabel="accuracy, %", title=result.data.name)
    axes.legend(fontsize=6)


def run(options: Options) -> Sheet:
    """Return accuracies on all sets."""
    sizes = QUICK_SIZES if options.quick else SIZES
    if options.data is None:
        sets = [made()]
    else:
        sets = [load(name, options.data) for name in (SETS[-1:] if options.quick else SETS)]
    kept = options.kept("hashed_svm")
    ordered = [Result(data, raw(data, kept)) for data in sets]
    features = [Features(data) for data in sets]
    every = [sweeps(data, maps, kept) for data, maps in zip(sets, features, strict=True)]
    for k in sizes:  # those that take longest last
        waiting = [(i, method) for i in range(len(sets)) for method in METHODS]

        def work(_: int, k: int = k, waiting: list[tuple[int, str]] = waiting) -> None:
            while waiting:
                i, method = waiting.pop()
                if (value := every[i][method].at(k)) is not None:
                    ordered[i].found[method, k] = value

        in_threads(work, options.threads)()
    figure, axes = panels(min(3, len(sets)), -(-len(sets) // 3))
    for panel, result in zip(axes, ordered, strict=False):
        draw(panel, result, sizes)
    for panel in axes[len(sets) :]:
        panel.set_axis_off()
    near = [
        line
        for data, maps in zip(sets, features, strict=True)
        for line in approximation.errors(data, maps.gamma, sizes, maps.landmarks, kept)
    ]
    tables = [accuracies(ordered, sizes), orders(ordered, sizes), approximation.table(near)]
    return Sheet("hashed_svm", "Linear SVMs on hashed data", figure, tables)


if __name__ == "__main__":
    main(run, "Accuracy of linear SVMs on hashed data.", needs_data=True)
