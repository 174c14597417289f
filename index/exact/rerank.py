"""Candidates become hits: by exact GMM, another kernel, or their estimates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.hits import SCAN, BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import rank_rows, rescore, scan
from gcws_search.index.similarities.gmm import GmmKernel
from gcws_search.index.similarities.kernels import Kernel
from gcws_search.index.threads import Workers

Ranked = tuple[Int64s, Float64s]
"""Rows and their scores, best first, equal scores by rising row; cut after the limit's ties."""


def refuse_proof(kind: str, params: SearchParams) -> None:
    """Raise InvalidParameter where recall is to be proven: estimates of another law prove none."""
    if params.guarantee == "proven":
        raise InvalidParameter(
            expected=f"'measured': {kind} proves nothing", got="'proven'", loc=("guarantee",)
        )


def rerank(
    vectors: VectorBatch,
    query: VectorBatch,
    rows: Int64s,
    estimates: Float64s,
    params: SearchParams,
    kernel: Kernel,
) -> Ranked:
    """Return distinct candidates of one query, scored as ``params.rerank`` says."""
    if params.rerank == "none":
        return rank_rows(rows, estimates, params)
    if params.rerank == "gmm" or isinstance(kernel, GmmKernel):
        return rescore(vectors, query, rows, params)
    return rank_rows(rows, kernel.scores(query, vectors[rows])[0], params)


def scan_by(
    kernel: Kernel,
    view: RowView,
    queries: VectorBatch,
    params: SearchParams,
    skip: Int64s,
    workers: Workers,
) -> BatchHits:
    """Return the exact hits of every query out of all permitted rows, by GMM or a kernel."""
    if params.rerank == "gmm" or isinstance(kernel, GmmKernel):
        none = InvertedIndex()
        return scan(view, queries, params, skip=skip, inverted=none, workers=workers)
    permitted = np.flatnonzero(view.permitted)
    vectors = view.vectors if len(permitted) == len(view.vectors) else view.vectors[permitted]
    answers = []
    for i in range(len(queries)):
        scores = kernel.scores(queries[i : i + 1], vectors)[0]
        others = permitted != skip[i]
        answers.append(rank_rows(permitted[others], scores[others], params))
    count = len(permitted)
    return batch_hits(SCAN, answers, candidates=count, scored=count, expected_recall=1.0)


def batch_hits(
    method: int,
    answers: Sequence[Ranked],
    *,
    candidates: Int64s | int,
    scored: Int64s | int,
    expected_recall: float = 0.0,
) -> BatchHits:
    """Return the hits of several queries from the answer to each; see `BatchHits.of`."""
    sizes = np.array([len(rows) for rows, _ in answers], np.int64)
    shape = len(answers), int(sizes.max(initial=0))
    rows, scores = np.zeros(shape, np.int64), np.zeros(shape, np.float64)
    for i, (found, exact) in enumerate(answers):
        rows[i, : len(found)], scores[i, : len(found)] = found, exact
    return BatchHits.of(
        method,
        rows,
        scores,
        sizes,
        expected_recall=expected_recall,
        candidates=candidates,
        scored=scored,
    )
