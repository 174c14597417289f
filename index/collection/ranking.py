"""A ranking in pages by ``offset``, and by groups of items that share a value in their payloads.

No hit is on two pages, and none is between them.

A search for more hits may find other ones first, so pages cut out of searches of their own would
overlap. Here the first page is the search itself. Deeper searches, for 100 hits, 1,000 and so on,
continue its ranking with the hits that it lacks.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from gcws_search.index.collection.items import QueryResult
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.payload import Filter, Match, Presence, only_scalar, tag

_FIRST_DEPTH: Final = 100
_GROWTH: Final = 10
_PAGE: Final = 10
"""Hits of a page: a deep search may miss as many hits in all as a search for one page."""
_MAX_LIMIT: Final = 10_000
"""Hits among which a group is looked for at a time."""


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


class GroupedHit(NamedTuple):
    """A hit of a group."""

    id: str
    score: float
    payload: bytes | None
    value: Hashable


def search_groups(
    key: str, groups: int, size: int, where: Filter | None
) -> Generator[tuple[Filter | None, int], QueryResult, list[GroupedHit]]:
    """Return the best ``size`` hits of each of the best ``groups`` groups, by falling score.

    A group are the items of one scalar under ``key``; items of none, or of a list, are in no group.
    Yields the searches that this takes, each a filter and a limit, and is sent what each finds,
    with payloads. The first looks for the best hits; further ones are for items that have the key,
    leave the groups out that are known, and fill these.

    Raises InvalidParameter where the key is empty.
    """
    if not key:
        raise InvalidParameter(expected="a key of payloads", got="''", loc=("group_by",))
    found: dict[Hashable, list[GroupedHit]] = {}
    parts: set[Hashable] = set()  # groups that may have further hits
    limit = groups * size
    step = where
    while True:
        result = yield step, limit
        before = len(found)
        for hit in _grouped(result, key):
            if hit.value in found:
                found[hit.value].append(hit)
            elif len(found) < groups:
                found[hit.value] = [hit]
        is_whole = len(result.ids) < limit
        if not is_whole:
            parts.update([*found][before:])
        is_same = step is not where and len(found) == before
        if is_whole or len(found) == groups or (is_same and limit >= _MAX_LIMIT):
            break
        limit = min(limit * _GROWTH, _MAX_LIMIT) if is_same else limit
        known = (Match(key, (*found,)),) if found else ()
        step = replace(with_key(where, key), must_not=known)
    for value, hits in found.items():
        if value in parts and len(hits) < size:
            same = Match(key, (value,))
            must = (same,) if where is None else (where, same)
            result = yield Filter(must=must), size
            more = {hit.id: hit for hit in _grouped(result, key) if hit.value == value}
            hits[:] = {**{hit.id: hit for hit in hits}, **more}.values()
    best = [
        hit
        for hits in found.values()
        for hit in sorted(hits, key=lambda hit: (-hit.score, hit.id))[:size]
    ]
    return sorted(best, key=lambda hit: (-hit.score, hit.id))


def with_key(where: Filter | None, key: str) -> Filter:
    """Return a filter that only items pass which have a key, too."""
    has_key = Presence(key, "exists", True)
    return Filter(must=(has_key,) if where is None else (where, has_key))


def _grouped(found: QueryResult, key: str) -> Sequence[GroupedHit]:
    """Return the hits that have a scalar under a key."""
    hits = []
    for item_id, score, payload in zip(found.ids, found.scores, found.payloads or (), strict=True):
        value = only_scalar(payload, key)
        if value is not None:
            hits.append(GroupedHit(item_id, score, payload, tag(value)))
    return hits
