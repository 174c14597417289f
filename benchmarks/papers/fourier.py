"""Random Fourier features, their normalisation, and GCWS: ``python -m benchmarks.papers.fourier``.

[GMM] Theorems 2-4: RFF estimates the kernel e^{−γ(1−ρ)} with variance V_ρ/k, NRFF with V_n/k, and
GCWS, through the limit of GMM, with V_g/k.
"""

from typing import Final

import numpy as np
from matplotlib.axes import Axes

from benchmarks.harness.report import Table
from benchmarks.papers import laws
from benchmarks.papers.correlation_theory import gmm_limit
from benchmarks.papers.labelled import batch_of
from benchmarks.papers.sheet import Options, Sheet, main, panels
from gcws_search.index.comparison.features import FourierMap, map_rows
from gcws_search.index.contracts.arrays import Float32s, Float64s
from gcws_search.index.contracts.batches import VectorBatch, round_up
from gcws_search.index.contracts.parameters import FourierKind, FourierParams
from gcws_search.index.hashing.gcws import Gcws
from gcws_search.index.similarities import gmm

REPEATS: Final = 4000
QUICK_REPEATS: Final = 40
RHOS: Final = (-0.5, 0.0, 0.5, 0.9, 0.99)
GAMMAS: Final = (0.5, 1.0, 2.0, 5.0)
SIZES: Final = (16, 64, 256, 1024)
GCWS_SIZES: Final = (16, 64, 256)
GCWS_DIM: Final = 2000
DRAWS: Final = 200
"""Pairs of normal vectors from which the one nearest to the limit is taken."""
PICTURED_GAMMA: Final = 2.0
FOURIER_COLUMNS: Final = (
    "γ", "ρ", "RBF", "V_ρ", *(f"RFF, k = {k}" for k in SIZES),
    "V_n", *(f"NRFF, k = {k}" for k in SIZES),
)  # fmt: skip
GCWS_COLUMNS: Final = (
    "γ", "ρ", "RBF", "V_g", *(f"GCWS, k = {k}" for k in GCWS_SIZES), "V_n", "V_ρ", "least",
)  # fmt: skip

Errors = dict[tuple[str, float, float, int], float]
"""k times the mean squared error of an estimator (name, γ, ρ, k)."""


def pairs_of(rhos: tuple[float, ...]) -> VectorBatch:
    """Return two vectors a ρ, one after the other, whose cosine it is."""
    rows = [row for rho in rhos for row in ((1.0, 0.0), (rho, (1 - rho**2) ** 0.5))]
    return batch_of(np.array(rows, np.float32))


def products(features: Float32s) -> Float64s:
    """Return the inner product of each row of features with the next, two by two."""
    wide = features.astype(np.float64)
    sums: Float64s = np.einsum("ij,ij->i", wide[0::2], wide[1::2])
    return sums


def fourier_errors(repeats: int) -> Errors:
    """Return the errors of RFF and NRFF, each estimate from a map of its own."""
    batch = pairs_of(RHOS)
    width = round_up(2)
    kinds: tuple[FourierKind, ...] = ("rff", "nrff")
    errors: Errors = {}
    for kind in kinds:
        for gamma in GAMMAS:
            exact = np.array([laws.rbf(gamma, rho) for rho in RHOS])
            for k in SIZES:
                params = [
                    FourierParams(kind=kind, features=k, gamma=gamma, seed=seed)
                    for seed in range(repeats)
                ]
                found = np.array(
                    [products(map_rows(FourierMap(each, width), batch)) for each in params]
                )
                for i, error in enumerate(k * np.mean((found - exact) ** 2, axis=0)):
                    errors[kind, gamma, RHOS[i], k] = float(error)
    return errors


def normal_pair(rho: float) -> tuple[VectorBatch, float]:
    """Return two normal vectors of correlation ρ, and their GMM, nearest to its limit."""
    rng = np.random.default_rng(1)
    best: tuple[float, VectorBatch, float] | None = None
    for _ in range(DRAWS):
        u, w = rng.standard_normal((2, GCWS_DIM))
        batch = batch_of(np.stack([u, rho * u + (1 - rho**2) ** 0.5 * w]).astype(np.float32))
        score = gmm(batch[:1], batch[1:])
        off = abs(score - gmm_limit(rho))
        if best is None or off < best[0]:
            best = off, batch, score
    if best is None:
        raise ValueError(DRAWS)
    return best[1], best[2]


def gcws_errors(repeats: int) -> Errors:
    """Return the errors of GCWS as an estimator of the RBF kernel."""
    errors: Errors = {}
    for rho in RHOS:
        batch, _ = normal_pair(rho)
        longest = max(GCWS_SIZES)
        drawn = []
        for seed in range(repeats // 8):
            signatures = Gcws(seed=seed, samples=8 * longest, dense_width=None).sketch(batch)
            same = signatures.slots[0] == signatures.slots[1]
            drawn.append(same & (signatures.levels[0] == signatures.levels[1]))
        collisions = np.concatenate(drawn)
        for k in GCWS_SIZES:
            found = collisions.reshape(-1, k).mean(axis=1, dtype=np.float64)
            for gamma in GAMMAS:
                off = laws.rbf_of_gmm(gamma, found) - laws.rbf(gamma, rho)
                errors["gcws", gamma, rho, k] = k * float(np.mean(off**2))
    return errors


def fourier_table(errors: Errors, repeats: int) -> Table:
    """Return measured errors beside V_ρ and V_n."""
    table = Table("fourier", FOURIER_COLUMNS)
    worst = 0.0
    for gamma in GAMMAS:
        for rho in RHOS:
            value = laws.rbf(gamma, rho)
            raw, normalised = laws.fourier_variance(value), laws.normalised_variance(value)
            found = {kind: [errors[kind, gamma, rho, k] for k in SIZES] for kind in ("rff", "nrff")}
            worst = max(worst, *(abs(error / float(raw) - 1) for error in found["rff"]))
            table.add(
                f"{gamma:g}",
                f"{rho:g}",
                f"{value:.4f}",
                f"**{raw:.4f}**",
                *(f"{error:.4f}" for error in found["rff"]),
                f"**{normalised:.4f}**",
                *(f"{error:.4f}" for error in found["nrff"]),
            )
    sigmas = worst * np.sqrt(repeats / 2)
    table.notes.append(
        f"k times the mean squared error of {repeats:,} estimates, each from a map with a seed of "
        f"its own; relative standard error about {np.sqrt(2 / repeats):.1%}. V_ρ is exact for "
        f"every k (largest deviation of RFF here: {sigmas:.1f} σ of a normal error); V_n is a "
        "limit for large k."
    )
    return table


def gcws_table(errors: Errors, repeats: int) -> Table:
    """Return measured errors of GCWS beside V_g, and the variances of its rivals."""
    table = Table("gcws as rbf", GCWS_COLUMNS)
    for gamma in GAMMAS:
        for rho in RHOS:
            value = laws.rbf(gamma, rho)
            variances = {
                "GCWS": laws.gcws_variance(gamma, rho),
                "NRFF": float(laws.normalised_variance(value)),
                "RFF": float(laws.fourier_variance(value)),
            }
            table.add(
                f"{gamma:g}",
                f"{rho:g}",
                f"{value:.4f}",
                f"**{variances['GCWS']:.4f}**",
                *(f"{errors['gcws', gamma, rho, k]:.4f}" for k in GCWS_SIZES),
                f"{variances['NRFF']:.4f}",
                f"{variances['RFF']:.4f}",
                min(variances, key=lambda name: variances[name]),
            )
    table.notes.append(
        f"GCWS through the limit of GMM, e^(−2γ((1 − X̄)/(1 + X̄))²) with X̄ the share of k "
        f"collisions, on normal vectors of {GCWS_DIM:,} coordinates; k times the mean squared "
        f"error of {repeats:,} estimates at the largest k (k/{max(GCWS_SIZES)} times as many "
        "below). Relative variance, Var/E², of an estimate of a kernel value E: GCWS of GMM has "
        f"(1 − E)/E, NRFF of RBF has V_n/E²; GCWS has the smaller below E = {crossing():.3f}."
    )
    return table


def crossing() -> float:
    """Return the kernel value at which k·Var of GCWS, E(1 − E), equals V_n."""
    low, high = 0.1, 0.999
    for _ in range(60):
        middle = (low + high) / 2
        below = middle * (1 - middle) < laws.normalised_variance(middle)
        low, high = (middle, high) if below else (low, middle)
    return low


def draw_errors(axes: Axes, errors: Errors) -> None:
    """Draw errors against ρ, with their laws as lines."""
    rhos = np.linspace(-1, 1, 200)
    value = np.exp(-PICTURED_GAMMA * (1 - rhos))
    lines = {
        "rff": laws.fourier_variance(value),
        "nrff": laws.normalised_variance(value),
        "gcws": np.array([laws.gcws_variance(PICTURED_GAMMA, rho) for rho in rhos]),
    }
    for (kind, line), colour in zip(lines.items(), ("C0", "C1", "C2"), strict=True):
        k = 256
        points = [errors[kind, PICTURED_GAMMA, rho, k] for rho in RHOS]
        axes.plot(rhos, line, colour, label=f"{kind.upper()}, law")
        axes.plot(RHOS, points, colour + "o", label=f"k = {k}, measured")
    axes.set(xlabel="ρ", ylabel="k · MSE", title=f"RBF kernel, γ = {PICTURED_GAMMA:g}")
    axes.set_xticks(np.linspace(-1, 1, 5))
    axes.legend(fontsize=7)


def draw_sizes(axes: Axes, errors: Errors) -> None:
    """Draw errors against k."""
    for rho, colour in zip(RHOS[1:], ("C0", "C1", "C2", "C3"), strict=True):
        value = laws.rbf(PICTURED_GAMMA, rho)
        for kind, style, law in (
            ("rff", "o", laws.fourier_variance(value)),
            ("nrff", "s", laws.normalised_variance(value)),
        ):
            points = [errors[kind, PICTURED_GAMMA, rho, k] / k for k in SIZES]
            label = f"{kind.upper()}, ρ = {rho:g}"
            axes.loglog(SIZES, points, colour + style, markersize=4, label=label)
            axes.loglog(SIZES, [float(law) / k for k in SIZES], colour, linewidth=0.8)
    axes.set(xlabel="features k", ylabel="MSE", title=f"γ = {PICTURED_GAMMA:g}; lines: the laws")
    axes.legend(fontsize=6, ncols=2)


def draw_relative(axes: Axes) -> None:
    """Draw the relative variances against the kernel's value."""
    value = np.linspace(0.02, 0.999, 300)
    axes.semilogy(value, laws.fourier_variance(value) / value**2, label="RFF: V_ρ/E²")
    axes.semilogy(value, laws.normalised_variance(value) / value**2, label="NRFF: V_n/E²")
    axes.semilogy(value, (1 - value) / value, label="GCWS of GMM: (1 − E)/E")
    axes.set(xlabel="kernel value E", ylabel="k · Var / E²", title="relative variance")
    axes.legend(fontsize=8)


def run(options: Options) -> Sheet:
    """Return errors of RFF, NRFF and GCWS."""
    repeats = QUICK_REPEATS if options.quick else REPEATS
    errors = fourier_errors(repeats) | gcws_errors(repeats)
    figure, axes = panels(3)
    draw_errors(axes[0], errors)
    draw_sizes(axes[1], errors)
    draw_relative(axes[2])
    tables = [fourier_table(errors, repeats), gcws_table(errors, repeats)]
    return Sheet("fourier", "Random Fourier features and GCWS as estimators of RBF", figure, tables)


if __name__ == "__main__":
    main(run, "Errors of RFF, NRFF and GCWS as estimators of the RBF kernel.", needs_data=False)
