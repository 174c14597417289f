"""One immutable version of the GCWS index."""

from __future__ import annotations

from dataclasses import dataclass

from gcws_search.index.backends.delta import NONE, Delta
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.lsh.tables import Tables


@dataclass(frozen=True, slots=True)
class GcwsState:
    """The index of a number of rows.

    Attributes
    ----------
    tables : Tables
        As many as have been needed: the first, and those that a graph or proofs want beside.
    inverted : InvertedIndex
        For exact scans of sparse rows; empty for dense ones.
    graph : GraphSearch or None
        The neighbour graph of the same rows, once it is built.
    delta : Delta
        Newer rows, which are in none of these; none before a graph is judged or built.
    scanned : int
        The number of rows for which scans were found to be as quick as a graph; or 0.
    """

    tables: Tables
    inverted: InvertedIndex
    graph: GraphSearch | None = None
    delta: Delta = NONE
    scanned: int = 0

    @property
    def is_settled(self) -> bool:
        """Whether a graph has been built, or found to be of no use."""
        return self.graph is not None or self.scanned > 0
