"""Every search method behind one interface, `index.backend`.

- `gcws`: the primary backend: chooses among graph, tables and scan; its state; the delta, which
  has committed rows that are not in the index yet
- `exact`: a scan for every query
- `policies`: all policies of a collection in one object
"""

from __future__ import annotations

from typing import Any

from gcws_search.index.backend import Backend
from gcws_search.index.backends.exact import ExactBackend
from gcws_search.index.backends.gcws import GcwsBackend
from gcws_search.index.backends.policies import POLICIES, Policies
from gcws_search.index.comparison.features import FeatureBackend
from gcws_search.index.comparison.random_binning import RandomBinningBackend
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    ExactParams,
    FourierParams,
    GcwsParams,
    NystroemParams,
    RandomBinningParams,
)
from gcws_search.index.contracts.saved_index import SavedIndex
from gcws_search.index.threads import Searches, Workers

__all__ = [
    "POLICIES",
    "ExactBackend",
    "FeatureBackend",
    "GcwsBackend",
    "Policies",
    "RandomBinningBackend",
    "SavedIndex",
    "make_backend",
]


def make_backend(
    config: CollectionConfig,
    *,
    threads: int | None = None,
    policies: Policies = POLICIES,
    searches: Searches | None = None,
) -> Backend[Any]:
    """Return the backend that a configuration specifies.

    Without ``threads`` its kernels take as many as the process may use. Background work yields to
    ``searches``.
    """
    workers = Workers(threads, searches=searches)
    params = config.backend
    match params:
        case ExactParams():
            return ExactBackend(config, workers)
        case GcwsParams():
            return GcwsBackend(config, params, workers, policies)
        case FourierParams() | NystroemParams():
            return FeatureBackend(config, params, workers)
        case RandomBinningParams():
            return RandomBinningBackend(config, params, workers)
