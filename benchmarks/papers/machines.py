"""Linear SVMs over dense features and over codes, all classes at once.

The objective and the method are those of LIBLINEAR (Hsieh et al., *A Dual Coordinate Descent Method
for Large-scale Linear SVM*, ICML 2008; squared hinge, no intercept), one class against the rest.
One pass over a row serves every class, so that 4,096 codes a row and 26 classes take seconds rather
than minutes.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numba import njit

from index.arrays import AnyArray, Float32s, Int64s

PASSES: Final = 40
TOLERANCE: Final = 0.1
"""Of the projected gradient: LIBLINEAR's own default."""


@dataclass(frozen=True, slots=True)
class Codes:
    """Rows of k codes: each stands for k ones, scaled to unit length, in k·choices columns.

    Attributes
    ----------
    values : (n, k) uint8
    choices : int
        How many values a code has.
    """

    values: AnyArray
    choices: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)


Rows = Codes | Float32s


def accuracy(
    train: Rows, labels: Int64s, test: Rows, test_labels: Int64s, *, cost: float, seed: int = 0
) -> float:
    """Return the accuracy on the test rows, in per cent."""
    classes, which = np.unique(labels, return_inverse=True)
    weights = fit(train, which, len(classes), cost=cost, seed=seed)
    found = classes[margins(test, weights).argmax(axis=1)]
    return 100 * float(np.mean(found == test_labels))


def fit(rows: Rows, which: Int64s, classes: int, *, cost: float, seed: int = 0) -> Float32s:
    """Return the (columns, classes) weights of min ½‖w‖² + C Σ max(0, 1 − y w·x)²."""
    signs = np.where(which[:, None] == np.arange(classes), np.float32(1), np.float32(-1))
    alpha = np.zeros((len(rows), classes), np.float32)
    ridge = np.float32(0.5 / cost)
    rng = np.random.default_rng(seed)
    columns = rows.values.shape[1] * rows.choices if isinstance(rows, Codes) else rows.shape[1]
    weights = np.zeros((columns, classes), np.float32)
    for _ in range(PASSES):
        order = rng.permutation(len(rows))
        if isinstance(rows, Codes):
            worst = _pass_codes(rows.values, rows.choices, order, signs, ridge, alpha, weights)
        else:
            worst = _pass_dense(rows, order, signs, ridge, alpha, weights)
        if worst < TOLERANCE:
            break
    return weights


def margins(rows: Rows, weights: Float32s) -> Float32s:
    """Return the (n, classes) values w·x."""
    if not isinstance(rows, Codes):
        return rows @ weights
    out = np.zeros((len(rows), weights.shape[1]), np.float32)
    _margins_of_codes(rows.values, rows.choices, weights, out)
    return out


@njit(cache=True, nogil=True, fastmath=True)
def _step(
    margin: Float32s, signs: Float32s, square: np.float32, ridge: np.float32, alpha: Float32s,
    change: Float32s,
) -> float:  # fmt: skip
    """Move one row's multipliers; write what is to be added to w along x; return the violation."""
    worst = np.float32(0)
    for c in range(len(margin)):
        gradient = signs[c] * margin[c] - np.float32(1) + ridge * alpha[c]
        projected = min(gradient, np.float32(0)) if alpha[c] == 0 else gradient
        worst = max(worst, abs(projected))
        moved = max(alpha[c] - gradient / (square + ridge), np.float32(0))
        change[c] = (moved - alpha[c]) * signs[c]
        alpha[c] = moved
    return float(worst)


@njit(cache=True, nogil=True, fastmath=True)
def _pass_codes(  # noqa: PLR0917 (arrays one by one, as compiled functions take them)
    values: AnyArray, choices: int, order: Int64s, signs: Float32s, ridge: np.float32,
    alpha: Float32s, weights: Float32s,
) -> float:  # fmt: skip
    k, classes = values.shape[1], signs.shape[1]
    scale = np.float32(1 / np.sqrt(k))
    margin, change = np.empty(classes, np.float32), np.empty(classes, np.float32)
    worst = 0.0
    for i in order:
        margin[:] = 0
        for j in range(k):
            column = j * choices + values[i, j]
            for c in range(classes):
                margin[c] += weights[column, c]
        margin *= scale
        worst = max(worst, _step(margin, signs[i], np.float32(1), ridge, alpha[i], change))
        if not np.any(change):
            continue
        change *= scale
        for j in range(k):
            column = j * choices + values[i, j]
            for c in range(classes):
                weights[column, c] += change[c]
    return worst


@njit(cache=True, nogil=True, fastmath=True)
def _pass_dense(
    rows: Float32s, order: Int64s, signs: Float32s, ridge: np.float32, alpha: Float32s,
    weights: Float32s,
) -> float:  # fmt: skip
    classes = signs.shape[1]
    margin, change = np.empty(classes, np.float32), np.empty(classes, np.float32)
    worst = 0.0
    for i in order:
        margin[:] = 0
        square = np.float32(0)
        for j in range(rows.shape[1]):
            x = rows[i, j]
            square += x * x
            for c in range(classes):
                margin[c] += x * weights[j, c]
        worst = max(worst, _step(margin, signs[i], square, ridge, alpha[i], change))
        if not np.any(change):
            continue
        for j in range(rows.shape[1]):
            x = rows[i, j]
            for c in range(classes):
                weights[j, c] += x * change[c]
    return worst


@njit(cache=True, nogil=True, fastmath=True)
def _margins_of_codes(values: AnyArray, choices: int, weights: Float32s, out: Float32s) -> None:
    scale = np.float32(1 / np.sqrt(values.shape[1]))
    for i in range(len(values)):
        for j in range(values.shape[1]):
            column = j * choices + values[i, j]
            for c in range(out.shape[1]):
                out[i, c] += weights[column, c]
        for c in range(out.shape[1]):
            out[i, c] *= scale
