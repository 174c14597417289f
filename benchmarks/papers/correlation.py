"""GMM as an estimator of correlation: ``python -m benchmarks.papers.correlation``.

[TGMM] P. Li, C.-H. Zhang, *Theory of the GMM Kernel* (WWW 2017): the limit f_∞, the asymptotic
variance, and ρ̂_g beside the cosine for heavy-tailed data.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from benchmarks.harness.report import Table
from benchmarks.papers.correlation_theory import (
    asymptotic_variance,
    correlation_variance,
    gmm_limit,
)
from benchmarks.papers.labelled import batch_of
from benchmarks.papers.sheet import Options, Sheet, main, panels
from gcws_search.index.contracts.arrays import Float64s
from gcws_search.index.similarities import correlation_from_gmm, gmm

LENGTH: Final = 1000
REPEATS: Final = 4000
QUICK_REPEATS: Final = 20
LONG: Final = 20_000
LONG_REPEATS: Final = 100
FREEDOMS: Final = (2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, math.inf)
RHOS: Final = (0.0, 0.5, 0.8, 0.95)
SCALES: Final = ((0.5, 1.0), (0.8, 1.0), (0.8, 2.0), (0.5, 3.0), (-0.3, 1.5), (-0.9, 1.0))
COLUMNS: Final = (
    "ν", "ρ", "f_∞", "mean GMM", "n·Var(GMM), law", "measured", "n·MSE(ρ̂_g), law", "measured",
    "n·MSE(cosine), law", "measured", "ratio to cosine",
)  # fmt: skip
LIMIT_COLUMNS: Final = (
    "ρ", "σ", "f_∞", "mean GMM", "in σ", "n·Var(GMM), law", "measured",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trial:
    """GMM and cosine of many pairs of vectors of one law.

    Attributes
    ----------
    freedom, rho : float
        ν of the t-distribution, and its correlation.
    length : int
        n, coordinates of a vector.
    scores, cosines : (repeats,) float64
    """

    freedom: float
    rho: float
    length: int
    scores: Float64s
    cosines: Float64s

    @classmethod
    def drawn(
        cls, freedom: float, rho: float, *, repeats: int, length: int, sigma: float = 1.0
    ) -> "Trial":
        """Return the values of this number of pairs; σ is the ratio of their scales."""
        rng = np.random.default_rng(round(100 * min(freedom, 1e4)) + round(1000 * (rho + sigma)))
        scores, cosines = np.empty(repeats), np.empty(repeats)
        for i in range(repeats):
            x, w = rng.standard_normal((2, length))
            pair = np.stack([x, sigma * (rho * x + math.sqrt(1 - rho**2) * w)])
            if math.isfinite(freedom):
                pair /= np.sqrt(rng.chisquare(freedom, length) / freedom)
            batch = batch_of(pair.astype(np.float32))
            scores[i] = gmm(batch[:1], batch[1:])
            cosines[i] = pair[0] @ pair[1] / np.sqrt((pair[0] @ pair[0]) * (pair[1] @ pair[1]))
        return cls(freedom, rho, length, scores, cosines)

    @property
    def robust_error(self) -> float:
        """n·MSE of ρ̂_g."""
        found = np.array([correlation_from_gmm(score) for score in self.scores])
        return self.length * float(np.mean((found - self.rho) ** 2))

    @property
    def cosine_error(self) -> float:
        """n·MSE of the cosine."""
        return self.length * float(np.mean((self.cosines - self.rho) ** 2))


def cosine_variance(rho: float, freedom: float) -> float:
    """Return the limit of n·Var(cosine): (1 − ρ²)²·(ν − 2)/(ν − 4), infinite up to ν = 4."""
    heavy = 1.0 if math.isinf(freedom) else (freedom - 2) / (freedom - 4) if freedom > 4 else 0.0
    return (1 - rho**2) ** 2 * heavy if heavy else math.inf


def crossing(rho: float) -> float:
    """Return the ν at which ρ̂_g and the cosine have the same asymptotic variance."""
    low, high = 4.001, 1000.0
    for _ in range(80):
        middle = (low + high) / 2
        robust = correlation_variance(rho, degrees_of_freedom=middle)
        low, high = (middle, high) if robust < cosine_variance(rho, middle) else (low, middle)
    return low


def named(freedom: float) -> str:
    """Return ν, or that the law is normal."""
    return f"{freedom:g}" if math.isfinite(freedom) else "normal"


def tail_table(trials: list[Trial]) -> Table:
    """Return the errors of both estimators, with their laws."""
    table = Table("correlation", COLUMNS)
    for trial in trials:
        law = asymptotic_variance(trial.rho, degrees_of_freedom=trial.freedom)
        cosine = cosine_variance(trial.rho, trial.freedom)
        table.add(
            named(trial.freedom),
            f"{trial.rho:g}",
            f"{gmm_limit(trial.rho):.4f}",
            f"{trial.scores.mean():.4f}",
            f"{law:.4f}",
            f"{trial.length * trial.scores.var(ddof=1):.4f}",
            f"{correlation_variance(trial.rho, degrees_of_freedom=trial.freedom):.4f}",
            f"{trial.robust_error:.4f}",
            f"{cosine:.4f}" if math.isfinite(cosine) else "∞",
            f"{trial.cosine_error:.4f}",
            f"{trial.robust_error / trial.cosine_error:.3f}",
        )
    repeats = len(trials[0].scores)
    equal = ", ".join(f"{crossing(rho):.2f} (ρ = {rho:g})" for rho in RHOS)
    table.notes.append(
        f"{repeats:,} pairs of n = {LENGTH:,} coordinates each; the relative standard error of a "
        f"variance is {math.sqrt(2 / repeats):.1%} under normal errors and more for small ν. By "
        f"the laws both estimators are equally good at ν = {equal}; below, ρ̂_g is the better."
    )
    return table


def limit_table(repeats: int, length: int) -> Table:
    """Return f_∞ beside long normal vectors of unequal scales."""
    table = Table("limits", LIMIT_COLUMNS)
    for rho, sigma in SCALES:
        trial = Trial.drawn(math.inf, rho, repeats=repeats, length=length, sigma=sigma)
        limit = gmm_limit(rho, sigma=sigma)
        law = asymptotic_variance(rho, sigma=sigma)
        spread = math.sqrt(law / (length * repeats))
        table.add(
            f"{rho:g}",
            f"{sigma:g}",
            f"{limit:.5f}",
            f"{trial.scores.mean():.5f}",
            f"{(trial.scores.mean() - limit) / spread:+.1f}",
            f"{law:.4f}",
            f"{length * trial.scores.var(ddof=1):.4f}",
        )
    table.notes.append(f"{repeats} pairs of normal vectors of {length:,} coordinates.")
    return table


def draw_limit(axes: Axes, trials: list[Trial]) -> None:
    """Draw f_∞ against ρ, and the mean GMM of every law."""
    rhos = np.linspace(-1, 1, 200)
    for sigma in (1.0, 2.0, 4.0):
        axes.plot(rhos, [gmm_limit(rho, sigma=sigma) for rho in rhos], label=f"f_∞, σ = {sigma:g}")
    axes.plot([t.rho for t in trials], [t.scores.mean() for t in trials], "k.", label="measured")
    axes.set(xlabel="ρ", ylabel="GMM", title="limit of GMM", xticks=np.linspace(-1, 1, 5))
    axes.legend(fontsize=8)


def draw_errors(axes: Axes, trials: list[Trial], rho: float) -> None:
    """Draw both estimators' errors against ν, with their laws as lines."""
    here = [trial for trial in trials if trial.rho == rho and math.isfinite(trial.freedom)]
    freedoms = [trial.freedom for trial in here]
    axes.loglog(freedoms, [t.robust_error for t in here], "C0o", label="ρ̂_g")
    axes.loglog(freedoms, [t.cosine_error for t in here], "C1s", label="cosine")
    line = np.geomspace(2.3, 20, 100)
    axes.loglog(line, [correlation_variance(rho, degrees_of_freedom=nu) for nu in line], "C0")
    finite = line[line > 4.1]
    axes.loglog(finite, [cosine_variance(rho, nu) for nu in finite], "C1")
    axes.set(xlabel="degrees of freedom ν", ylabel="n · MSE", title=f"ρ = {rho:g}")
    axes.set_xticks(freedoms, [f"{freedom:g}" for freedom in freedoms])
    axes.minorticks_off()
    axes.legend(fontsize=8)


def run(options: Options) -> Sheet:
    """Return the limits, variances and errors."""
    repeats = QUICK_REPEATS if options.quick else REPEATS
    trials = [
        Trial.drawn(freedom, rho, repeats=repeats, length=LENGTH)
        for freedom in FREEDOMS
        for rho in RHOS
    ]
    tables = [tail_table(trials), limit_table(LONG_REPEATS, LENGTH if options.quick else LONG)]
    figure, axes = panels(3)
    draw_limit(axes[0], trials)
    draw_errors(axes[1], trials, RHOS[1])
    draw_errors(axes[2], trials, RHOS[2])
    return Sheet("correlation", "GMM and correlation", figure, tables)


if __name__ == "__main__":
    main(run, "GMM's limit and variance, and the robust correlation.", needs_data=False)
