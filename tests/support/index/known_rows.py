"""Rows, held-out queries and all their scores, made once, and how to have tables asked."""

import zlib
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from gcws_search.index import cost_model
from gcws_search.index.contracts.parameters import CollectionConfig, Encoding, GcwsParams
from gcws_search.index.lsh import probe
from tests.support.data import generated
from tests.support.index.small_index import Rows, SmallIndex, all_scores

RELATIVE = 1e-12
"""Roundings of some thousand float64 sums."""
FLOAT32_TIES = 1e-6
"""Hits are ranked by float32 scores while probing: closer scores may change places."""
DIM = 24
ROWS = 6000
QUERIES = 40
KINDS = ["dense", "near-duplicates", "counts"]
_DEAR = 20.0


def make_scans_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the planner believe that scans take longer: so few rows would not be probed for."""
    foreseen, most = cost_model.scan_nanoseconds, cost_model.most_scan_nanoseconds
    monkeypatch.setattr(probe, "scan_nanoseconds", lambda *given: _DEAR * foreseen(*given))
    monkeypatch.setattr(probe, "most_scan_nanoseconds", lambda *given: _DEAR * most(*given))


def made(kind: str, rng: np.random.Generator, n: int = ROWS) -> tuple[Rows, Rows, int]:
    """Return rows, held-out queries and the dimension."""
    if kind == "dense":
        return *generated.clustered(rng, n, QUERIES, dim=DIM), DIM
    if kind == "near-duplicates":
        return *generated.near_duplicates(rng, n, QUERIES, dim=DIM), DIM
    return *generated.counts(rng, n, QUERIES), 400


@cache
def known(kind: str) -> tuple[Rows, Rows, npt.NDArray[np.float64]]:
    """Return rows, held-out queries and all their scores, made once."""
    rows, queries, dim = made(kind, np.random.default_rng(zlib.crc32(kind.encode())))
    return rows, queries, all_scores(queries, rows, dim)


@cache
def encoded(kind: str, encoding: Encoding, seed: int) -> SmallIndex:
    """Return an index of the known rows, made once."""
    params = GcwsParams(bands=24, seed=seed, encoding=encoding, bits=4)
    return SmallIndex(config_of(kind, params)).add(known(kind)[0])


def config_of(kind: str, params: GcwsParams) -> CollectionConfig:
    return CollectionConfig(dim=None if kind == "counts" else DIM, backend=params)
