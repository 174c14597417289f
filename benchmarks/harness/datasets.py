"""Real data sets from a folder of ``.npz`` files, and generated ones.

Every loader leaves out all-zero vectors (GMM of two of them is 0/0) and returns float32.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.harness.words import sentences, word_vectors

Vectors: TypeAlias = Any
"""A float32 array (n, dim), or a CSR matrix of them; scipy is untyped."""

MADE_ROWS: Final = 100_000
MADE_DIM: Final = 128
MILLION: Final = 1_000_000
WORD_DIM: Final = 100
SENTENCES: Final = 200_000


@dataclass(frozen=True, slots=True)
class DataSet:
    """Vectors of one form.

    Attributes
    ----------
    name : str
    vectors : (n, dim) float32 array, or CSR of float32
    """

    name: str
    vectors: Vectors

    def hold_out(self, count: int, *, seed: int = 0) -> tuple[Vectors, Vectors]:
        """Return (stored, queries): ``count`` rows drawn at random are queries and not stored."""
        order = np.random.default_rng(seed).permutation(self.vectors.shape[0])
        return self.vectors[np.sort(order[count:])], self.vectors[np.sort(order[:count])]


def load(name: str, folder: Path) -> DataSet:
    """Return the data set of this name; KeyError for an unknown one."""
    return DataSet(name, _without_zero_rows(LOADERS[name](folder)))


def made(*, rows: int = MADE_ROWS, dim: int = MADE_DIM, seed: int = 1) -> NDArray[np.float32]:
    """Return clustered, signed, heavy-tailed vectors.

    A hundred rows a cluster, on average. Centres and noise are Student's t with 3 degrees of
    freedom; the noise is a third of the centre; the length of a vector varies by a factor e^±0.3.
    """
    rng = np.random.default_rng(seed)
    centres = rng.standard_t(3, (max(1, rows // 100), dim))
    vectors = centres[rng.integers(len(centres), size=rows)]
    vectors += rng.standard_t(3, vectors.shape) / 3
    vectors *= np.exp(0.3 * rng.standard_normal((rows, 1)))
    return vectors.astype(np.float32)


def gaussian(*, rows: int = MADE_ROWS, dim: int = 384, seed: int = 1) -> NDArray[np.float32]:
    """Return independent Gaussian numbers: rows without neighbours, which only a scan finds."""
    return np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)


def tf_idf(counts: Vectors) -> Vectors:
    """Return counts weighted by ln((1 + n) / (1 + df)) + 1, rows scaled to unit L2 norm."""
    holders = np.bincount(counts.indices, minlength=counts.shape[1])
    weights = np.log((1 + counts.shape[0]) / (1 + holders)) + 1
    weighted = counts.multiply(weights).tocsr()
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    return sparse.diags(1 / np.maximum(lengths, 1e-30)).dot(weighted).tocsr().astype(np.float32)


def _dense(name: str, folder: Path) -> NDArray[np.float32]:
    with np.load(folder / f"{name}.npz") as file:
        return np.asarray(file["X"], dtype=np.float32)


def _sparse(name: str, folder: Path) -> Vectors:
    with np.load(folder / f"{name}.npz") as file:
        parts = (file["data"].astype(np.float32), file["indices"], file["indptr"])
        return sparse.csr_matrix(parts, shape=tuple(file["shape"]))


def _sentences(counts: Vectors) -> NDArray[np.float32]:
    return sentences(word_vectors(counts, WORD_DIM), counts, rows=SENTENCES)


def _without_zero_rows(vectors: Vectors) -> Vectors:
    keep = np.asarray(abs(vectors).sum(axis=1)).ravel() > 0
    return vectors if keep.all() else vectors[keep]


LOADERS: Final[dict[str, Callable[[Path], Vectors]]] = {
    "fashion_mnist": partial(_dense, "fashion_mnist"),
    "dailysports_frames": partial(_dense, "dailysports_frames"),
    "covtype93k": partial(_dense, "covtype93k"),
    "letter": partial(_dense, "letter"),
    "muv_ecfp4": partial(_sparse, "muv_ecfp4"),
    "news20": partial(_sparse, "news20"),
    "news20 tf-idf": lambda folder: tf_idf(_sparse("news20", folder)),
    "news20 words": lambda folder: word_vectors(_sparse("news20", folder), WORD_DIM),
    "news20 words, 300": lambda folder: word_vectors(_sparse("news20", folder), 3 * WORD_DIM),
    "news20 sentences": lambda folder: _sentences(_sparse("news20", folder)),
    "synthetic, clustered": lambda folder: made(),
    "synthetic, a million": lambda folder: made(rows=MILLION),
    "gaussian": lambda folder: gaussian(),
}
