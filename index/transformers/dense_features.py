"""Real features: Fourier's and Nyström's."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gcws_search.index.contracts.arrays import Float32s
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    FourierKind,
    FourierParams,
    NystroemKind,
    NystroemParams,
)
from gcws_search.index.features.fourier import FeatureMap, FourierMap
from gcws_search.index.features.nystroem import NystroemMap, drawn_landmarks
from gcws_search.index.transformers.base import Transformer, batch_of, filled_rows
from gcws_search.index.vectors.space import VectorSpace


class _RealFeatures(Transformer):
    """Real features."""

    def transform(self, X: Any) -> Float32s:  # noqa: ANN401
        """Return the (n, k) float32 features of n rows.

        Raises
        ------
        ValueError
            ``X`` has another number of columns, or numbers that are not finite in float32.
        """
        check_is_fitted(self)
        checked = self._checked(X, reset=False)
        out = np.zeros((checked.shape[0], self._n_features_out), np.float32)
        self._fitted.fill(checked, out)
        return out


class _FourierFeatures(_RealFeatures):
    _kind: ClassVar[FourierKind]

    def __init__(
        self,
        *,
        features: int = 512,
        gamma: float = 1.0,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.features = features
        self.gamma = gamma
        self.seed = seed
        self.n_jobs = n_jobs

    def _map(self, dense_width: int | None) -> FeatureMap:
        params = FourierParams(
            kind=self._kind, features=self.features, gamma=self.gamma, seed=self.seed
        )
        return FourierMap(params, dense_width)


class RffFeatures(_FourierFeatures):
    """Random Fourier features of the RBF kernel e^{-γ(1 - ρ)}, ρ the cosine of two rows.

    Parameters
    ----------
    features : int
        k, 1-16384.
    gamma : float
        γ, above 0.
    seed : int
    n_jobs : int or None
        Threads; -1 takes as many as the process may use.
    """

    _kind = "rff"


class NrffFeatures(_FourierFeatures):
    """Random Fourier features scaled to unit length: the same kernel, and a smaller variance.

    Parameters are those of `RffFeatures`.
    """

    _kind = "nrff"


class FoldedRffFeatures(_FourierFeatures):
    """Features of the folded kernel ½e^{-γ(1 - ρ)} + ½e^{-γ(1 + ρ)}.

    Parameters are those of `RffFeatures`.
    """

    _kind = "folded_rff"


class _NystroemFeatures(_RealFeatures):
    _kind: ClassVar[NystroemKind]
    seed: int
    landmarks: int

    def _params(self) -> NystroemParams:
        return NystroemParams(kind=self._kind, landmarks=self.landmarks, seed=self.seed)

    def _learn(self, X: Any) -> None:  # noqa: ANN401
        params = self._params()
        filled = filled_rows(X, slice(0, X.shape[0]))
        if not len(filled):
            raise InvalidParameter(expected="a row that is not all zeros", got="none", loc=("X",))
        space = VectorSpace.of(CollectionConfig(dim=X.shape[1]))
        self.landmarks_ = batch_of(space, X, drawn_landmarks(params, filled))

    def _map(self, dense_width: int | None) -> FeatureMap:
        del dense_width
        return NystroemMap(self._params(), self.landmarks_)


class GmmNystroem(_NystroemFeatures):
    """Nyström features of GMM ([TGMM] §2.3).

    Parameters
    ----------
    landmarks : int
        How many rows are landmarks, 1-4096; all of them where there are fewer.
    seed : int
        Of the choice of landmarks.
    n_jobs : int or None
        Threads; -1 takes as many as the process may use.

    Attributes
    ----------
    landmarks_ : VectorBatch
    """

    _kind = "gmm_nystroem"

    def __init__(self, *, landmarks: int = 256, seed: int = 0, n_jobs: int | None = None) -> None:
        self.landmarks = landmarks
        self.seed = seed
        self.n_jobs = n_jobs


class RbfNystroem(_NystroemFeatures):
    """Nyström features of the RBF kernel e^{-γ(1 - ρ)}, ρ the cosine of two rows.

    Parameters
    ----------
    landmarks, seed, n_jobs : see `GmmNystroem`
    gamma : float
        γ, above 0.
    """

    _kind = "rbf_nystroem"

    def __init__(
        self,
        *,
        landmarks: int = 256,
        gamma: float = 1.0,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.landmarks = landmarks
        self.gamma = gamma
        self.seed = seed
        self.n_jobs = n_jobs

    def _params(self) -> NystroemParams:
        return NystroemParams(
            kind=self._kind, landmarks=self.landmarks, gamma=self.gamma, seed=self.seed
        )
