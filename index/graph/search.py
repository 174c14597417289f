"""Search of a neighbour graph: one plan for equal requests, then its stages."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.analysis import CostCurve, CurvePoint
from gcws_search.index.contracts.arrays import Int64s, UInt8s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import BEAM, GRAPH, BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.cost_model import Tally, dense_scan_nanoseconds
from gcws_search.index.graph.neighbour_graph import NeighbourGraph, NeighbourLinks
from gcws_search.index.graph.recall_curve import (
    MIN_BEAM,
    NO_EXTENSION,
    SLACK_PLACES,
    UNLIMITED,
    BeamSetting,
    Calibration,
    Extension,
    SearchSetting,
)
from gcws_search.index.graph.recall_watch import MissAllowance
from gcws_search.index.graph.search_plan import (
    TRIED,
    PlanKey,
    SearchPlan,
    SearchPolicy,
    Skipped,
    Stage,
)
from gcws_search.index.hashing.banding import FIRST_TABLES
from gcws_search.index.kernels.gmm.tiled_scan import MANY
from gcws_search.index.kernels.graph.batch_search import Found, Plan, Visible, search_graph
from gcws_search.index.kernels.graph.beam_search import Graph
from gcws_search.index.kernels.graph.entry_points import ROWS_A_SIDE
from gcws_search.index.kernels.graph.queries import Queries
from gcws_search.index.kernels.hashing.gcws_table import Hashing
from gcws_search.index.kernels.quantized.rows import BYTES, FLOATS, SHORTS, SPARSE
from gcws_search.index.lsh.band_keys import BandKeys
from gcws_search.index.lsh.tables import NO_TABLES, Tables
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.quantization import NAMES

_PERCENT: Final = 100
_RECALLS: Final = range(50, _PERCENT)
"""Per cent of the hits that curves are for."""
_DOUBT_STEPS: Final = 32
"""Doubt is rounded up to 1/_DOUBT_STEPS: finding a setting takes longer than a search."""
_NOTHING_HIDDEN: Final = np.empty(0, np.uint8)
_TO_BE_DRAWN: Final = np.empty((0, 0), np.uint64)
"""In the place of keys that the kernel draws."""
_KNOWN: Final = Hashing(np.empty(0, np.float32), 0, 0, 0, 0, False)
"""How keys are drawn that are known."""
_NEAREST: Final = {BYTES: 0.02, SHORTS: 0.002, FLOATS: 1e-5, SPARSE: 1e-5}
"""The least distance that rows tell from others, by how they are quantized."""
_MIN_PART: Final = 8
"""Queries of a thread's part, at least."""
_SPARE: Final = 4
"""Rows scored exactly beyond the limit at first."""
_SPARE_QUANTIZED: Final = 10
"""Rows scored exactly beyond the limit in all where hits are in doubt; of bytes half the limit, if
that is more. Rows of 45 raw numbers in int16 reached recall 0.989 with 4, and 0.994 with 10."""
_SPARE_EXTENDED: Final = 90
"""Rows of bytes scored exactly beyond the limit of an extended search where hits are in doubt, or
the limit if that is more. Of sums of two clustered rows 0.95 of the hits were found with 90, 0.89
with 10."""
_MAX_MISSED: Final = 0.25
"""Hits that quantization may hide are accepted up to this number for each wanted. Without, sums
beside a tight group found 0.74 for 0.8."""
_HIDDEN: Final = 0.5
"""Where the first hits tie, quantization may hide this share of the miss expected. Without, queries
in a tight group found 0.93 for 0.99."""
TIED_SHARE: Final = 0.25
"""The first hits of a query tie if their distances differ by less than this share of the usual."""
_MIN_SAVING: Final = 0.1
"""Share of a scan's time that a search is expected to save at least: a scan finds all. Without,
searches for sentences took twice a scan's time at 0.993."""
_IN_TURN: Final = 0.5
"""Share of its time alone that a row takes where searches take their steps in turn."""
_SCAN_HIT: Final = 1000.0
"""Nanoseconds of a scan for each hit wanted: 550 to 2,400."""
_SURE: Final = 0.5
"""A search that has taken no more than this share of a scan's time is not watched for its cost any
more. With all unwatched, searches for 200 clustered rows took 3.6 times as long as scans."""
_NEARLY_ALL: Final = 0.99
_BUDGET, _FILTERED_BUDGET = 1.5, 0.8
"""Share of a scan's time after which a search is left to the fall-back: where at least the first
share of the rows is permitted, and under a filter, which makes the pool larger."""
_DOUBT_GROWTH: Final = 10.0
"""All is in doubt once one row in this many is newer than the calibration."""
_TRIES: Final = 64
"""Where searches under a filter have taken longer than scans, one call in this many is searched for
all the same. Filters that leave out the rows near to a query then take 1.3 to 1.7 times as long as
scans; if every call were searched for, 3 to 26 times."""
_MAX_TOGETHER: Final = 512
"""A batch of more queries is not scanned in less time for each."""
_MAX_PLANS: Final = 1024
"""Plans that are remembered."""


@dataclass(frozen=True, slots=True)
class GraphSearch:
    """Search over one state of the neighbour graph.

    ``neighbours`` and ``allowance`` are shared with earlier and later states. ``built`` is the
    number of rows when the graph was last built in random order. Searches enter through the first
    ``whole`` tables, which have all rows, and through ``further`` tables of a sample; None until
    these are made.
    """

    neighbours: NeighbourGraph
    links: NeighbourLinks
    calibration: Calibration
    built: int
    band_keys: BandKeys
    workers: Workers
    policy: SearchPolicy
    allowance: MissAllowance = field(default_factory=MissAllowance)
    whole: int = FIRST_TABLES
    further: Tables | None = NO_TABLES
    _entered: list[tuple[Tables, Int64s]] = field(default_factory=list, init=False)
    _plans: dict[PlanKey, SearchPlan | Skipped] = field(default_factory=dict, init=False)

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use."""
        return self.neighbours.nbytes + (0 if self.further is None else self.further.nbytes)

    def segments(self, tables: Tables) -> Int64s:
        """Return the (s, 6) segments of tables that searches enter through; see `Graph`."""
        further = self.further
        if further is None or not further.segments or tables.bands >= self.links.entry_tables:
            return tables.addresses
        known = self._entered
        if not known or known[0][0] is not tables:
            both = np.concatenate([tables.addresses, further.addresses])
            self._entered[:] = known = [(tables, both)]
        return known[0][1]

    def plan(
        self, tables: Tables, view: RowView, params: SearchParams, queries: int
    ) -> SearchPlan | Skipped:
        """Return a plan for a number of queries in one call, or why the graph is not searched.

        A scan takes less time per query in a batch.
        """
        live = view.permitted_count if view.sample is None else view.sample.live
        together = 1 if queries == 1 else self._together(queries // self.workers.threads)
        key = (
            *(params.limit, params.recall, params.guarantee, self.allowance.shares),
            *(self.neighbours.drift.has_drifted, view.vectors.count, view.permitted_count, live),
            *(tables.bands, len(tables.segments), together),
        )
        known = self._plans.get(key)
        if known is None:
            if len(self._plans) >= _MAX_PLANS:  # any recall may be requested
                self._plans.clear()
            known = self._plans[key] = self._new_plan(tables, view, params, together)
        if isinstance(known, Skipped) or known.tally.nanoseconds <= known.scan_nanoseconds:
            return known
        return known if known.tally.try_again(_TRIES) else Skipped.SCAN_IS_QUICKER

    @property
    def nearest(self) -> float:
        """The smallest distance that quantized rows can distinguish from others."""
        return _NEAREST[self.links.quantized.quantizer.kind]

    def _reason_not_to(self, tables: Tables, view: RowView, params: SearchParams) -> Skipped | None:
        """Return why the graph is not searched, regardless of cost; None if it may be."""
        if not self._applies(view, params):
            return Skipped.NOT_APPLICABLE
        if self.further is None:
            return Skipped.TABLES_MISSING
        if self.neighbours.drift.has_drifted:
            return Skipped.DRIFTED
        return None if self.allowance.share(params.limit) else Skipped.AUDITED

    def _applies(self, view: RowView, params: SearchParams) -> bool:
        """Return whether the graph can answer at all."""
        return (
            params.recall < 1
            and params.guarantee == "measured"
            and view.permitted_count > 2 * params.limit
        )

    def _together(self, queries: int) -> int:
        """Return a power of two for the number of queries, so that plans are shared."""
        if queries < MANY:
            return 1
        return min(_MAX_TOGETHER, 1 << (queries.bit_length() - 1))

    def _new_plan(
        self, tables: Tables, view: RowView, params: SearchParams, together: int
    ) -> SearchPlan | Skipped:
        reason = self._reason_not_to(tables, view, params)
        if reason is not None:
            return reason
        setting = self.setting(view, params)
        if setting is None:
            return Skipped.NO_SETTING
        scanning = self.scan_nanoseconds(view, params.limit, together)
        if not self._saves_time(view, setting.first, scanning, together):
            return Skipped.SCAN_IS_QUICKER
        is_filtered = view.permitted_count < _NEARLY_ALL * view.vectors.count
        budget = (_FILTERED_BUDGET if is_filtered else _BUDGET) * scanning
        max_candidates = self.candidates_within(view, budget, setting.first.places, together)
        plan = self.plan_for(tables, view, params.limit, setting, max_candidates=max_candidates)
        return replace(
            plan,
            row_nanoseconds=self._row_nanoseconds(view, 0, together),
            place_nanoseconds=self.policy.place_nanoseconds / SLACK_PLACES,
            scan_nanoseconds=scanning,
            sure_nanoseconds=0.0 if is_filtered else _SURE * scanning,
            tally=Tally(self.nanoseconds(view, setting.first, together)),
        )

    def _saves_time(
        self, view: RowView, setting: BeamSetting, scanning: float, together: int
    ) -> bool:
        """Return whether a search is faster than a scan that takes ``scanning`` nanoseconds."""
        return self.nanoseconds(view, setting, together) <= (1.0 - _MIN_SAVING) * scanning

    def plan_for(
        self,
        tables: Tables,
        view: RowView,
        limit: int,
        setting: SearchSetting,
        *,
        max_candidates: float = inf,
    ) -> SearchPlan:
        """Return the plan for a setting, regardless of the time of a scan.

        A search that sees many more rows than ``max_candidates`` is left to the fall-back.
        """
        policy, beam = self.policy, setting.first
        first, last = self._rerank_counts(limit, beam)
        hard = policy.extension(Stage.EXTENSION, setting.hard)
        foreign = policy.extension(Stage.SECOND_EXTENSION, setting.foreign)
        out_of_range = setting.out_of_range if Stage.RANGE_CHECK in policy.stages else 0.0
        share = view.permitted_count / view.vectors.count
        entry_tables = beam.tables(self.links.entry_tables)
        beams = [
            max(beam.beam + 1, policy.extension_beam(limit, each))  # 1 for a skipped row
            for each in (hard, foreign)
        ]
        beams[1] = max(beams)  # foreign queries have been searched as hard ones before
        is_extended = hard is not NO_EXTENSION or foreign is not NO_EXTENSION
        enters_last = is_extended and out_of_range > 0
        a_side = max(self._rows_a_side(each) for each in (setting.hard, setting.foreign))
        room = max(beams[1], min(policy.max_room, max_candidates), 2 * beam.candidates)
        sizes = self.neighbours.sizes(
            len(self.segments(tables)),
            beams[1],
            min(int(room), view.vectors.count + beams[1]),
            rows_a_side=policy.max_rows_a_side if enters_last else a_side,
        )
        quantizer = self.links.quantized.quantizer
        kind, is_quantized = quantizer.kind, quantizer.kind in (BYTES, SHORTS)
        extended = last
        if kind == BYTES:
            extended = min(sizes.beam, limit + max(_SPARE_EXTENDED, limit))
        levels = [
            (beam.beam + 1, beam.max_expanded, beam.slack, ROWS_A_SIDE, inf, 0.0),
            *(
                (rows, UNLIMITED, each.slack, self._rows_a_side(each), each.score, each.contrast)
                for rows, each in zip(beams, (hard, foreign), strict=True)
                if is_extended
            ),
            *(
                [(beams[1], UNLIMITED, foreign.slack, policy.max_rows_a_side, out_of_range, inf)]
                if enters_last
                else []
            ),
        ]
        kernel = Plan(
            entry_tables,
            np.array([GRAPH, entry_tables, 0, 0, 0, 0]),
            beam.recall,
            np.array(levels),
            min(beam.beam, max(beam.places, limit)),
            min(setting.judged, limit),
            0 if hard is NO_EXTENSION else policy.crowded(limit, share),
            0.0 if hard is NO_EXTENSION else TIED_SHARE * setting.spread,
            self.nearest,
            float(max(0.0, out_of_range)),
            np.array([first, last, extended, sizes.beam]),
            float(quantizer.step) if is_quantized else 0.0,
            quantizer.origin,
            _MAX_MISSED,
            min(_MAX_MISSED, _HIDDEN * (1.0 - beam.recall)),
        )
        return SearchPlan(sizes, kernel, self.band_keys.hashing(entry_tables))

    def _rows_a_side(self, extension: Extension) -> int:
        """Return the number of entry points on each side of a key in an extended search."""
        return self.policy.rows_a_side(extension.slack) if extension.enters_wider else ROWS_A_SIDE

    def _rerank_counts(self, limit: int, setting: BeamSetting) -> tuple[int, int]:
        """Return the number of rows scored exactly at first, and in total.

        For quantized rows, a small limit uses the number of the limit of its calibration.
        """
        kind = self.links.quantized.quantizer.kind
        first = last = limit + _SPARE
        if kind in (BYTES, SHORTS):
            limit = max(limit, MIN_BEAM)
            first = last = limit + _SPARE
            if Stage.DEEPER_RERANK in self.policy.stages:
                last = limit + max(_SPARE_QUANTIZED, limit // 2 if kind == BYTES else 0)
        held = setting.beam + 1
        return min(held, first), min(held, last)

    def setting(self, view: RowView, params: SearchParams) -> SearchSetting | None:
        """Return the setting of a search, None if no measured setting is enough.

        The best k of a share p of the rows are among the best k / p of all rows, which the search
        must reach. A filter may exclude the rows around a query, so it can be harder than the
        foreign queries measured: the extension of such queries aims at half of the allowed misses.

        Rows newer than the calibration were not measured: if all of it is in doubt, half of the
        misses are allowed. Fewer are allowed, too, if audited queries found too little.
        """
        rows = view.vectors.count
        measured = self.calibration.rows / max(1, self.built)
        share = min(1.0, view.permitted_count / rows / min(1.0, measured))
        new = min(1.0, _DOUBT_GROWTH * (1.0 - self.built / rows))
        new = ceil(new * _DOUBT_STEPS) / _DOUBT_STEPS
        allowed = self.allowance.share(params.limit) * (1.0 - new / 2)
        recall = 1.0 - (1.0 - params.recall) * allowed
        return self._setting(params.limit, recall, ceil(_PERCENT * share))

    def _setting(self, limit: int, recall: float, percent: int) -> SearchSetting | None:
        """Return the setting for the best ``limit`` of ``percent`` % of the rows."""
        plain = self.calibration.setting(limit, recall)
        if plain is None or percent == _PERCENT:
            return plain
        share = percent / _PERCENT
        deeper = self.calibration.setting(ceil(limit / share), recall, (1.0 + recall) / 2)
        if deeper is None:
            return None
        near, deep = plain.first, deeper.first
        number = max(near.number, deep.number)
        candidates = max(near.candidates, deep.candidates)
        return SearchSetting(
            BeamSetting.of(number, max(limit, near.places), deep.recall, candidates),
            deeper.hard.maximum(plain.hard),
            deeper.foreign.maximum(plain.foreign),
            deeper.out_of_range,
            max(1, int(deeper.judged * share)),
            plain.spread,
        )

    def nanoseconds(self, view: RowView, setting: BeamSetting, together: int = 1) -> float:
        """Return the time of a search for one query, with ``together`` queries in a thread."""
        row = self._row_nanoseconds(view, setting.places, together)
        return self.policy.search_nanoseconds + setting.candidates * row

    def candidates_within(
        self, view: RowView, nanoseconds: float, places: int, together: int = 1
    ) -> float:
        """Return the rows that a query may score in the given time; see `BeamSetting.places`."""
        left = nanoseconds - self.policy.search_nanoseconds
        return max(0.0, left) / self._row_nanoseconds(view, places, together)

    def _row_nanoseconds(self, view: RowView, places: int, together: int) -> float:
        policy, vectors = self.policy, view.vectors
        row = policy.row_nanoseconds + policy.place_nanoseconds * places
        if vectors.form == "dense":
            row += policy.byte_nanoseconds * self.links.quantized.copies.shape[1]
        else:
            row += policy.entry_nanoseconds * len(vectors.values) / max(1, len(vectors))
        return row if together < MANY else _IN_TURN * row

    def scan_nanoseconds(self, view: RowView, limit: int, together: int) -> float:
        """Return the time of an exact scan for one query, with ``together`` queries in a thread."""
        hits = _SCAN_HIT * limit
        if view.vectors.form == "dense":
            return hits + dense_scan_nanoseconds(view, together)
        live = view.sample.live if view.sample is not None else view.permitted_count
        return hits + self.calibration.scan_nanoseconds * live

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
        min_part: int = _MIN_PART,
        pieces: int = 1,
    ) -> tuple[BatchHits, UInt8s]:
        """Return the hits of a plan's stages, before the fall-back, and (m,) `Outcome`.

        Only ``limit`` and ``min_score`` of ``params`` matter here. ``skip`` has (m,) rows that a
        query must not return, or -1. ``keys`` are those of the queries in the entry tables, if
        known. In (n,) or (0,) ``hidden``, 1 marks rows without links to them, treated as if absent.
        For ``min_part`` and ``pieces`` see `Workers.split`.
        """
        m, n, limit = queries.count, view.vectors.count, params.limit
        links, hashing = self.links, plan.hashing
        addresses = links.quantized.addresses, self.segments(tables)
        graph = Graph(*addresses, links.array.packed)
        visible = Visible(n, view.permitted, view.permitted_count, hidden)
        if keys is None and hashing is None:
            keys = self.band_keys.keys(queries, plan.kernel.tables)
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
        outcomes = np.empty(m, np.uint8)
        out = Found(hits.scores, hits.rows, hits.sizes, hits.work, hits.expected_recall, outcomes)
        min_score = float(params.min_score)

        def run(first: int, last: int) -> None:
            some, part, known, skipped = queries, out, keys, skip
            if last - first < m:
                some, skipped = queries[first:last], skip[first:last]
                known = None if keys is None else keys[first:last]
                part = Found(*(each[first:last] for each in out))
            sparse = some.indptr, some.slots, some.values
            known = _TO_BE_DRAWN if known is None else known
            floats = some.dense if some.holds_bytes else some.floats
            asked = Queries(some.norms, floats, *sparse, known, skipped, min_score)
            scratch = scratch_pool.take(sizes)
            slots = scratch.addresses if m > 1 else scratch.first
            search_graph(graph, visible, asked, hashing or _KNOWN, plan.kernel, slots, part)
            scratch_pool.give(scratch)

        self.workers.split(m, run, min_size=min_part, pieces=pieces)
        tally = plan.tally
        if m > 0 and (tally.seen < TRIED or tally.nanoseconds > plan.sure_nanoseconds):
            row = plan.row_nanoseconds + plan.place_nanoseconds * hits.work[:, BEAM]
            taken = self.policy.search_nanoseconds + float(row @ hits.candidates) / m
            left = np.count_nonzero(out.outcomes)
            tally.add(m, taken + (plan.scan_nanoseconds * left / m if left else 0.0))
        return hits, out.outcomes

    def curve(self, view: RowView, limit: int) -> CostCurve:
        """Return the calibrated cost by recall, for a limit."""
        points = tuple(
            CurvePoint(each.recall, each.candidates, self.nanoseconds(view, each) / 1000.0)
            for each in self.calibration.front(limit)
        )
        holds = not self.neighbours.drift.has_drifted and self.allowance.share(limit) == 1.0
        if points:
            scanned_from = self._least_scanned_recall(view, limit)
            return CostCurve(limit, points, self.calibration.rows, holds, None, scanned_from)
        max_limit = self.calibration.max_limit
        return CostCurve(
            limit, reason=f"limits up to {max_limit} are calibrated; hash tables or a scan answer"
        )

    def _least_scanned_recall(self, view: RowView, limit: int) -> float | None:
        """Return the lowest recall, in steps of .01 from .5, at which a scan is faster."""
        scanning = self.scan_nanoseconds(view, limit, 1)

        def is_scanned(percent: int) -> bool:
            setting = self.setting(view, SearchParams(limit=limit, recall=percent / _PERCENT))
            return setting is None or not self._saves_time(view, setting.first, scanning, 1)

        place = bisect_left(_RECALLS, True, key=is_scanned)
        return None if place == len(_RECALLS) else _RECALLS[place] / _PERCENT

    def stats(self) -> dict[str, Any]:
        """Return statistics to be read by people, as JSON."""
        links, calibration = self.links.array, self.calibration
        limits = [each.limit for each in calibration.curves]
        return {
            "width": links.shape[1],
            "mean_length": links.count_numbers() / max(1, len(links)),
            "rows_as": NAMES[self.neighbours.quantizer.kind],
            "bytes": self.nbytes,
            "made_for_rows": self.built,
            "calibration": {
                "rows": calibration.rows,
                "limits": limits,
                "greatest_recalls": [calibration.greatest_recall(each) for each in limits],
            },
        }
