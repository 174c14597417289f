"""Random binning beside Fourier features: ``python -m benchmarks.papers.binning --data DIR``.

[RFF] §4; [POLYA] Theorems 7-8: both estimate the same product kernel k(x, y) = Π_d k(|x_d − y_d|),
binning with variance K(1 − K) a sample, Fourier with 1 + ½K(2x, 2y) − K², which is never less.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from benchmarks.harness.report import Table
from benchmarks.papers.labelled import Labelled, batch_of, load, made
from benchmarks.papers.machines import Codes, Rows, accuracy
from benchmarks.papers.sheet import Options, Sheet, main, panels
from gcws_search.index.comparison.random_binning import RandomBinning
from gcws_search.index.contracts.arrays import AnyArray, Float32s, Float64s, UInt32s
from gcws_search.index.contracts.batches import round_up
from gcws_search.index.contracts.parameters import Distribution, RandomBinningParams
from gcws_search.index.polya import pitches
from gcws_search.index.similarities import polya_kernel

FAMILIES: Final[tuple[tuple[Distribution, float], ...]] = (
    ("gamma", 2.0), ("nakagami", 2.5), ("weibull", 1.5), ("shifted_poisson", 1.0),
)  # fmt: skip
"""One of each family of [POLYA]; the first is the Laplace kernel."""
SETS: Final = ("Letter", "Covertype10k")
SIZES: Final = (16, 64, 256, 1024)
QUICK_SIZES: Final = (16, 64)
ROWS: Final = 400
"""Of the kernel matrices."""
QUICK_ROWS: Final = 60
REPEATS: Final = 60
QUICK_REPEATS: Final = 4
TEST_ROWS: Final = 5000
CODE_BITS: Final = 10
SCALES: Final = (0.125, 0.25, 0.5, 1.0)
"""Mean pitches that are tried, over the median L1 distance."""
COSTS: Final = (1.0, 10.0)
SWEPT: Final = 64
"""Up to this k every scale and C is tried; above, the last best ones."""
ERROR_COLUMNS: Final = (
    "data", "family", "k", "binning, law", "measured", "in σ", "Fourier, law", "measured",
    "in σ", "Fourier / binning",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Family:
    """A law of pitches, standardised to a mean.

    Attributes
    ----------
    scale : float
        The mean pitch.
    """

    distribution: Distribution
    shape: float
    scale: float

    @property
    def name(self) -> str:
        """The law and its shape."""
        return f"{self.distribution}({self.shape:g})"

    def kernel(self, rows: Float32s, *, stretch: float = 1.0) -> Float64s:
        """Return the exact kernel matrix of the rows times ``stretch``."""
        exact = polya_kernel(self.distribution, self.shape, self.scale / stretch)
        batch = batch_of(rows)
        return exact.scores(batch, batch)

    def estimate(self, method: str, rows: Float32s, k: int, seed: int) -> Float64s:
        """Return what k samples of one of the methods make of the kernel matrix."""
        if method == "binning":
            return collisions(self.bins(rows, k, seed))
        return products(self.cosines(rows, k, seed))

    def bins(self, rows: Float32s, k: int, seed: int) -> UInt32s:
        """Return the (n, k) samples of random binning."""
        params = RandomBinningParams(
            distribution=self.distribution, shape=self.shape, scale=self.scale, seed=seed
        )
        family = RandomBinning(params, samples=k, dense_width=round_up(rows.shape[1]))
        return family.sketch(batch_of(rows))[:, :k]

    def cosines(self, rows: Float32s, k: int, seed: int) -> Float32s:
        """Return the (n, k) random Fourier features of the same kernel.

        The triangle (1 − |r|/S)₊ is the characteristic function of X/S, X of Fejér's density, so a
        frequency is X/S with S a pitch, in every coordinate on its own.
        """
        rng = np.random.default_rng(seed)
        law = pitches(self.distribution, self.shape)
        count = rows.shape[1] * k
        widths = law.quantile(rng.random(count)) * (self.scale / law.mean)
        frequencies = (fejer(rng, count) / widths).reshape(rows.shape[1], k)
        angles = rows.astype(np.float64) @ frequencies + rng.uniform(0, 2 * np.pi, k)
        features: Float32s = (np.sqrt(2 / k) * np.cos(angles)).astype(np.float32)
        return features


@dataclass(frozen=True, slots=True)
class Curve:
    """One method's results on one set against k.

    Attributes
    ----------
    values : dict of k to float
    sigmas : dict of k to float
        How many standard errors a mean square is from its law, by the spread of its draws.
    """

    data: str
    family: str
    method: str
    values: dict[int, float] = field(default_factory=dict)
    sigmas: dict[int, float] = field(default_factory=dict)


def fejer(rng: np.random.Generator, count: int) -> Float64s:
    """Return draws of the density (sin(x/2)/(x/2))²/2π, by rejection under min(1, 4/x²)."""
    kept: list[Float64s] = []
    while sum(map(len, kept)) < count:
        uniform = rng.random(count)
        x = np.where(rng.random(count) < 0.5, 2 * uniform, 2 / (1 - uniform))
        half = np.maximum(x / 2, 1e-12)
        accepted = rng.random(count) * np.minimum(1, half**-2.0) < (np.sin(half) / half) ** 2
        kept.append(np.where(rng.random(count) < 0.5, x, -x)[accepted])
    return np.concatenate(kept)[:count]


def median_distance(rows: Float32s) -> float:
    """Return the median L1 distance of two rows."""
    some = rows[:500].astype(np.float64)
    return float(np.median([np.abs(some - row).sum(axis=1) for row in some[:200]]))


def frobenius(rows: Float32s, name: str, sizes: Sequence[int], repeats: int) -> list[Curve]:
    """Return relative Frobenius errors of kernel matrices, and what the laws say."""
    scale = 2 * median_distance(rows)
    curves = []
    for distribution, shape in FAMILIES:
        family = Family(distribution, shape, scale)
        exact, doubled = family.kernel(rows), family.kernel(rows, stretch=2)
        size = np.sqrt(np.sum(exact**2))
        variances = {"binning": exact * (1 - exact), "Fourier": 1 + doubled / 2 - exact**2}
        for method, variance in variances.items():
            law = Curve(name, family.name, f"{method}, law")
            found = Curve(name, family.name, method)
            for k in sizes:
                law.values[k] = float(np.sqrt(variance.sum() / k) / size)
                squares = np.array(
                    [
                        np.sum((family.estimate(method, rows, k, seed) - exact) ** 2)
                        for seed in range(repeats)
                    ]
                )
                found.values[k] = float(np.sqrt(squares.mean()) / size)
                error = squares.std(ddof=1) / np.sqrt(repeats)
                found.sigmas[k] = float((squares.mean() - variance.sum() / k) / error)
            curves += [law, found]
    return curves


def collisions(samples: AnyArray) -> Float64s:
    """Return the (n, n) shares of equal samples."""
    shares = np.empty((len(samples), len(samples)))
    for i, row in enumerate(samples):
        shares[i] = np.mean(samples == row, axis=1)
    return shares


def products(features: Float32s) -> Float64s:
    """Return the (n, n) inner products."""
    wide = features.astype(np.float64)
    inner: Float64s = wide @ wide.T
    return inner


def learned(data: Labelled, sizes: Sequence[int]) -> list[Curve]:
    """Return accuracies of linear SVMs on both kinds of features, at the best scale and C."""
    typical = median_distance(data.train)
    both = np.concatenate([data.train, data.test])
    curves = []
    for distribution, shape in FAMILIES:
        for method in ("binning", "Fourier"):
            curve = Curve(data.name, f"{distribution}({shape:g})", method)
            choices = [(scale * typical, cost) for scale in SCALES for cost in COSTS]
            for k in sizes:
                tried = []
                for scale, cost in choices:
                    rows = rows_of(Family(distribution, shape, scale), method, both, k)
                    train, test = split(rows, len(data.train))
                    value = accuracy(train, data.train_labels, test, data.test_labels, cost=cost)
                    tried.append((value, (scale, cost)))
                curve.values[k], best = max(tried)
                if k >= SWEPT:
                    choices = [best]
            curves.append(curve)
    return curves


def rows_of(family: Family, method: str, rows: Float32s, k: int) -> Rows:
    """Return rows as a linear SVM takes them; bins by the lowest bits of their hash."""
    if method == "Fourier":
        return family.cosines(rows, k, 0)
    codes = family.bins(rows, k, 0) & ((1 << CODE_BITS) - 1)
    return Codes(codes.astype(np.uint16), 1 << CODE_BITS)


def split(rows: Rows, train: int) -> tuple[Rows, Rows]:
    """Return the first rows and the others."""
    if isinstance(rows, Codes):
        return replace(rows, values=rows.values[:train]), replace(rows, values=rows.values[train:])
    return rows[:train], rows[train:]


def error_table(curves: Sequence[Curve], sizes: Sequence[int], *, rows: int, repeats: int) -> Table:
    """Return errors beside their laws."""
    table = Table("binning", ERROR_COLUMNS)
    for at in range(0, len(curves), 4):
        bin_law, bins, wave_law, waves = curves[at : at + 4]
        for k in sizes:
            table.add(
                bins.data,
                bins.family,
                f"{k}",
                f"{bin_law.values[k]:.4f}",
                f"{bins.values[k]:.4f}",
                f"{bins.sigmas[k]:+.1f}",
                f"{wave_law.values[k]:.4f}",
                f"{waves.values[k]:.4f}",
                f"{waves.sigmas[k]:+.1f}",
                f"{waves.values[k] / bins.values[k]:.2f} ×",
            )
    table.notes.append(
        f"‖K̂ − K‖_F/‖K‖_F of {rows} training rows, the root of the mean square over {repeats} "
        "draws, and how many standard errors the mean square is from its law; squares are skewed, "
        "so that this falls below −2 more often than above 2. Laws: √(Σ Var/k)/‖K‖_F with "
        "Var = K(1 − K) for binning and 1 + K(2x, 2y)/2 − K² for Fourier. The mean pitch is twice "
        "the median L1 distance."
    )
    return table


def accuracy_table(curves: Sequence[Curve], sizes: Sequence[int]) -> Table:
    """Return accuracies of both methods."""
    table = Table("binning accuracy", ("data", "family", "features", *(f"k = {k}" for k in sizes)))
    for curve in curves:
        cells = [f"{curve.values[k]:.2f}" for k in sizes]
        table.add(curve.data, curve.family, curve.method, *cells)
    table.notes.append(
        f"Accuracy of linear SVMs in per cent on test rows, {TEST_ROWS:,} at most. Mean pitch and "
        f"C: the best of {', '.join(f'{scale:g}' for scale in SCALES)} median L1 distances and "
        f"C = {', '.join(f'{cost:g}' for cost in COSTS)} up to k = {SWEPT}, above as there. "
        f"A binning sample is a one-hot of the lowest {CODE_BITS} bits of its hash."
    )
    return table


def draw_errors(axes: Axes, curves: Sequence[Curve], data: str) -> None:
    """Draw errors against k, the laws as lines."""
    names = [f"{distribution}({shape:g})" for distribution, shape in FAMILIES]
    for curve in curves:
        if curve.data != data:
            continue
        colour = f"C{names.index(curve.family)}"
        sizes, values = list(curve.values), list(curve.values.values())
        if curve.method.endswith("law"):
            axes.loglog(sizes, values, colour, linewidth=0.8)
        else:
            mark = "o" if curve.method == "binning" else "^"
            label = f"{curve.method}, {curve.family}"
            axes.loglog(sizes, values, colour + mark, markersize=4, label=label)
    axes.set(xlabel="k", ylabel="relative Frobenius error", title=f"{data}; lines: the laws")
    axes.legend(fontsize=6)


def draw_accuracies(axes: Axes, curves: Sequence[Curve], data: str) -> None:
    """Draw accuracies against k."""
    for i, curve in enumerate(curve for curve in curves if curve.data == data):
        style = "-" if curve.method == "binning" else "--"
        label = f"{curve.method}, {curve.family}"
        sizes, values = list(curve.values), list(curve.values.values())
        axes.semilogx(sizes, values, f"C{i // 2}{style}", base=2, marker=".", label=label)
    axes.set(xlabel="k", ylabel="accuracy, %", title=data)
    axes.legend(fontsize=6)


def shortened(data: Labelled) -> Labelled:
    """Return the set with its first test rows alone."""
    return replace(data, test=data.test[:TEST_ROWS], test_labels=data.test_labels[:TEST_ROWS])


def run(options: Options) -> Sheet:
    """Return errors and accuracies of both kinds of features."""
    sizes = QUICK_SIZES if options.quick else SIZES
    count, repeats = (QUICK_ROWS, QUICK_REPEATS) if options.quick else (ROWS, REPEATS)
    if options.data is None or options.quick:
        sets = [made()]
    else:
        sets = [shortened(load(name, options.data)) for name in SETS]
    errors = [
        curve for data in sets for curve in frobenius(data.train[:count], data.name, sizes, repeats)
    ]
    accuracies = [curve for data in sets for curve in learned(data, sizes)]
    figure, axes = panels(2, len(sets))
    for i, data in enumerate(sets):
        draw_errors(axes[2 * i], errors, data.name)
        draw_accuracies(axes[2 * i + 1], accuracies, data.name)
    tables = [
        error_table(errors, sizes, rows=count, repeats=repeats),
        accuracy_table(accuracies, sizes),
    ]
    return Sheet("binning", "Random binning and random Fourier features", figure, tables)


if __name__ == "__main__":
    main(run, "Errors and accuracy of random binning and random Fourier features.", needs_data=True)
