"""What takes thousands of rows in earnest, done from a few rows on."""

from math import inf
from typing import Final

from gcws_search.index import Policies
from gcws_search.index.contracts.policies import ProbePolicy
from gcws_search.index.graph.lifecycle import GraphPolicy
from gcws_search.index.graph.search_plan import SearchPolicy

DEAR_SCANS: Final = ProbePolicy(scan_factor=20.0)
"""Scans are thought to take longer: so few rows would not be probed for."""

FREE_SEARCHES: Final = SearchPolicy(
    search_nanoseconds=0.0,
    row_nanoseconds=1e-9,
    byte_nanoseconds=0.0,
    entry_nanoseconds=0.0,
    place_nanoseconds=0.0,
)
"""Searches of the graph are thought to take no time: so few rows would be scanned."""

FREE_HASHING: Final = Policies(
    probe=ProbePolicy(hashing=inf, hashing_of_tried=inf, dense_nanoseconds=0.0, scan_factor=2.0)
)
"""Every query is hashed, and probed for until that takes as long as a scan is thought to."""

FEW_ROWS: Final = Policies(
    graph=GraphPolicy(min_rows=64),
    probe=DEAR_SCANS,
    min_dead=64,
    checkpoint_rows=64,
    min_free_pages=1,
    free_share=1 << 20,
)
"""Small collections forget dead rows, have graphs, write them, and are asked by tables.

Files give nearly every free page back.
"""


def graphs_from(rows: int) -> Policies:
    """Let collections of so many rows have graphs."""
    return Policies(graph=GraphPolicy(min_rows=rows))


def compacting_from(rows: int, *, in_background: bool = False) -> Policies:
    """Let collections forget more dead rows than these."""
    if in_background:
        return Policies(min_dead=rows, max_foreground_rows=0, max_dead_ratio=inf)
    return Policies(min_dead=rows)
