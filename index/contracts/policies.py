"""Policies of searches by hash tables, and of near-duplicate pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePolicy:
    """When hash tables, and not a scan, search for a query.

    scan_factor: factor on the time of a scan in the cost model.
    hashing, hashing_of_tried: share of a scan's time that hashing and its overhead may take: for a
        single query without experience; and if recent results of tables are known, or a few queries
        of a call are tried first. With 0.5 for both, single proofs of texts took 1.1 times as long.
    dense_nanoseconds, sparse_nanoseconds: time of a call besides hashing and probing: sparse
        queries need more steps until a scan is chosen, which a single query pays for. With a tenth,
        single proofs of texts took 1.1 times as long.
    many: number of queries from which a call counts as large.
    tried: queries of a large call that are tried first. If tables were slower for these, the others
        are scanned without being hashed.
    tries: if recent proofs of single queries took longer than scans, one in this many is still
        tried.
    """

    scan_factor: float = 1.0
    hashing: float = 0.1
    hashing_of_tried: float = 0.5
    dense_nanoseconds: float = 15_000.0
    sparse_nanoseconds: float = 150_000.0
    many: int = 64
    tried: int = 8
    tries: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPolicy:
    """How near-duplicate pairs are searched for.

    max_pairs: maximum number of pairs in a list.
    max_edges: maximum number of pairs held to form groups, 16 bytes each.
    capacity: pairs that a thread collects before it offers them.
    max_unscored: pairs offered before they are scored.
    sampled, max_sampled: rows whose partners are found by comparing them with all rows. If these
        have more than ``max_sampled`` partners in total, a join cannot save time.
    max_partners: partners of a sampled row that are used as a measure.
    min_gain: the graph is tried if other joins take this many times as long as the sample.
    patience: values tried in turn; see `kernels.graph.pair_walk.PairRule`.
    call_rows: rows searched from before the required score is read again.
    min_place_bits, max_place_bits: bits of the number of a place in a prefix join;
        `kernels.sparse.prefix_join` has room for 20.
    """

    max_pairs: int = 2_000_000
    max_edges: int = 20_000_000
    capacity: int = 1 << 18
    max_unscored: int = 1 << 20
    sampled: int = 256
    max_sampled: int = 1 << 20
    max_partners: int = 16
    min_gain: float = 3.0
    patience: tuple[int, ...] = (0, 8, 32)
    call_rows: int = 4096
    min_place_bits: int = 12
    max_place_bits: int = 20


PAIR_POLICY: Final = PairPolicy()
