"""Rows with lists of random rows, searched by them, and what plain walks over them find."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gcws_search.index.backends import GcwsBackend
from gcws_search.index.contracts.arrays import UInt8s
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams, SearchParams
from gcws_search.index.graph.neighbour_graph import BESIDE, WIDTH, NeighbourGraph
from gcws_search.index.graph.recall_curve import BeamSetting
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.graph.sweeps import swept
from gcws_search.index.kernels.graph.beam_search import NONE
from gcws_search.index.kernels.quantized.rows import BYTES
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.quantization import Quantizer
from tests.support.index.small_index import SmallIndex
from tests.support.reference import mathematics

ROWS = 300
UNITS = Quantizer(BYTES, 1.0, 128)
TABLES = 3
_NOBODY = np.empty(0, np.uint8)


class Graph:
    """Rows of whole numbers, which bytes hold exactly, with lists of random rows."""

    def __init__(self, rng: np.random.Generator, *, linked: float = 0.05) -> None:
        self.data = rng.integers(-9, 10, (ROWS, 20)).astype(np.float32)
        self.queries = rng.integers(-9, 10, (20, 20)).astype(np.float32)
        self.index = SmallIndex(CollectionConfig(dim=20, backend=GcwsParams(bands=4)))
        self.index.add(self.data)
        self.rows = self.index.rows.view()
        self.neighbours = NeighbourGraph(UNITS, self.rows, TABLES)
        self.lists = self.neighbours.cover(self.rows)
        self.links: list[list[int]] = []
        for row in range(ROWS):
            count = min(WIDTH, rng.binomial(ROWS, linked))
            self.links.append(rng.choice(ROWS, count, replace=False).tolist())
            self.lists.links[row, :count] = self.links[row]
            assert (self.lists.links[row, count:] == NONE).all()

    def search(
        self, effort: BeamSetting, limit: int, *, permitted: set[int] | None = None,
        queries: slice = slice(None), hidden: UInt8s = _NOBODY, rare: float = 0.0,
        flat: float = 1.0,
    ) -> list[tuple[list[int], int]]:  # fmt: skip
        """Return for each query the rows found, best first, and how many have been seen."""
        search = self.searched()
        mask = np.ones(ROWS, np.uint8)
        if permitted is not None:
            mask[[row for row in range(ROWS) if row not in permitted]] = 0
        batch = self.index.prepare(self.queries[queries])
        view = RowView(self.rows, mask, int(mask.sum()))
        hits = search.search(
            view, batch, SearchParams(limit=limit), np.full(len(batch), -1, np.int64),
            replace(search.walk(view, limit, effort), rare=rare, flat=flat), hidden=hidden,
        ).hits  # fmt: skip
        return [(each.rows.tolist(), each.explanation.candidates) for each in hits]

    def swept(
        self,
        efforts: Sequence[BeamSetting],
        limit: int,
        *,
        hidden: UInt8s = _NOBODY,
        flat: float = 1.0,
    ) -> list[list[tuple[list[int], int]]]:
        """Return what `search` does by each of some efforts, found together."""
        view = RowView(self.rows, np.ones(ROWS, np.uint8), ROWS)
        batch = self.index.prepare(self.queries)
        found = swept(
            self.searched(), view, batch, limit, efforts, flat=flat, hidden=hidden, pieces=1
        )
        return [
            [(each.rows.tolist(), each.explanation.candidates) for each in hits] for hits in found
        ]

    def searched(self) -> GraphSearch:
        """Return what walks over the lists."""
        backend, tables = self.index.backend, self.index.state.tables
        assert isinstance(backend, GcwsBackend)
        return GraphSearch(self.neighbours, self.lists, tables, backend._keying.keys, Workers(1))

    def score(self, query: int, row: int) -> float:
        """Return the score as float32, whose ties are those of the kernel."""
        u = mathematics.from_dense(self.queries[query])
        v = mathematics.from_dense(self.data[row])
        both, apart = mathematics.l1_norm(u) + mathematics.l1_norm(v), 0.0
        for i in set(u) | set(v):
            apart += abs(u.get(i, 0.0) - v.get(i, 0.0))
        return float(np.float32(both - apart) / np.float32(both + apart))

    def entries(self, query: int, most: int, hidden: UInt8s | None = None) -> set[int]:
        """Return the rows around the query's places in the first tables, hidden ones left out."""
        keys = self.index.backend.encode(self.index.prepare(self.queries[query : query + 1]))[0]
        (segment,) = self.index.state.tables.segments
        found: set[int] = set()
        for table in range(min(most, TABLES)):
            place = int((segment.keys[table] < keys[table]).sum())
            before, after = segment.rows[table][:place], segment.rows[table][place:]
            if hidden is not None:
                before, after = before[hidden[before] == 0], after[hidden[after] == 0]
            found.update([*before[::-1][:BESIDE].tolist(), *after[:BESIDE].tolist()])
        return found

    def walked(
        self, query: int, effort: BeamSetting, limit: int, permitted: set[int] | None = None
    ) -> mathematics.Walked:
        scores = [self.score(query, row) for row in range(ROWS)]
        return mathematics.best_first(
            self.entries(query, effort.tables(self.lists.tables)), self.links, scores.__getitem__,
            beam=effort.beam + 1, most=int(effort.lists), reach=(limit, effort.reach),
            permitted=permitted,
        )  # fmt: skip

    def walked_on(
        self, query: int, first: mathematics.Walked, effort: BeamSetting, limit: int
    ) -> mathematics.Walked:
        """Return the walk that goes on where the first one ended."""
        scores, onward = [self.score(query, row) for row in range(ROWS)], effort.onward()
        return mathematics.best_first(
            first, self.links, scores.__getitem__, beam=onward.beam + 1, most=int(onward.lists),
            reach=(limit, onward.reach),
        )  # fmt: skip

    def walked_again(
        self, query: int, first: mathematics.Walked, effort: BeamSetting, limit: int
    ) -> mathematics.Walked:
        """Return the second walk, which begins with the best rows of the first."""
        scores, wider = [self.score(query, row) for row in range(ROWS)], effort.wider()
        return mathematics.best_first(
            set(first.beam), self.links, scores.__getitem__, beam=wider.beam + 1,
            most=int(wider.lists), reach=(limit, wider.reach),
        )  # fmt: skip

    def expected(
        self, query: int, effort: BeamSetting, limit: int, permitted: set[int] | None = None
    ) -> tuple[list[int], int]:
        """Return what `search` should."""
        walked = self.walked(query, effort, limit, permitted)
        best = sorted(walked.beam, key=lambda row: (-self.score(query, row), row))
        return best[:limit], len(walked.seen)
