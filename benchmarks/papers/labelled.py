"""Data sets with labels, split and prepared as the papers have them, and what the papers report.

[GMM] P. Li, *Linearized GMM Kernels and Normalized Random Fourier Features*: its Table 1 is "A";
Tables 1 and 2 of its first version, *Generalized Min-Max Kernel and Generalized Consistent
Weighted Sampling*, are "B".
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, Float32s, Int64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import CollectionConfig
from gcws_search.index.vectors.space import VectorSpace

Loader: TypeAlias = Callable[[Path, int], "Labelled"]
"""From a folder and the seed of random splits."""


@dataclass(frozen=True, slots=True)
class Published:
    """Accuracies at the best C, in per cent.

    Attributes
    ----------
    where : str
        Paper and table.
    linear, rbf, gmm : float
    gamma : float or None
        The best γ of the RBF kernel; None if the paper does not report it.
    """

    where: str
    linear: float
    rbf: float
    gamma: float | None
    gmm: float


@dataclass(frozen=True, slots=True)
class Labelled:
    """Rows to learn from, and rows to judge by.

    Attributes
    ----------
    train, test : (n, dim), (m, dim) float32
    train_labels, test_labels : (n,), (m,) int64
    preparation : str
        What was done to the published rows before GMM saw them.
    published : Published or None
    """

    name: str
    train: Float32s
    train_labels: Int64s
    test: Float32s
    test_labels: Int64s
    preparation: str = "as stored"
    published: Published | None = None

    def batches(self) -> tuple[VectorBatch, VectorBatch]:
        """Return training and test rows as GMM takes them."""
        return batch_of(self.train), batch_of(self.test)

    def unit(self) -> tuple[Float32s, Float32s]:
        """Return training and test rows scaled to unit L2 norm."""
        return unit_rows(self.train), unit_rows(self.test)


def batch_of(rows: Float32s) -> VectorBatch:
    """Return rows as vectors of a space without transform."""
    space = VectorSpace.of(CollectionConfig(dim=rows.shape[1]))
    return space.prepare(space.from_dense(np.ascontiguousarray(rows)))


def unit_rows(rows: Float32s) -> Float32s:
    """Return rows scaled to unit L2 norm."""
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    unit: Float32s = (rows / lengths).astype(np.float32)
    return unit


def load(name: str, folder: Path, *, seed: int = 0) -> Labelled:
    """Return the set of this name; KeyError for an unknown one; ``seed`` is of random splits."""
    return replace(SETS[name](folder, seed), name=name, published=PUBLISHED[name])


def made(*, train: int = 300, test: int = 200, classes: int = 4, seed: int = 0) -> Labelled:
    """Return heavy-tailed signed clusters, two a class: no line separates them."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_t(3, (2 * classes, 12))
    which = rng.integers(2 * classes, size=train + test)
    rows = (centres[which] + 0.6 * rng.standard_t(3, (train + test, 12))).astype(np.float32)
    return _cut("made clusters", rows, which % classes, np.arange(train + test), train)


def _cut(
    name: str, rows: AnyArray, labels: AnyArray, order: Int64s, train: int, test: int | None = None
) -> Labelled:
    """Return the first ``train`` rows of an order, and the next ``test`` or all others."""
    first, second = order[:train], order[train : None if test is None else train + test]
    values, classes = rows.astype(np.float32), labels.astype(np.int64)
    return Labelled(name, values[first], classes[first], values[second], classes[second])


def _arrays(name: str, folder: Path) -> tuple[AnyArray, AnyArray, int]:
    """Return rows, labels and the length of the training part, 0 without one."""
    with np.load(folder / f"{name}.npz") as file:
        return file["X"], file["y"], int(file["n_train"]) if "n_train" in file.files else 0


def _official(name: str) -> Loader:
    """Return a loader of the conventional split."""

    def loader(folder: Path, seed: int) -> Labelled:
        del seed
        rows, labels, train = _arrays(name, folder)
        return _cut(name, rows, labels, np.arange(len(rows)), train)

    return loader


def _random(name: str, train: int, test: int | None = None, *, of_training: bool = False) -> Loader:
    """Return a loader of a random split, of all rows or of the training part alone."""

    def loader(folder: Path, seed: int) -> Labelled:
        rows, labels, official = _arrays(name, folder)
        count = official if of_training else len(rows)
        order = np.random.default_rng(seed).permutation(count)
        cut = _cut(name, rows, labels, order, train, test)
        return replace(cut, preparation="as stored, random split")

    return loader


def _letter(folder: Path, seed: int) -> Labelled:
    """Return Letter as LIBSVM ships it: columns mapped to [-1, 1] by the training rows."""
    del seed
    rows, labels, train = _arrays("letter", folder)
    low, high = rows[:train].min(axis=0), rows[:train].max(axis=0)
    mapped = 2 * (rows.astype(np.float64) - low) / (high - low) - 1
    cut = _cut("letter", mapped, labels, np.arange(len(rows)), train)
    return replace(cut, preparation="columns mapped to [−1, 1] by the training rows")


def _covertype(folder: Path, seed: int) -> Labelled:
    """Return 10,000 random rows and 50,000 others, columns mapped to [0, 1] as LIBSVM ships it."""
    rows, labels, _ = _arrays("covtype93k", folder)
    low, high = rows.min(axis=0).astype(np.float64), rows.max(axis=0)
    mapped = (rows - low) / np.maximum(high - low, 1)
    order = np.random.default_rng(seed).permutation(len(rows))
    cut = _cut("covertype", mapped, labels, order, 10_000, 50_000)
    return replace(cut, preparation="columns mapped to [0, 1], random split")


def _shuttle(folder: Path, seed: int) -> Labelled:
    """Return 500 random rows of the training part, and the official test part."""
    rows, labels, train = _arrays("shuttle", folder)
    some = np.random.default_rng(seed).permutation(train)[:500]
    cut = _cut("shuttle", rows, labels, np.concatenate([some, np.arange(train, len(rows))]), 500)
    return replace(cut, preparation="as stored, 500 random training rows")


def _daily_sports(folder: Path, seed: int) -> Labelled:
    """Return segments of ten frames, half of them for training."""
    rows, labels, _ = _arrays("dailysports_frames", folder)
    segments = rows.reshape(-1, 10 * rows.shape[1])
    order = np.random.default_rng(seed).permutation(len(segments))
    cut = _cut("dailysports", segments, labels[::10], order, len(segments) // 2)
    return replace(cut, preparation="10 of each segment's 125 frames (450 values), random halves")


SETS: Final[dict[str, Loader]] = {
    "Letter": _letter,
    "Satimage": _official("satimage"),
    "Splice": _official("splice"),
    "Pendigits": _official("pendigits"),
    "Vowel": _official("vowel"),
    "Vowel, halves": _random("vowel", 264, of_training=True),
    "Shuttle500": _shuttle,
    "DailySports": _daily_sports,
    "Covertype10k": _covertype,
}

PUBLISHED: Final[dict[str, Published]] = {
    "Letter": Published("A", 61.66, 97.44, 11, 97.26),
    "Satimage": Published("A", 72.45, 85.20, 200, 90.40),
    "Splice": Published("A", 85.10, 90.02, 15, 95.22),
    "Pendigits": Published("B", 87.6, 98.7, 13, 97.9),
    "Vowel": Published("B", 27.9, 48.1, 13, 62.8),
    "Vowel, halves": Published("A", 39.39, 94.70, 45, 96.97),
    "Shuttle500": Published("A", 91.81, 99.52, 1.6, 99.65),
    "DailySports": Published("A", 77.70, 97.61, 4, 99.61),
    "Covertype10k": Published("B", 70.9, 80.1, None, 80.4),
}
