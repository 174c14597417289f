"""Discrete samples as one-hot rows: those of GCWS, and random bins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from gcws_search.index.contracts.arrays import UInt16s, UInt32s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.parameters import Distribution, GcwsParams, RandomBinningParams
from gcws_search.index.hashing.gcws import Gcws
from gcws_search.index.hashing.random_binning import RandomBinning
from gcws_search.index.transformers.base import Transformer

MAX_SAMPLES: Final = 16384
MAX_BITS: Final = 16
_NOTHING: Final = VectorBatch("sparse", indptr=np.zeros(2, np.int64), norms=np.zeros(1, np.float32))
"""One vector of zeros."""


@dataclass(frozen=True, slots=True)
class _Codes:
    """A map to (n, samples) codes of b bits; ``width`` counts the columns that they stand for."""

    transform: Callable[[VectorBatch], UInt16s | UInt32s]
    samples: int
    bits: int

    @property
    def width(self) -> int:
        """Columns: 2^b a sample."""
        return self.samples << self.bits


class _OneHot(Transformer, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Codes of b bits, each as one 1 among 2^b columns."""

    samples: int
    bits: int

    def _sizes(self) -> tuple[int, int]:
        """Return how many samples, of how many bits."""
        for name, maximum in (("samples", MAX_SAMPLES), ("bits", MAX_BITS)):
            value = getattr(self, name)
            if not (isinstance(value, int | np.integer) and 1 <= value <= maximum):
                raise InvalidParameter(expected=f"1 to {maximum}", got=repr(value), loc=(name,))
        return int(self.samples), int(self.bits)

    def _zero(self) -> UInt32s | None:
        """Return the codes of a row of zeros, None where it has none."""
        return None

    def transform(self, X: Any) -> sparse.csr_matrix:  # noqa: ANN401
        """Return the (n, samples · 2^bits) float32 one-hot rows, ``samples`` ones in each.

        Raises
        ------
        ValueError
            ``X`` has another number of columns, or numbers that are not finite in float32.
        """
        check_is_fitted(self)
        checked = self._checked(X, reset=False)
        n, (samples, bits) = checked.shape[0], self._sizes()
        none = np.uint32(1 << bits)  # no code is as large
        codes = np.full((n, samples), none, np.uint32)
        zero = self._zero()
        if zero is not None:
            codes[:] = zero
        self._fitted.fill(checked, codes)
        columns = codes.astype(np.int32) + (np.arange(samples, dtype=np.int32) << bits)
        counts = np.where(codes[:, 0] == none, 0, samples)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        indices = columns[counts > 0].reshape(-1)
        ones = np.ones(len(indices), np.float32)
        return sparse.csr_matrix((ones, indices, indptr), shape=(n, self._n_features_out))


class GcwsFeatures(_OneHot):
    """b-bit GCWS samples, one-hot: a linear method on them approximates GMM ([GMM] §1.4).

    Products divided by ``samples`` estimate GMM + (1 - GMM)·2^-bits.

    Parameters
    ----------
    samples : int
        k, 1-16384.
    bits : int
        b, 1-16: bits of each winning slot that are used ([BBIT]).
    seed : int
    n_jobs : int or None
        Threads; -1 takes as many as the process may use.
    """

    def __init__(
        self, *, samples: int = 256, bits: int = 8, seed: int = 0, n_jobs: int | None = None
    ) -> None:
        self.samples = samples
        self.bits = bits
        self.seed = seed
        self.n_jobs = n_jobs

    def _map(self, dense_width: int | None) -> _Codes:
        seed = GcwsParams(seed=self.seed).seed
        samples, bits = self._sizes()
        hashes = Gcws(seed=seed, samples=samples, dense_width=dense_width)
        return _Codes(lambda batch: hashes.sketch(batch).codes(bits, samples), samples, bits)


class RandomBinningFeatures(_OneHot):
    """Random bins, one-hot: a linear method on them approximates a product kernel ([RFF], [POLYA]).

    Products divided by ``samples`` estimate K + (1 - K)·2^-bits, K = Π_d k(|x_d - y_d|).

    Parameters
    ----------
    samples : int
        k, 1-16384.
    distribution, shape, scale : see `RandomBinningParams`
    bits : int
        b, 1-16: bits that bins are hashed to.
    seed : int
    n_jobs : int or None
        Threads; -1 takes as many as the process may use.
    """

    def __init__(
        self,
        *,
        samples: int = 256,
        distribution: Distribution = "gamma",
        shape: float | None = None,
        scale: float = 1.0,
        bits: int = 12,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.samples = samples
        self.distribution = distribution
        self.shape = shape
        self.scale = scale
        self.bits = bits
        self.seed = seed
        self.n_jobs = n_jobs

    def _map(self, dense_width: int | None) -> _Codes:
        params = RandomBinningParams(
            distribution=self.distribution, shape=self.shape, scale=self.scale, seed=self.seed
        )
        samples, bits = self._sizes()
        binning = RandomBinning(params, samples=samples, dense_width=dense_width)
        mask = np.uint32((1 << bits) - 1)
        return _Codes(lambda batch: binning.sketch(batch)[:, :samples] & mask, samples, bits)

    def _zero(self) -> UInt32s:
        codes: UInt32s = self._fitted.map.transform(_NOTHING)
        return codes
