"""Recall asked and found, for every question, limit and target."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.engine import Engine, row_hits
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import BatchHits, LiveSample, RowView
from gcws_search.index.contracts.parameters import ExactParams, GcwsParams, SearchParams
from tests.promise.questions import Part, questions
from tests.promise.scenes import Scene

LIMITS: Final = (1, 2, 3, 10, 100, 1000)
TARGETS: Final = (0.8, 0.9, 0.95, 0.99)
_TIE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Cell:
    """What one question found.

    ``recall``, ``error``: mean over the queries, and its standard error. ``speed``: processor time
    of the exact scan over that of the search. ``methods``: share of the queries that each method
    answered.
    """

    scene: str
    question: str
    limit: int
    target: float
    recall: float
    error: float
    speed: float
    methods: str

    @property
    def deviations(self) -> float:
        """How many standard errors the recall is above the target."""
        return (self.recall - self.target) / max(self.error, 1e-4)


def measure(
    scene: Scene,
    *,
    limits: Sequence[int] = LIMITS,
    targets: Sequence[float] = TARGETS,
    names: list[str] | None = None,
    threads: int = 1,
    engine: Engine | None = None,
) -> Iterator[Cell]:
    """Yield the cells of a scene, searched by ``engine`` or by one that is built anew."""
    exact = Engine.build(scene.stored, ExactParams(), threads=threads, compiled=True)
    if engine is None:
        engine = Engine.build(scene.stored, GcwsParams(), threads=threads, compiled=True)
    for question in questions(scene, names):
        views = [_view(engine, part) for part in question.parts]
        asked = [engine.prepare(part.queries) for part in question.parts]
        truth = [_true_scores(exact, *each, max(limits)) for each in zip(views, asked, strict=True)]
        for limit in limits:
            began = process_time()
            _search(exact, views, asked, SearchParams(limit=limit, recall=1.0))
            scanning = process_time() - began
            for target in targets:
                began = process_time()
                found = _search(engine, views, asked, SearchParams(limit=limit, recall=target))
                seconds = process_time() - began
                shares = np.concatenate(
                    [_shares(hits, true, limit) for hits, true in zip(found, truth, strict=True)]
                )
                yield Cell(
                    scene.name,
                    question.name,
                    limit,
                    target,
                    float(shares.mean()),
                    float(shares.std() / max(1, len(shares)) ** 0.5),
                    scanning / max(seconds, 1e-9),
                    _methods(found),
                )


def _view(engine: Engine, part: Part) -> RowView:
    """Return the rows that a part may find."""
    alive = part.permitted if part.deleted else np.ones(len(part.permitted), np.uint8)
    return RowView(
        engine.view.vectors, part.permitted, int(part.permitted.sum()), LiveSample.of(alive)
    )


def _search(
    engine: Engine, views: Sequence[RowView], asked: Sequence[VectorBatch], params: SearchParams
) -> list[BatchHits]:
    """Return the hits of each part, its queries asked one by one."""
    return [
        engine.backend.search(engine.state, view, batch, params)
        for view, batch in zip(views, asked, strict=True)
    ]


def _true_scores(
    exact: Engine, view: RowView, batch: VectorBatch, limit: int
) -> NDArray[np.float64]:
    """Return the (m, limit) scores of the true hits, NaN behind the last."""
    found = exact.backend.search(
        exact.state, view, batch, SearchParams(limit=min(limit, view.permitted_count), recall=1.0)
    )
    scores = np.full((len(batch), limit), np.nan)
    for i, hits in enumerate(row_hits(found)):
        count = min(limit, len(hits.scores))
        scores[i, :count] = hits.scores[:count]
    return scores


def _shares(found: BatchHits, true: NDArray[np.float64], limit: int) -> NDArray[np.float64]:
    """Return the share of each query's hits that score as well as the last true one."""
    shares = []
    for hits, scores in zip(row_hits(found), true, strict=True):
        wanted = min(limit, int(np.count_nonzero(~np.isnan(scores))))
        if wanted:
            least = scores[wanted - 1] - _TIE
            shares.append(min(int(np.count_nonzero(hits.scores >= least)), wanted) / wanted)
    return np.array(shares)


def _methods(found: Sequence[BatchHits]) -> str:
    counts = Counter(hits.explanation.method for part in found for hits in row_hits(part))
    total = sum(counts.values())
    return ", ".join(f"{name} {100 * count // total} %" for name, count in counts.most_common())
