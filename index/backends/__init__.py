"""Backends behind one protocol."""

from __future__ import annotations

from typing import Any

from index.backends.exact import ExactBackend
from index.backends.features import FeatureBackend
from index.backends.gcws import GcwsBackend
from index.backends.protocol import Backend
from index.backends.random_binning import RandomBinningBackend
from index.parallel import Workers
from index.params import (
    CollectionConfig,
    ExactParams,
    FourierParams,
    GcwsParams,
    NystroemParams,
    RandomBinningParams,
)
from index.saved import Saved

__all__ = [
    "ExactBackend",
    "FeatureBackend",
    "GcwsBackend",
    "RandomBinningBackend",
    "Saved",
    "make_backend",
]


def make_backend(config: CollectionConfig, *, threads: int | None = None) -> Backend[Any]:
    """Return the backend a configuration asks for.

    Parameters
    ----------
    config : CollectionConfig
    threads : int or None
        Threads for its kernels; None takes as many as the process may use.
    """
    workers = Workers(threads)
    params = config.backend
    match params:
        case ExactParams():
            return ExactBackend(config, workers)
        case GcwsParams():
            return GcwsBackend(config, params, workers)
        case FourierParams() | NystroemParams():
            return FeatureBackend(config, params, workers)
        case RandomBinningParams():
            return RandomBinningBackend(config, params, workers)
