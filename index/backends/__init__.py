"""Search methods behind one protocol."""

from __future__ import annotations

from index.backends.exact import ExactBackend
from index.backends.gcws import GcwsBackend
from index.parallel import Workers
from index.params import CollectionConfig, ExactParams

__all__ = ["AnyBackend", "ExactBackend", "GcwsBackend", "make_backend"]

AnyBackend = GcwsBackend | ExactBackend


def make_backend(config: CollectionConfig, *, threads: int | None = None) -> AnyBackend:
    """Return the backend a configuration asks for.

    Parameters
    ----------
    config : CollectionConfig
    threads : int or None
        Threads for its kernels; None takes as many as the process may use.
    """
    workers = Workers(threads)
    if isinstance(config.backend, ExactParams):
        return ExactBackend(config, workers)
    return GcwsBackend(config, config.backend, workers)
