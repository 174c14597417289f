"""Feature maps as scikit-learn transformers: linear methods on their output approximate kernels.

Inner products of rows estimate the kernel; those of the one-hot maps do so when divided by
``samples``. A row of zeros has no cosine, no samples and no GMM: its features are all zero (that of
random binning, for which it is a point like others, excepted).

- `base`: input, threads, and what a pickled copy leaves out
- `dense_features`: Fourier and Nyström features
- `one_hot`: samples as one-hot rows
- `neighbours`: nearest neighbours under GMM

Needs the extra ``learn`` (scikit-learn); nothing else of the package imports this folder.
"""

from gcws_search.index.transformers.dense_features import (
    FoldedRffFeatures,
    GmmNystroem,
    NrffFeatures,
    RbfNystroem,
    RffFeatures,
)
from gcws_search.index.transformers.one_hot import GcwsFeatures, RandomBinningFeatures

__all__ = [
    "FoldedRffFeatures",
    "GcwsFeatures",
    "GmmNystroem",
    "NrffFeatures",
    "RandomBinningFeatures",
    "RbfNystroem",
    "RffFeatures",
]
