"""Pages of a ranking by ``offset``: no hit is on two, and none is between them.

A search for more hits may find other ones first, so pages cut out of searches of their own would
overlap. Here the first page is the search itself. Deeper searches, for 100 hits, 1,000 and so on,
continue its ranking with the hits that it lacks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gcws_search.index.collection.items import QueryResult
from gcws_search.index.contracts.parameters import SearchParams

_FIRST_DEPTH: Final = 100
_GROWTH: Final = 10
_PAGE: Final = 10
"""Hits of a page: a deep search may miss as many hits in all as a search for one page."""


def page_searches(params: SearchParams, offset: int, max_limit: int) -> list[SearchParams]:
    """Return the searches that a page needs, each deeper than the one before, up to ``max_limit``.

    The limit of ``params`` is the length of the page, ``offset`` the hits before it.
    """
    end = offset + params.limit
    is_exact = params.recall == 1 or params.ranking != "gmm"
    if is_exact or params.candidates is not None:  # every depth has the same ranking
        return [replace(params, limit=end)]
    found, depth = [params], _FIRST_DEPTH
    while found[-1].limit < end:
        if depth > params.limit:
            found.append(deepen(params, min(depth, max_limit)))
        depth *= _GROWTH
    return found


def deepen(params: SearchParams, limit: int) -> SearchParams:
    """Return a search for more hits, which misses no more in all than one for a page."""
    recall = max(params.recall, 1 - (1 - params.recall) * _PAGE / limit)
    return replace(params, limit=limit, recall=recall)


def continue_ranking(ranking: QueryResult, deeper: QueryResult, limit: int) -> QueryResult:
    """Return the ids and scores of a ranking, and then what a deeper search found besides."""
    known = {*ranking.ids}
    hits = zip(deeper.ids, deeper.scores, strict=True)
    more = [hit for hit in hits if hit[0] not in known]
    cost = deeper.explanation
    before = ranking.explanation
    if cost is not None and before is not None:
        cost = cost._replace(seconds=(before.seconds or 0.0) + (cost.seconds or 0.0))
    return replace(
        deeper,
        ids=[*ranking.ids, *(item_id for item_id, _ in more)][:limit],
        scores=[*ranking.scores, *(score for _, score in more)][:limit],
        explanation=cost,
    )


def cut_page(ranking: QueryResult, offset: int, limit: int) -> QueryResult:
    """Return the ids and scores of a page, by falling score."""
    end = offset + limit
    page = zip(ranking.scores[offset:end], ranking.ids[offset:end], strict=True)
    hits = sorted(page, key=lambda hit: (-hit[0], hit[1]))
    return replace(ranking, ids=[hit[1] for hit in hits], scores=[hit[0] for hit in hits])
