"""Lists before any row is linked: how rows are rounded, and through how many tables walks enter."""

from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, UInt8s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import scan
from gcws_search.index.graph.neighbour_graph import NeighbourGraph
from gcws_search.index.hashing.banding import FIRST_TABLES
from gcws_search.index.kernels.quantized.rows import SPARSE
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.quantization import Quantizer, choose_quantizer, dimension

_ROWS_OF_TABLES: Final = 150_000
_ROWS_TO_DOUBLE: Final = 8
"""Walks enter through the first tables (`bands.FIRST_TABLES`), while there are no more rows than
that; through twice as many up to this many times the rows. A key's neighbours are near rows less
often the more rows there are: of 1,000,000 in 10,000 clusters no beam brought recall beyond 0.988
through 8 tables, nor beyond 0.997 through 16."""
_FEW_DIMENSIONS: Final = 10.0
_SAMPLED: Final = 64
_NEAR: Final = 64
"""Roundings and dimensions are judged by so many rows, and by so many rows near to each."""


def choose_entry_tables(rows: int, bands: int) -> int:
    """Return through how many of ``bands`` tables walks over so many rows enter."""
    tables = FIRST_TABLES
    while rows > _ROWS_OF_TABLES and tables < bands:
        rows //= _ROWS_TO_DOUBLE
        tables *= 2
    return min(tables, bands)


def empty_graph(rows: VectorBatch, alive: UInt8s, bands: int, workers: Workers) -> NeighbourGraph:
    """Return empty lists of all rows, rounded as far as near rows stay apart.

    Parameters
    ----------
    rows : VectorBatch
    alive : (n,) uint8
    bands : int
        Tables that there can be.
    workers : Workers
    """
    through = choose_entry_tables(len(rows), bands)
    if rows.form == "sparse":
        return NeighbourGraph(Quantizer(SPARSE), rows, through)
    groups, centres = near_groups(rows, alive, workers)
    narrow = dimension(groups, centres) < _FEW_DIMENSIONS
    rounding = choose_quantizer(groups, centres, rows.dense)
    return NeighbourGraph(rounding, rows, through, narrow=narrow)


def near_groups(rows: VectorBatch, alive: UInt8s, workers: Workers) -> tuple[Float32s, Float32s]:
    """Return the rows nearest to some rows, to judge roundings by.

    Returns
    -------
    groups : (g, near, width) float32
    centres : (g, width) float32
    """
    live = np.flatnonzero(alive)
    centres = live[:: max(1, len(live) // _SAMPLED)][:_SAMPLED]
    view = RowView(rows, alive, len(live))
    near = min(_NEAR, len(live) - 1)
    found = scan(
        view,
        rows[centres],
        SearchParams(limit=near, recall=1.0),
        skip=centres,
        inverted=InvertedIndex(),
        workers=workers,
    )
    return rows.dense[found.rows[:, :near]], rows.dense[centres]
