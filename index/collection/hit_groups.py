"""The best hits of each of the best groups of items that share a value under a key of payloads."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from gcws_search.index.collection.items import QueryResult
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.payload import Filter, Match, Presence, only_scalar, tag

_GROWTH: Final = 10
_MAX_LIMIT: Final = 10_000
"""Hits among which a group is looked for at a time."""


class GroupSearch(NamedTuple):
    """What is searched for next: the best ``limit`` of the items that pass."""

    where: Filter | None
    limit: int


class GroupedHit(NamedTuple):
    """A hit of a group."""

    id: str
    score: float
    payload: bytes | None
    value: Hashable


def search_groups(
    key: str, groups: int, size: int, where: Filter | None
) -> Generator[GroupSearch, QueryResult, list[GroupedHit]]:
    """Return the best ``size`` hits of each of the best ``groups`` groups, by falling score.

    A group are the items of one scalar under ``key``; items of none, or of a list, are in no group.
    Yields the searches that this takes, and is sent what each finds, with payloads. The first looks
    for the best hits; further ones are for items that have the key, leave the groups out that are
    known, and fill these.

    Raises InvalidParameter where the key is empty.
    """
    if not key:
        raise InvalidParameter(expected="a key of payloads", got="''", loc=("group_by",))
    found: dict[Hashable, list[GroupedHit]] = {}
    parts: set[Hashable] = set()  # groups that may have further hits
    limit = groups * size
    step = where
    while True:
        result = yield GroupSearch(step, limit)
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
            result = yield GroupSearch(Filter(must=must), size)
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
