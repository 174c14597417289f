"""A ranking in pages by ``offset``, and in groups of items with equal payload values.

Pages neither repeat nor miss a hit of the ranking.

A search for more hits may find other hits first, so pages cut from independent searches would
overlap. Here the first page is the search itself. Deeper searches (100 hits, 1,000 and so on)
extend its ranking by the hits that it does not have yet.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from gcws_search.index.collection.items import QueryResult
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.payload import Filter, Match, Presence, only_scalar, round_number, tag, untag

_FIRST_DEPTH: Final = 100
_GROWTH: Final = 10
_PAGE: Final = 10
"""Hits of a page: a deep search may miss as many hits in all as a search for one page."""
_MAX_LIMIT: Final = 10_000
"""Hits among which a group is looked for at a time."""


def page_searches(params: SearchParams, offset: int, max_limit: int) -> list[SearchParams]:
    """Return the searches for a page, each deeper than the one before, up to ``max_limit``.

    The limit of ``params`` is the page length; ``offset`` is the number of hits before it.
    """
    end = offset + params.limit
    is_exact = params.recall == 1 or params.ranking != "gmm"
    if is_exact or params.candidates is not None:  # all depths give the same ranking
        return [replace(params, limit=end)]
    found, depth = [params], _FIRST_DEPTH
    while found[-1].limit < end:
        if depth > params.limit:
            found.append(deepen(params, min(depth, max_limit)))
        depth *= _GROWTH
    return found


def deepen(params: SearchParams, limit: int) -> SearchParams:
    """Return a search for more hits that misses no more hits in total than one page would."""
    recall = max(params.recall, 1 - (1 - params.recall) * _PAGE / limit)
    return replace(params, limit=limit, recall=recall)


def continue_ranking(ranking: QueryResult, deeper: QueryResult, limit: int) -> QueryResult:
    """Return a ranking's ids and scores, followed by the new hits of a deeper search."""
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
    """Return the ids and scores of one page, by falling score."""
    end = offset + limit
    page = zip(ranking.scores[offset:end], ranking.ids[offset:end], strict=True)
    hits = sorted(page, key=lambda hit: (-hit[0], hit[1]))
    return replace(ranking, ids=[hit[1] for hit in hits], scores=[hit[0] for hit in hits])


class GroupedHit(NamedTuple):
    """A hit of a group; ``value`` is the group's, tagged."""

    id: str
    score: float
    payload: bytes | None
    value: Hashable

    @property
    def group(self) -> Hashable:
        """The group's value; an integer beyond 64 bits as a float64."""
        value = untag(self.value)
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            return round_number(value)
        return value


def search_groups(
    key: str, groups: int, size: int, where: Filter | None
) -> Generator[tuple[Filter | None, int], QueryResult, list[GroupedHit]]:
    """Return the best ``size`` hits of each of the best ``groups`` groups, by falling score.

    A group consists of the items with the same scalar under ``key``; items without one, or with a
    list, are in no group. This generator yields each search that it needs, as a filter and a limit,
    and is sent the result with payloads. The first search finds the best hits; further ones fill
    the known groups, or look for items with the key outside these groups.

    Raises InvalidParameter (the key is empty).
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
        if value not in parts or len(hits) >= size:
            continue
        same = Match(key, (value,))  # also matches lists that have it beside other values
        must = (same,) if where is None else (where, same)
        limit = size
        while True:
            result = yield Filter(must=must), limit
            more = {hit.id: hit for hit in _grouped(result, key) if hit.value == value}
            if len(more) >= size or len(result.ids) < limit or limit >= _MAX_LIMIT:
                break
            limit = min(limit * _GROWTH, _MAX_LIMIT)
        hits[:] = {**{hit.id: hit for hit in hits}, **more}.values()
    best = [
        hit
        for hits in found.values()
        for hit in sorted(hits, key=lambda hit: (-hit.score, hit.id))[:size]
    ]
    return sorted(best, key=lambda hit: (-hit.score, hit.id))


def with_key(where: Filter | None, key: str) -> Filter:
    """Return a filter that also requires a key."""
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
