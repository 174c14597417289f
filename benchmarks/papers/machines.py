"""Linear SVMs over real features and over codes, all classes at once.

The objective is that of LIBLINEAR (squared hinge, no intercept), one class against the rest; the
method over codes is LIBLINEAR's (Hsieh et al., *A Dual Coordinate Descent Method for Large-scale
Linear SVM*, ICML 2008), over features that of `newton`. One pass over a row serves every class, so
that 4,096 codes a row and 26 classes take seconds rather than minutes.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numba import njit

from benchmarks.papers import newton
from gcws_search.index.contracts.arrays import AnyArray, Float32s, Int64s

PASSES: Final = 60
TOLERANCE: Final = 0.1
"""Of the projected gradient: LIBLINEAR's own default."""
MAX_SPREAD: Final = 256
"""Codes of up to so many columns are spread out into features: they are few for so many rows that
coordinates depend on each other, and coordinate descent is slow."""
PADDED: Final = 8
"""Weights of a column fill whole vector registers."""


@dataclass(frozen=True, slots=True)
class Codes:
    """Rows of k codes: each stands for k ones, scaled to unit length, in k·choices columns.

    Attributes
    ----------
    values : (n, k) uint8 or uint16
    choices : int
        How many values a code has.
    """

    values: AnyArray
    choices: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)

    @classmethod
    def of_both(cls, train: AnyArray, test: AnyArray) -> tuple["Codes", "Codes"]:
        """Return (n, k) and (m, k) renumbered codes, so that there are few choices."""
        samples = np.arange(train.shape[1])
        occurs = np.zeros((len(samples), int(max(train.max(), test.max())) + 1), np.bool_)
        occurs[samples, train] = True
        # Those that no training row has get no weights: they all take the number after the last.
        numbers = np.where(occurs, occurs.cumsum(axis=1) - 1, occurs.sum(axis=1, keepdims=True))
        choices = int(numbers.max()) + 1
        numbers = numbers.astype(np.min_scalar_type(choices - 1))
        return cls(numbers[samples, train], choices), cls(numbers[samples, test], choices)

    @property
    def columns(self) -> int:
        """How many columns the codes stand for."""
        return int(self.values.shape[1]) * self.choices

    def spread(self) -> Float32s:
        """Return the (n, columns) rows that the codes stand for."""
        n, k = self.values.shape
        rows = np.zeros((n, self.columns), np.float32)
        rows[np.arange(n)[:, None], np.arange(k) * self.choices + self.values] = 1 / np.sqrt(k)
        return rows


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
    if not isinstance(rows, Codes):
        return newton.fit(rows, signs, cost=cost)
    if rows.columns <= MAX_SPREAD:
        return newton.fit(rows.spread(), signs, cost=cost)
    alpha = np.zeros((len(rows), classes), np.float32)
    weights = np.zeros((rows.columns, -(-classes // PADDED) * PADDED), np.float32)
    rng = np.random.default_rng(seed)
    for _ in range(PASSES):
        order = rng.permutation(len(rows))
        worst = _pass_codes(
            rows.values, rows.choices, order, signs, np.float32(0.5 / cost), alpha, weights
        )
        if worst < TOLERANCE:
            break
    return weights[:, :classes]


def margins(rows: Rows, weights: Float32s) -> Float32s:
    """Return the (n, classes) values w·x."""
    if not isinstance(rows, Codes):
        return rows @ weights
    out = np.zeros((len(rows), weights.shape[1]), np.float32)
    _margins_of_codes(rows.values, rows.choices, weights, out)
    return out


@njit(cache=True, nogil=True, fastmath=True)
def _step(
    margin: Float32s,
    signs: Float32s,
    square: np.float32,
    ridge: np.float32,
    alpha: Float32s,
    change: Float32s,
) -> float:
    """Move one row's multipliers; write what is to be added to w along x; return the violation."""
    worst = np.float32(0)
    for c in range(len(signs)):
        gradient = signs[c] * margin[c] - np.float32(1) + ridge * alpha[c]
        projected = min(gradient, np.float32(0)) if alpha[c] == 0 else gradient
        worst = max(worst, abs(projected))
        moved = max(alpha[c] - gradient / (square + ridge), np.float32(0))
        change[c] = (moved - alpha[c]) * signs[c]
        alpha[c] = moved
    return float(worst)


@njit(cache=True, nogil=True, fastmath=True)
def _pass_codes(  # noqa: PLR0917 (arrays one by one, as compiled functions take them)
    values: AnyArray,
    choices: int,
    order: Int64s,
    signs: Float32s,
    ridge: np.float32,
    alpha: Float32s,
    weights: Float32s,
) -> float:
    k, width = values.shape[1], weights.shape[1]
    scale = np.float32(1 / np.sqrt(k))
    margin, change = np.zeros(width, np.float32), np.zeros(width, np.float32)
    worst = 0.0
    for i in order:
        margin[:] = 0
        for j in range(k):
            column = j * choices + values[i, j]
            for c in range(width):
                margin[c] += weights[column, c]
        margin *= scale
        worst = max(worst, _step(margin, signs[i], np.float32(1), ridge, alpha[i], change))
        if not np.any(change):
            continue
        change *= scale
        for j in range(k):
            column = j * choices + values[i, j]
            for c in range(width):
                weights[column, c] += change[c]
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
