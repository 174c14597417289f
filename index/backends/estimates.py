"""Search without exact scores: candidates of the tables, ranked by the samples they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gcws_search.index.backends.rerank import Ranked, packed
from gcws_search.index.contracts.arrays import Int64s, UInt16s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import BANDS, DEPTH, TABLES, BatchHits, RowView
from gcws_search.index.contracts.parameters import GcwsParams, SearchParams
from gcws_search.index.exact.scan import ranked
from gcws_search.index.hashing.banding import BandPlan
from gcws_search.index.hashing.gcws import Gcws
from gcws_search.index.kernels.lsh import gather as counters
from gcws_search.index.kernels.lsh.gather import COUNTERS
from gcws_search.index.lsh.gather import gathered
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.threads import Workers


@dataclass(frozen=True, slots=True)
class SampledSearch:
    """Search by the share of samples that collide with a query's.

    The samples are those of the tables, drawn again. Chance collisions of b-bit codes are
    taken off: of unrelated samples a share of 2^-b collides ([BBIT]).

    Attributes
    ----------
    plan : BandPlan
    hash : Gcws
    params : GcwsParams
    keys_of : callable
        Returns the (m, L) keys of queries.
    tables : Tables
        Of all rows.
    workers : Workers
    """

    plan: BandPlan
    hash: Gcws
    params: GcwsParams
    keys_of: Callable[[VectorBatch], UInt64s]
    tables: Tables
    workers: Workers

    def search(
        self, view: RowView, queries: VectorBatch, params: SearchParams, skip: Int64s
    ) -> BatchHits:
        """Return candidates by their estimates.

        Parameters
        ----------
        view : RowView
        queries : VectorBatch
        params : SearchParams
        skip : (m,) int64
            A row that a query must not return, or -1.
        """
        m = len(queries)
        chance = 2.0**-self.params.bits if self.params.encoding == "b_bit" else 0.0
        keys, ours = self.keys_of(queries), self._codes(queries)
        counts = np.zeros((m, COUNTERS), np.int64)
        candidates = np.zeros(m, np.int64)
        answers: list[Ranked | None] = [None] * m

        def answer(first: int, last: int) -> None:
            some = slice(first, last)
            found = gathered(
                self.plan,
                self.tables,
                view,
                keys[some],
                skip[some],
                pool=params.pool,
                counts=counts[some],
            )
            for i, rows in enumerate(found, first):
                candidates[i] = len(rows)
                share = np.mean(self._codes(view.vectors[rows]) == ours[i], axis=1)
                estimates = np.maximum(0.0, (share - chance) / (1.0 - chance))
                answers[i] = ranked(rows, estimates, params)

        self.workers.split(m, answer)
        hits = packed(
            TABLES, [each for each in answers if each is not None], candidates=candidates, scored=0
        )
        hits.work[:, BANDS] = self.tables.bands
        hits.work[:, DEPTH] = counts[:, counters.DEPTH]
        return hits

    def _codes(self, batch: VectorBatch) -> UInt16s | UInt64s:
        """Return (n, samples): what keys keep of each sample, equal where samples collide."""
        signatures = self.hash.sketch(batch)
        if self.params.encoding == "b_bit":
            return signatures.codes(self.params.bits, self.plan.samples)
        slots = signatures.slots[:, : self.plan.samples].astype(np.uint64)
        if self.params.encoding == "zero_bit":
            return slots
        levels = signatures.levels[:, : self.plan.samples].view(np.uint32).astype(np.uint64)
        return slots << np.uint64(32) | levels
