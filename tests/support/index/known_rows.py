"""Rows, held-out queries and all their scores, made once."""

import zlib
from functools import cache

import numpy as np
import numpy.typing as npt

from gcws_search.index.backends import Policies
from gcws_search.index.contracts.parameters import CollectionConfig, Encoding, GcwsParams
from tests.support.data import generated
from tests.support.index.policies import DEAR_SCANS
from tests.support.index.small_index import Rows, SmallIndex, all_scores

RELATIVE = 1e-12
"""Roundings of some thousand float64 sums."""
FLOAT32_TIES = 1e-6
"""Hits are ranked by float32 scores while probing: closer scores may change places."""
DIM = 24
ROWS = 6000
QUERIES = 40
KINDS = ["dense", "near-duplicates", "counts"]


def made(kind: str, rng: np.random.Generator, n: int = ROWS) -> tuple[Rows, Rows, int]:
    """Return rows, held-out queries and the dimension."""
    if kind == "dense":
        return *generated.clustered(rng, n, QUERIES, dim=DIM), DIM
    if kind == "near-duplicates":
        return *generated.near_duplicates(rng, n, QUERIES, dim=DIM), DIM
    return *generated.counts(rng, n, QUERIES), 400


def asked(config: CollectionConfig, *, threads: int = 1) -> SmallIndex:
    """Return an empty index whose tables are asked, however few its rows are."""
    return SmallIndex(config, threads=threads, policies=Policies(probe=DEAR_SCANS))


@cache
def known(kind: str) -> tuple[Rows, Rows, npt.NDArray[np.float64]]:
    """Return rows, held-out queries and all their scores, made once."""
    rows, queries, dim = made(kind, np.random.default_rng(zlib.crc32(kind.encode())))
    return rows, queries, all_scores(queries, rows, dim)


@cache
def encoded(kind: str, encoding: Encoding, seed: int) -> SmallIndex:
    """Return an index of the known rows, made once."""
    params = GcwsParams(bands=24, seed=seed, encoding=encoding, bits=4)
    return asked(config_of(kind, params)).add(known(kind)[0])


def config_of(kind: str, params: GcwsParams) -> CollectionConfig:
    return CollectionConfig(dim=None if kind == "counts" else DIM, backend=params)
