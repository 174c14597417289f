"""All policies of a collection in one object, which the catalog hands down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gcws_search.index.contracts.policies import (
    CHUNK_BYTES,
    AuditPolicy,
    CheckpointPolicy,
    CompactionPolicy,
    DeltaPolicy,
    OptimizerPolicy,
    PairPolicy,
    ProbePolicy,
    ReclaimPolicy,
)
from gcws_search.index.graph.lifecycle import GraphPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """What is handed from a catalog to its collections, and from these to their parts."""

    graph: GraphPolicy = field(default_factory=GraphPolicy)
    probe: ProbePolicy = field(default_factory=ProbePolicy)
    pairs: PairPolicy = field(default_factory=PairPolicy)
    delta: DeltaPolicy = field(default_factory=DeltaPolicy)
    chunk_bytes: int = CHUNK_BYTES
    """Of rows that a start reads at a time, about."""
    max_ties: int = 1 << 25
    """Queries searched for together times rows: all rows may tie, where all items are equal."""
    max_groups: int = 64
    """Commits of queued writes after which a borrowed thread is given back."""
    compaction: CompactionPolicy = field(default_factory=CompactionPolicy)
    checkpoints: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    reclaim: ReclaimPolicy = field(default_factory=ReclaimPolicy)
    optimizer: OptimizerPolicy = field(default_factory=OptimizerPolicy)
    audit: AuditPolicy = field(default_factory=AuditPolicy)


POLICIES: Final = Policies()
"""Those of the program."""
