"""What the GCWS index of a number of rows is made of."""

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
        Neighbour lists of the same rows, once they have been made.
    delta : Delta
        Later rows, which are in none of these; none where a graph has yet to be judged or built.
    scanned : int
        For so many rows scans were found to be as quick, and no graph is built; or 0.
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
