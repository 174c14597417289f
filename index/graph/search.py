"""Search of a neighbour graph: plan once for all that ask for the same, then run the ladder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, Int64s, UInt8s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import GRAPH, BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.cost_model import dense_scan_nanoseconds
from gcws_search.index.graph.neighbour_graph import (
    SEEN_A_PLACE,
    NeighbourGraph,
    NeighbourLinks,
)
from gcws_search.index.graph.recall_curve import BeamSetting, Calibration
from gcws_search.index.graph.scratch import ScratchSizes
from gcws_search.index.graph.search_plan import (
    PlanKey,
    SearchPlan,
    SearchPolicy,
    Skipped,
    Stage,
)
from gcws_search.index.kernels.gmm.tiled_scan import MANY
from gcws_search.index.kernels.graph.batch_search import Found, Plan, Visible, search_graph
from gcws_search.index.kernels.graph.queries import Queries
from gcws_search.index.kernels.quantized.rows import BYTES, SHORTS
from gcws_search.index.lsh.band_keys import BandKeys
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.quantization import NAMES

_PERCENT: Final = 100
_NOTHING_HIDDEN: Final = np.empty(0, np.uint8)
_HIGH_CONTRAST: Final = 1.0
"""Factor of `Calibration.low_contrast` by which no query is extended."""
_MIN_PART: Final = 8
"""Queries of a thread's part, at least."""


@dataclass(frozen=True, slots=True)
class GraphHits:
    """What a search of the graph found for m queries.

    Attributes
    ----------
    hits : BatchHits
    outcomes : (m,) uint8
        See `Outcome`.
    """

    hits: BatchHits
    outcomes: UInt8s


@dataclass(frozen=True, slots=True)
class GraphSearch:
    """Search over one state of the neighbour graph.

    Attributes
    ----------
    neighbours : NeighbourGraph
        Shared with the states before and after.
    links : NeighbourLinks
        This state's.
    calibration : Calibration
        `NOT_CALIBRATED` while the graph is built.
    built : int
        Rows there were when the graph was last built in random order.
    keying : BandKeys
    workers : Workers
        Threads of searches.
    policy : SearchPolicy
    """

    neighbours: NeighbourGraph
    links: NeighbourLinks
    calibration: Calibration
    built: int
    keying: BandKeys
    workers: Workers
    policy: SearchPolicy
    _plans: dict[PlanKey, SearchPlan | Skipped] = field(default_factory=dict, init=False)

    def plan(
        self, tables: Tables, view: RowView, params: SearchParams, queries: int
    ) -> SearchPlan | Skipped:
        """Return how to search, or why the graph is not searched.

        Parameters
        ----------
        tables : Tables
        view : RowView
        params : SearchParams
        queries : int
            How many come in one call: a batch is scanned in less time for each.
        """
        if not self._applies(view, params):
            return Skipped.NOT_APPLICABLE
        if self.neighbours.drift.has_drifted:
            return Skipped.DRIFTED
        live = view.permitted_count if view.sample is None else view.sample.live
        together = 1 if queries == 1 else self._together(queries // self.workers.threads)
        key = (
            params.limit,
            params.recall,
            len(view.vectors),
            view.permitted_count,
            live,
            len(tables.segments),
            together,
        )
        known = self._plans.get(key)
        if known is None:
            if len(self._plans) >= self.policy.max_plans:  # any recall may be asked for
                self._plans.clear()
            known = self._plans[key] = self._new_plan(tables, view, params, together)
        return known

    def _applies(self, view: RowView, params: SearchParams) -> bool:
        """Return whether the graph may answer at all."""
        return (
            params.recall < 1
            and params.guarantee == "measured"
            and view.permitted_count > 2 * params.limit
            and view.permitted_count * self.policy.max_filtered > len(view.vectors)
        )

    def _together(self, queries: int) -> int:
        """Return a power of two that stands for so many queries: plans are remembered."""
        if queries < MANY:
            return 1
        return min(self.policy.max_together, 1 << (queries.bit_length() - 1))

    def _new_plan(
        self, tables: Tables, view: RowView, params: SearchParams, together: int
    ) -> SearchPlan | Skipped:
        setting = self.setting(view, params)
        if setting is None:
            return Skipped.NO_SETTING
        if self.nanoseconds(view, setting) > self.scan_nanoseconds(view, together):
            return Skipped.SCAN_IS_QUICKER
        share = max(1, view.permitted_count) / len(view.vectors)
        known = self.calibration
        return self.plan_for(
            tables,
            view,
            params.limit,
            setting,
            low_contrast=known.low_contrast,
            low_score=setting.low_score,
            out_of_range=(
                known.out_of_range(ceil(params.limit / share), setting.number),
                known.out_of_range(ceil(1 / share), setting.number),
            ),
        )

    def plan_for(
        self,
        tables: Tables,
        view: RowView,
        limit: int,
        setting: BeamSetting,
        *,
        low_contrast: float = _HIGH_CONTRAST,
        low_score: float = 0.0,
        out_of_range: tuple[float, float] = (0.0, 0.0),
    ) -> SearchPlan:
        """Return how to search with a beam setting, whatever a scan takes.

        Parameters
        ----------
        tables : Tables
        view : RowView
        limit : int
        setting : BeamSetting
        low_contrast : float
            See `Calibration`; 1 extends no search.
        low_score : float
            Queries whose last hit scores less are searched for again; 0 for none.
        out_of_range : (float, float)
            Least scores of the last and of the first hit.
        """
        first, last = self._reranked(limit, setting)
        off = {
            Stage.EXTENSION: low_contrast >= _HIGH_CONTRAST or setting.slack < inf,
            Stage.SECOND_SEARCH: low_score <= 0,
            Stage.DEEPER_RERANK: first == last,
            Stage.RANGE_CHECK: max(out_of_range) <= 0,
        }
        stages = tuple(stage for stage in self.policy.stages if not off.get(stage, False))
        entry_tables = setting.tables(self.links.entry_tables)
        settings = (setting, setting.extension(), setting.second())
        beams = [(each.beam + 1, each.max_expanded, each.slack) for each in settings]
        quantizer = self.links.quantized.rounding
        kernel = Plan(
            np.array([GRAPH, entry_tables, 0, 0, 0, 0]),
            setting.recall,
            np.array(beams),
            min(setting.beam, max(setting.places, limit)),
            first,
            last if Stage.DEEPER_RERANK in stages else first,
            float(quantizer.step) if quantizer.kind in (BYTES, SHORTS) else 0.0,
            float(low_contrast) if Stage.EXTENSION in stages else _HIGH_CONTRAST,
            float(low_score) if Stage.SECOND_SEARCH in stages else 0.0,
            *(map(float, out_of_range) if Stage.RANGE_CHECK in stages else (0.0, 0.0)),
        )
        sizes = self._sizes(tables, view, settings[-1])
        return SearchPlan(setting, entry_tables, stages, sizes, kernel)

    def _reranked(self, limit: int, setting: BeamSetting) -> tuple[int, int]:
        """Return how many rows are scored exactly at first, and in all."""
        policy, kind = self.policy, self.links.quantized.rounding.kind
        first = last = limit + policy.spare
        if kind in (BYTES, SHORTS):
            first = max(first, policy.min_quantized)
            last = limit + max(policy.spare_quantized, limit // 2 if kind == BYTES else 0)
        held = setting.beam + 1
        return min(held, first), min(held, last)

    def _sizes(self, tables: Tables, view: RowView, widest: BeamSetting) -> ScratchSizes:
        """Return the scratch memory of a search with a beam."""
        n, beam = len(view.vectors), widest.beam + 1  # the skipped row may take a place
        room = max(self.policy.min_room, SEEN_A_PLACE * beam)
        if view.permitted_count < n:
            room *= self.policy.max_filtered
        return self.neighbours.sizes(tables, beam, min(room, n + beam))

    def setting(self, view: RowView, params: SearchParams) -> BeamSetting | None:
        """Return the beam setting of a search, None where none that was measured is enough.

        The best k of a share p of the rows are among the best k / p of all, which the search must
        reach. A filter may be correlated with where rows are, and nothing was measured of rows
        newer than the calibration. Both count as doubt: in full doubt half of the miss is allowed.
        """
        rows = len(view.vectors)
        measured = self.calibration.rows / max(1, self.built)
        share = min(1.0, view.permitted_count / rows / min(1.0, measured))
        percent = ceil(_PERCENT * share)
        new = min(1.0, self.policy.doubt_growth * (1.0 - self.built / rows))
        doubt = max(_filter_doubt(percent / _PERCENT), new)
        recall = 1.0 - (1.0 - params.recall) * (1.0 - doubt / 2)
        return self._setting(params.limit, recall, percent)

    def _setting(self, limit: int, recall: float, percent: int) -> BeamSetting | None:
        """Return the beam setting for the best ``limit`` of so many per cent of the rows."""
        plain = self.calibration.setting(limit, recall)
        if plain is None or percent == _PERCENT:
            return plain
        share = percent / _PERCENT
        deeper = self.calibration.setting(ceil(limit / share), recall)
        if deeper is None:
            return None
        doubt = _filter_doubt(share)
        number = max(plain.number, deeper.number)
        number += doubt * max(0.0, self.policy.filter_slack * max(1.0, number) - number)
        candidates = (1.0 + doubt) * max(plain.candidates, deeper.candidates)
        places = max(limit, plain.places)
        filtered = BeamSetting.of(number, places, deeper.recall, candidates, deeper.low_score)
        # As many rows are expanded as for the best of all rows among which the hits are.
        expanded = filtered.max_expanded * deeper.places / filtered.places
        return replace(filtered, max_expanded=expanded)

    def nanoseconds(self, view: RowView, setting: BeamSetting) -> float:
        """Return what a search for one query takes."""
        return self.policy.search_nanoseconds + setting.candidates * self._row_nanoseconds(view)

    def candidates_within(self, view: RowView, nanoseconds: float) -> float:
        """Return how many rows one query may score to take no more time."""
        left = nanoseconds - self.policy.search_nanoseconds
        return max(0.0, left) / self._row_nanoseconds(view)

    def _row_nanoseconds(self, view: RowView) -> float:
        policy, vectors = self.policy, view.vectors
        if vectors.form == "dense":
            width = self.links.quantized.copies.shape[1]
            return float(policy.row_nanoseconds + policy.byte_nanoseconds * width)
        entries = len(vectors.values) / max(1, len(vectors))
        return policy.row_nanoseconds + policy.entry_nanoseconds * entries

    def scan_nanoseconds(self, view: RowView, together: int) -> float:
        """Return what the exact scan takes for one query, of so many together in a thread."""
        if view.vectors.form == "dense":
            return dense_scan_nanoseconds(view, together)
        live = view.sample.live if view.sample is not None else view.permitted_count
        return self.calibration.scan_nanoseconds * live

    def search(  # noqa: PLR0913 (what is searched, for what, and what is known of it)
        self,
        plan: SearchPlan,
        tables: Tables,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s,
        *,
        keys: UInt64s | None = None,
        hidden: UInt8s = _NOTHING_HIDDEN,
        pieces: int = 1,
    ) -> GraphHits:
        """Return what the stages of a plan find, before the fall-back.

        Parameters
        ----------
        plan : SearchPlan
        tables : Tables
            Of the same rows.
        view : RowView
        queries : VectorBatch
        params : SearchParams
            ``limit`` and ``min_score`` count here.
        skip : (m,) int64
            A row that a query must not return, or -1.
        keys : (m, tables) uint64 or None
            Keys of the queries in the entry tables, if they are known.
        hidden : (n,) or (0,) uint8
            1 for rows that no link names, and that are treated as if they were not there.
        pieces : int
            See `Workers.split`.
        """
        m, n, limit = len(queries), len(view.vectors), params.limit
        graph = self.links.graph(tables, view.vectors)
        visible = Visible(n, view.permitted, view.permitted_count, hidden)
        copies, copy_norms = self.links.quantized.rounding.round(queries.dense, queries.norms)
        own_keys = self.keying.keys(queries, plan.tables) if keys is None else keys
        sizes, scratch_pool = plan.sizes, self.neighbours.scratch
        if queries.form == "sparse":
            sizes = sizes.for_queries(queries.longest)
        hits = BatchHits(
            np.empty((m, limit), np.int64),
            np.empty((m, limit), np.float64),
            np.empty(m, np.int64),
            np.empty((m, len(plan.kernel.work)), np.int64),
            np.empty(m),
        )
        out = Found(
            hits.scores,
            hits.rows,
            hits.sizes,
            hits.work,
            hits.expected_recall,
            np.empty(m, np.uint8),
        )
        least = float(params.min_score)

        def run(first: int, last: int) -> None:
            some, part = queries, out
            own: tuple[AnyArray, ...] = (copies, copy_norms, own_keys, skip)
            if last - first < m:
                some = queries[first:last]
                own = tuple(each[first:last] for each in own)
                part = Found(*(each[first:last] for each in out))
            asked = Queries(
                own[0],
                own[1],
                some.norms,
                some.dense,
                some.indptr,
                some.slots,
                some.values,
                own[2],
                own[3],
                least,
            )
            scratch = scratch_pool.take(sizes)
            addresses = scratch.addresses if m > 1 else scratch.first
            search_graph(graph, visible, asked, plan.kernel, addresses, part)
            scratch_pool.give(scratch)

        self.workers.split(m, run, least=_MIN_PART, pieces=pieces)
        return GraphHits(hits, out.outcomes)

    def stats(self) -> dict[str, Any]:
        """Return what people may want to know, JSON-able."""
        links = self.links.array
        return {
            "width": links.shape[1],
            "mean_length": float(np.count_nonzero(links >= 0)) / max(1, len(links)),
            "rows_as": NAMES[self.neighbours.rounding.kind],
            "bytes": self.neighbours.nbytes,
            "made_for_rows": self.built,
            "calibration": self.calibration.to_dict(),
        }


def _filter_doubt(share: float) -> float:
    """Return how much is in doubt where only this share of the rows is permitted, 0 to 1."""
    return min(1.0, 2.0 * (1.0 - share))
