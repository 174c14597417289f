"""Policies of searches by hash tables, and of near-duplicate pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePolicy:
    """When a query is searched for by hash tables, and not by a scan.

    scan_factor: a scan is taken to cost what the cost model says, times this.
    hashing, hashing_of_tried: share of a scan's time that hashing may take, and what goes with it:
        of a lone query, and where it is known what tables have won of late, or a few queries of a
        call are tried first. With 0.5 for both, lone proofs of texts took 1.1 times as long.
    dense_nanoseconds, sparse_nanoseconds: what a call takes beside hashing and probing: sparse
        queries are hashed and found to be scanned in more steps, which a lone query pays for. With
        a tenth, lone proofs of texts took 1.1 times as long.
    many: queries from which a call is one of many.
    tried: queries of a call of many that are tried first. Where tables have not paid for these, the
        others are scanned without being hashed.
    tries: where proofs of lone queries have taken longer than scans of late, one in this many is
        tried all the same.
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
    """How near-duplicate pairs are looked for.

    max_pairs: more pairs than this are not listed at once.
    max_edges: more pairs than this are not held to make groups of them: 16 bytes each.
    capacity: pairs that a thread lists before they are offered.
    max_unscored: pairs offered before they are scored.
    sampled, max_sampled: rows all of whose partners are found by comparing them with all rows. More
        partners in all than ``max_sampled`` say that there is nothing to be won.
    max_partners: partners of a sampled row that are judged by.
    min_gain: the graph is tried where other joins take this many times what the sample takes.
    patience: tried in turn; see `kernels.graph.pair_walk.PairRule`.
    call_rows: rows searched from before the score wanted is looked up again.
    min_place_bits, max_place_bits: of the number of a place in a prefix join;
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
