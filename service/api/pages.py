"""Pages of a ranking by ``offset``: no hit is on two pages, and none is between them.

A search for more hits may find other ones first, so pages cut out of searches of their own would
overlap. Here the first page is the search itself. Deeper searches, for 100 hits, 1,000 and so on,
continue its ranking with the hits that it lacks.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from gcws_search import index as ix
from gcws_search.service.contract import CollectionProtocol, QueryRequest
from gcws_search.service.http import Service
from gcws_search.service.limits import AnswerBytes

T = TypeVar("T")
_FIRST_DEPTH: Final = 100
_GROWTH: Final = 10
_PAGE: Final = 10
"""Hits of a page: a deep search may miss as many hits in all as a search for one page."""


def searches(params: ix.SearchParams, offset: int, max_limit: int) -> list[ix.SearchParams]:
    """Return the searches that a page needs, each deeper than the one before, up to ``max_limit``.

    The limit of ``params`` is the length of the page, ``offset`` the hits before it.
    """
    end = offset + params.limit
    if params.recall == 1 or params.candidates is not None:  # every depth has the same ranking
        return [replace(params, limit=end)]
    found, depth = [params], _FIRST_DEPTH
    while found[-1].limit < end:
        if depth > params.limit:
            limit = min(depth, max_limit)
            recall = max(params.recall, 1 - (1 - params.recall) * _PAGE / limit)
            found.append(replace(params, limit=limit, recall=recall))
        depth *= _GROWTH
    return found


async def search(
    service: Service,
    collection: CollectionProtocol,
    asked: QueryRequest,
    show: Callable[[Sequence[ix.QueryResult]], T],
) -> T:
    """Search for one query, or for several vectors, and show a page of each ranking.

    Results and errors are those of `contract.SearchesProtocol.search`; ``show`` is called in a
    thread.
    """
    first, *deeper = searches(asked.params, asked.offset, service.settings.max_limit)
    ids_only = asked._replace(offset=0, with_payload=False, with_vector=False, is_shown=False)
    found = await service.searches.search_batch(collection, [ids_only._replace(params=first)], list)
    for params in deeper:
        more = await service.searches.search_batch(
            collection, [ids_only._replace(params=params)], list
        )
        found = [_continue(*each, params.limit) for each in zip(found, more, strict=True)]

    def finish() -> T:
        pages = [_cut(ranking, asked.offset, asked.params.limit) for ranking in found]
        return show(_add_items(service, collection, asked, pages))

    return await service.workers.batches.run(finish)


async def search_batch(
    service: Service,
    collection: CollectionProtocol,
    asked: Sequence[QueryRequest],
    show: Callable[[Sequence[ix.QueryResult]], T],
) -> T:
    """Search for many queries; each may ask for a page of its ranking.

    Results and errors are those of `contract.SearchesProtocol.search_batch`.
    """
    paged = [number for number, one in enumerate(asked) if one.offset]
    if not paged:
        return await service.searches.search_batch(collection, asked, show)
    if len(asked) == 1:
        return await search(service, collection, asked[0], show)
    found: dict[int, ix.QueryResult] = {}
    rest = [number for number, one in enumerate(asked) if not one.offset]
    for numbers in [rest, *([number] for number in paged)]:
        try:
            if numbers is rest:
                alone = [asked[number] for number in rest]
                some = await service.searches.search_batch(collection, alone, list)
            else:
                some = await search(service, collection, asked[numbers[0]], list)
        except ix.InvalidVector as error:
            error.move_row(numbers.__getitem__)
            raise
        found.update(zip(numbers, some, strict=True))
    ranked = [found[number] for number in range(len(asked))]
    return await service.workers.batches.run(show, ranked)


def _continue(ranking: ix.QueryResult, deeper: ix.QueryResult, limit: int) -> ix.QueryResult:
    """Return a ranking and then what a deeper search found besides."""
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


def _cut(ranking: ix.QueryResult, offset: int, limit: int) -> ix.QueryResult:
    """Return the hits of a page, by falling score."""
    end = offset + limit
    page = zip(ranking.scores[offset:end], ranking.ids[offset:end], strict=True)
    hits = sorted(page, key=lambda hit: (-hit[0], hit[1]))
    return replace(ranking, ids=[hit[1] for hit in hits], scores=[hit[0] for hit in hits])


def _add_items(
    service: Service,
    collection: CollectionProtocol,
    asked: QueryRequest,
    pages: list[ix.QueryResult],
) -> list[ix.QueryResult]:
    """Return pages with the payloads and vectors that they show; None for an item deleted since."""
    ids = [item_id for page in pages for item_id in page.ids]
    items: dict[str, ix.StoredItem] = {}
    if ids and (asked.with_payload or asked.with_vector):
        found = collection.page(
            limit=len(ids), cursor=None, with_vector=asked.with_vector, where=None, ids=ids
        )
        items = {item.id: item for item in found.items}
    payloads = {item_id: item.payload for item_id, item in items.items() if asked.with_payload}
    vectors = {item_id: item.vector for item_id, item in items.items() if asked.with_vector}
    size = AnswerBytes(service.settings.max_answer_bytes)
    size.add_hits(ids, [*payloads.values()])
    size.add_vectors([*vectors.values()])
    return [
        replace(
            page,
            payloads=[payloads.get(each) for each in page.ids] if asked.with_payload else None,
            vectors=[vectors.get(each) for each in page.ids] if asked.with_vector else None,
        )
        for page in pages
    ]
