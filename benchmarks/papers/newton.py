"""Linear SVMs over a few thousand real features, all classes at once, by Newton's method.

The objective is that of `machines`; the method that of LIBLINEAR's primal solver (Lin, Weng and
Keerthi, *Trust Region Newton Method for Large-scale Logistic Regression*, JMLR 2008), with steps
that are shortened rather than kept in a region. It needs no more than products with the rows, which
BLAS makes for every class at once; where features are few and C is large it converges in seconds
where coordinate descent does not in hundreds of passes.
"""

from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, Float32s, Float64s

STEPS: Final = 50
GRADIENT: Final = 0.01
"""The gradient has to fall to this share, times that of the rarer sign: LIBLINEAR's default."""
_CG_STEPS: Final = 60
_CG_RESIDUAL: Final = 0.1
_HALVINGS: Final = 20


def fit(rows: Float32s, signs: Float32s, *, cost: float) -> Float32s:
    """Return the weights of min ½‖w‖² + C Σ max(0, 1 − y w·x)² of every class.

    Parameters
    ----------
    rows : (n, k) float32
    signs : (n, classes) float32
        1 for rows of the class, -1 for others.
    cost : float
        C.

    Returns
    -------
    (k, classes) float32
    """
    n, classes = signs.shape
    weights = np.zeros((rows.shape[1], classes), np.float32)
    margins = np.zeros((n, classes), np.float32)
    rarer = np.minimum((signs > 0).sum(axis=0), (signs < 0).sum(axis=0)) / n
    least: AnyArray | None = None
    for _ in range(STEPS):
        slack = np.maximum(0, 1 - signs * margins)
        gradient = weights - 2 * np.float32(cost) * (rows.T @ (signs * slack))
        lengths = np.linalg.norm(gradient, axis=0)
        if least is None:
            least = GRADIENT * rarer * lengths
        if (lengths <= least).all():
            break
        step = _newton_step(rows, slack > 0, gradient, np.float32(cost))
        along = rows @ step
        sizes = _sizes(weights, step, margins * signs, along * signs, gradient, cost)
        weights += sizes * step
        margins += sizes * along
    return weights


def _newton_step(
    rows: Float32s, active: AnyArray, gradient: Float32s, cost: np.float32
) -> Float32s:
    """Return what solves (1 + 2C Xᵀ A X) s = −gradient, nearly: conjugate gradients."""
    step = np.zeros_like(gradient)
    residual = -gradient
    direction = residual.copy()
    squares = np.sum(residual**2, axis=0)
    enough = _CG_RESIDUAL**2 * squares
    for _ in range(_CG_STEPS):
        if (squares <= enough).all():
            break
        bent = direction + 2 * cost * (rows.T @ (active * (rows @ direction)))
        # A class that has converged, or whose direction is zero, does not move.
        curvature = np.sum(direction * bent, axis=0)
        moves = (squares > enough) & (curvature > 0)
        length = np.divide(squares, curvature, out=np.zeros_like(squares), where=moves)
        step += length * direction
        residual -= length * bent
        now = np.sum(residual**2, axis=0)
        direction = residual + np.divide(now, squares, out=np.zeros_like(now), where=moves) * (
            direction
        )
        squares = now
    return step


def _sizes(
    weights: Float32s,
    step: Float32s,
    margins: Float32s,
    along: Float32s,
    gradient: Float32s,
    cost: float,
) -> Float32s:
    """Return the (classes,) lengths of steps that make the objective fall enough, by halving."""
    square, mixed, own = (
        np.sum(a.astype(np.float64) * b, axis=0)
        for a, b in ((weights, weights), (weights, step), (step, step))
    )
    slope = np.sum(gradient.astype(np.float64) * step, axis=0)

    def objective(sizes: Float64s) -> Float64s:
        slack = np.maximum(0, 1 - margins - sizes.astype(np.float32) * along).astype(np.float64)
        value: Float64s = (square + 2 * sizes * mixed + sizes**2 * own) / 2
        value += cost * np.sum(slack**2, axis=0)
        return value

    sizes = np.ones(len(slope))
    start = objective(np.zeros_like(sizes))
    for _ in range(_HALVINGS):
        short = objective(sizes) <= start + 0.01 * sizes * slope
        if short.all():
            break
        sizes = np.where(short, sizes, sizes / 2)
    else:
        sizes = np.where(short, sizes, 0)
    lengths: Float32s = sizes.astype(np.float32)
    return lengths
