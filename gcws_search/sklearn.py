"""GMM for scikit-learn: nearest neighbours, and feature maps whose inner products are kernels.

Needs the extra ``learn``.
"""

from gcws_search.index.transformers import (
    FoldedRffFeatures,
    GcwsFeatures,
    GmmNystroem,
    NrffFeatures,
    RandomBinningFeatures,
    RbfNystroem,
    RffFeatures,
)
from gcws_search.index.transformers.neighbours import GmmKNeighborsTransformer, GmmNeighbors

__all__ = [
    "FoldedRffFeatures",
    "GcwsFeatures",
    "GmmKNeighborsTransformer",
    "GmmNeighbors",
    "GmmNystroem",
    "NrffFeatures",
    "RandomBinningFeatures",
    "RbfNystroem",
    "RffFeatures",
]
