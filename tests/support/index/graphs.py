"""Rows linked to random rows, searched by these links, and what plain Python finds."""

from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from benchmarks.harness.engine import row_hits
from gcws_search.index.backends import GcwsBackend
from gcws_search.index.contracts.arrays import UInt8s
from gcws_search.index.contracts.hits import BatchHits, RowView
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams, SearchParams
from gcws_search.index.graph.neighbour_graph import WIDTH, NeighbourGraph
from gcws_search.index.graph.recall_curve import (
    NO_EXTENSION,
    NOT_CALIBRATED,
    BeamSetting,
    Extension,
    SearchSetting,
)
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.graph.search_plan import SearchPolicy
from gcws_search.index.kernels.graph.beam_search import NONE
from gcws_search.index.kernels.graph.entry_points import ROWS_A_SIDE
from gcws_search.index.kernels.quantized.rows import BYTES
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.quantization import Quantizer
from tests.support.index.small_index import SmallIndex
from tests.support.reference import mathematics

ROWS = 300
UNITS = Quantizer(BYTES, 1.0, 128)
TABLES = 3
UNLIMITED = 1 << 31
_NOTHING_HIDDEN = np.empty(0, np.uint8)


class Graph:
    """Rows of whole numbers, which bytes hold exactly, linked to random rows."""

    def __init__(
        self, rng: np.random.Generator, *, linked: float = 0.05, quantizer: Quantizer = UNITS
    ) -> None:
        self.data = rng.integers(-9, 10, (ROWS, 20)).astype(np.float32)
        self.queries = rng.integers(-9, 10, (20, 20)).astype(np.float32)
        self.index = SmallIndex(CollectionConfig(dim=20, backend=GcwsParams(bands=4)))
        self.index.add(self.data)
        self.rows = self.index.rows.view()
        self.neighbours = NeighbourGraph(quantizer, self.rows, TABLES)
        self.links = self.neighbours.cover(self.rows)
        self.chosen: list[list[int]] = []
        for row in range(ROWS):
            count = min(WIDTH, rng.binomial(ROWS, linked))
            self.chosen.append(rng.choice(ROWS, count, replace=False).tolist())
            self.links.array[row, :count] = self.chosen[row]
            assert (self.links.array[row, count:] == NONE).all()

    def search(
        self,
        setting: BeamSetting,
        limit: int,
        **others: Any,  # noqa: ANN401
    ) -> list[tuple[list[int], int]]:
        """Return for each query the rows found, best first, and how many have been seen.

        Others are parameters of `hits`.
        """
        found, _ = self.hits(setting, limit, **others)
        return [(each.rows.tolist(), each.explanation.candidates) for each in row_hits(found)]

    def hits(  # noqa: PLR0913 (what is searched, for what, and how)
        self,
        setting: BeamSetting,
        limit: int,
        *,
        permitted: set[int] | None = None,
        queries: slice = slice(None),
        hidden: UInt8s = _NOTHING_HIDDEN,
        hard: Extension = NO_EXTENSION,
        foreign: Extension = NO_EXTENSION,
        spread: float = 0.0,
        policy: SearchPolicy | None = None,
        most: float = inf,
    ) -> tuple[BatchHits, UInt8s]:
        """Return what the kernel finds, and what became of each query."""
        search, tables = self.searched(policy or SearchPolicy()), self.index.state.tables
        mask = np.ones(ROWS, np.uint8)
        if permitted is not None:
            mask[[row for row in range(ROWS) if row not in permitted]] = 0
        batch = self.index.prepare(self.queries[queries])
        view = RowView(self.rows, mask, int(mask.sum()))
        whole = SearchSetting(setting, hard, foreign, judged=limit, spread=spread)
        plan = search.plan_for(tables, view, limit, whole, max_candidates=most)
        nothing = np.full(len(batch), -1, np.int64)
        return search.search(
            plan, tables, view, batch, SearchParams(limit=limit), nothing, hidden=hidden
        )

    def searched(self, policy: SearchPolicy) -> GraphSearch:
        """Return what searches the graph."""
        backend = self.index.backend
        assert isinstance(backend, GcwsBackend)
        return GraphSearch(
            self.neighbours,
            self.links,
            NOT_CALIBRATED,
            ROWS,
            backend.band_keys,
            Workers(1),
            policy,
        )

    @cached_property
    def scores(self) -> list[list[float]]:
        """Of each query with each row, as float32, whose ties are those of the kernel."""
        apart = np.abs(self.queries[:, None] - self.data).sum(2)
        both = np.abs(self.queries).sum(1)[:, None] + np.abs(self.data).sum(1)
        scores: list[list[float]] = ((both - apart) / (both + apart)).tolist()
        return scores

    def score(self, query: int, row: int) -> float:
        return self.scores[query][row]

    def entries(
        self, query: int, most: int, hidden: UInt8s | None = None, beside: int = ROWS_A_SIDE
    ) -> set[int]:
        """Return the rows around the query's places in the first tables, hidden ones left out."""
        keys = self.index.backend.encode(self.index.prepare(self.queries[query : query + 1]))[0]
        (segment,) = self.index.state.tables.segments
        found: set[int] = set()
        for table in range(min(most, TABLES)):
            place = int((segment.keys[table] < keys[table]).sum())
            before, after = segment.rows[table][:place], segment.rows[table][place:]
            if hidden is not None:
                before, after = before[hidden[before] == 0], after[hidden[after] == 0]
            found.update([*before[::-1][:beside].tolist(), *after[:beside].tolist()])
        return found

    def bucket_rows(self, query: int, most: int) -> set[int]:
        """Return the rows that share three quarters of the longest prefix that any row shares."""
        keys = self.index.backend.encode(self.index.prepare(self.queries[query : query + 1]))[0]
        (segment,) = self.index.state.tables.segments
        found: set[int] = set()
        for table in range(min(most, TABLES)):
            own = f"{int(keys[table]):016x}"  # a digit is a sample
            others = [f"{int(key):016x}" for key in segment.keys[table]]
            lengths = range(len(own) + 1)
            longest = max(
                length for length in lengths if any(key.startswith(own[:length]) for key in others)
            )
            prefix = own[: -(-3 * longest // 4)]
            if prefix:
                rows = zip(segment.rows[table], others, strict=True)
                found.update(int(row) for row, key in rows if key.startswith(prefix))
        return found

    def walked(
        self, query: int, setting: BeamSetting, limit: int, permitted: set[int] | None = None
    ) -> mathematics.Walked:
        scores = self.scores[query]
        return mathematics.best_first(
            self.entries(query, setting.tables(self.links.entry_tables)),
            self.chosen,
            scores.__getitem__,
            beam=setting.beam + 1,
            most=int(setting.max_expanded),
            reach=(limit, setting.slack),
            permitted=permitted,
        )

    def walked_on(  # noqa: PLR0913 (where it begins, how it goes on)
        self,
        query: int,
        first: mathematics.Walked,
        setting: BeamSetting,
        extension: Extension,
        limit: int,
        *,
        beside: int = ROWS_A_SIDE,
        permitted: set[int] | None = None,
        again: bool = True,
        tied: float = 0.0,
    ) -> mathematics.Walked:
        """Return the walk that goes on where the first one ended, with more rows beside its keys.

        ``setting`` is that of the first walk. With ``again``, rows that it had no room for are
        looked at again, as those are whose bytes say too little. Where hits were ``tied``, it
        enters through its buckets, see `bucket_rows`, has room for all rows, and reads the lists of
        those that tie with the last hit of the first walk.
        """
        scores = self.scores[query]
        tables = setting.tables(self.links.entry_tables)
        entries = self.entries(query, tables, beside=beside)
        beam = max(setting.beam + 1, SearchPolicy().extension_beam(limit, extension))
        slack = extension.slack
        if tied:
            entries |= self.bucket_rows(query, tables)
            wanted = min(setting.beam, max(setting.places, limit))
            away = 1.0 - scores[first.beam[min(wanted, len(first.beam)) - 1]]
            beam, slack = ROWS, max(slack, 1.0 + tied / max(away, 0.02))
        return mathematics.best_first(
            entries | first.seen if again else entries, self.chosen, scores.__getitem__,
            beam=beam, most=UNLIMITED, reach=(limit, slack),
            permitted=permitted, after=None if again else first,
        )  # fmt: skip

    def best(self, query: int, walked: mathematics.Walked, limit: int) -> tuple[list[int], int]:
        """Return what `search` returns of a walk."""
        best = sorted(walked.beam, key=lambda row: (-self.score(query, row), row))
        return best[:limit], len(walked.seen)

    def expected(
        self, query: int, setting: BeamSetting, limit: int, permitted: set[int] | None = None
    ) -> tuple[list[int], int]:
        """Return what `search` should."""
        return self.best(query, self.walked(query, setting, limit, permitted), limit)
