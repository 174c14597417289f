"""Hints on a query without hits: filter keys, filter values and names that no item has."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from gcws_search.index.collection.items import View
from gcws_search.index.payload import Filter, Match, Prefix, Presence, Range, read_payload, untag
from gcws_search.index.vectors.inputs import InputVectors
from gcws_search.index.vectors.names import CoordinateNames

_MAX_HINTS: Final = 5
MAX_HINTED: Final = 8
"""Queries of one request that hints are given on, of each kind."""
_MAX_WORDS: Final = 4096
"""Keys, or values of a key, among which a similar one is looked for."""
_SAMPLE: Final = 4096
_SAMPLE_BYTES: Final = 1 << 22
"""Payloads whose keys are read, and their bytes."""
_MAX_LENGTH: Final = 64
"""Characters of a word that is compared with others."""


class KnownWords(NamedTuple):
    """What some items have with respect to one condition of a filter.

    has_key: whether an item has its key.
    missing: positions of the condition's values that no item has; only the first ones. Null is
        one value.
    words: candidates for a similar word, as compared and as shown: values of the key if some are
        missing, or keys if no item has the key.
    """

    has_key: bool
    missing: Sequence[int]
    words: dict[str, str]


def known_words(view: View, where: Filter) -> Iterator[KnownWords]:
    """Yield what the items of a view have for each condition."""
    conditions = [*_conditions(where)]
    columns = (each.key for each in conditions if not isinstance(each, Presence))
    live = view.columns.live_values([*columns], view.alive, view.changed)
    exists = {each.key: Presence(each.key, "exists", True) for each in conditions}
    doubtful = tuple(each for key, each in exists.items() if not live.get(key))
    view.mask(Filter(should=doubtful))  # parses the payloads once for all conditions
    keys: dict[str, str] | None = None
    for condition in conditions:
        values = condition.values if isinstance(condition, Match) else ()
        there = live.get(condition.key, {})
        if not there and not _is_met(view, exists[condition.key]):
            keys = _words(_keys(view)) if keys is None else keys
            yield KnownWords(False, range(len(values))[:_MAX_WORDS], keys)
            continue
        missing = [place for place, value in enumerate(values) if value not in there]
        is_null = isinstance(condition, Presence) and condition.word == "is_null"
        if is_null and not _is_met(view, condition):
            missing = [0]
        words = _words(map(untag, there)) if missing else {}
        yield KnownWords(True, missing[:_MAX_WORDS], words)


def hints_of(where: Filter, parts: Sequence[Iterable[KnownWords]]) -> list[str]:
    """Return a sentence for each filter key and value that no item has, at most five.

    parts: the known words of the first conditions, for disjoint parts of the items.
    """
    hints: dict[str, None] = {}
    for condition, *known in zip(_conditions(where), *parts, strict=False):
        key, words = condition.key, dict[str, str]()
        there = [each for each in known if each.has_key]
        for each in there or known:
            words |= each.words
        if not there:
            hints[f"no item has the key {_shown(key)}{_similar(key, words)}"] = None
        elif isinstance(condition, Presence) and all(each.missing for each in there):
            absent = "'exists': false finds what lacks it"
            hints[f"no item has null under {_shown(key)}; {absent}"] = None
        elif isinstance(condition, Match):
            missing = set.intersection(*({*each.missing} for each in known))
            values = [*condition.values]
            for place in sorted(missing)[:_MAX_HINTS]:
                value = untag(values[place])
                near = _similar(value, words)
                hints[f"no item has {_shown(value)} under {_shown(key)}{near}"] = None
        if len(hints) >= _MAX_HINTS:
            break
    return [*hints][:_MAX_HINTS]


def name_hints(names: CoordinateNames, asked: Sequence[str]) -> list[str]:
    """Return a sentence for each name of a query that no coordinate has, at most five.

    In an open space, texts often have new words: there, only if all names are unknown.
    """
    unknown = names.unknown(asked)
    if not unknown or (names.is_open and len(unknown) < len(asked)):
        return []
    words = _words(names)
    return [
        f"no item has the name {_shown(name)}{_similar(name, words)}"
        for name in unknown[:_MAX_HINTS]
    ]


def hints_on_rows(names: CoordinateNames, rows: InputVectors) -> list[list[str]]:
    """Return `name_hints` for the first queries by names that have unknown ones."""
    found: list[list[str]] = []
    if rows.names is None or not names.unknown(rows.names):
        return found
    hinted = 0
    for start, stop in pairwise(rows.indptr.tolist()):
        codes = rows.indices[start:stop].tolist() if hinted < MAX_HINTED else ()
        found.append(name_hints(names, [rows.names[code] for code in codes]))
        hinted += bool(found[-1])
    return found


def _is_met(view: View, condition: Match | Prefix | Presence | Range) -> bool:
    """Return whether an item meets a condition."""
    return bool((view.mask(Filter(must=(condition,))) & view.alive).any())


def _conditions(where: Filter) -> Iterator[Match | Prefix | Presence | Range]:
    """Yield the conditions that nothing passes if no item has their key."""
    for each in (*where.must, *where.should):
        if isinstance(each, Filter):
            yield from _conditions(each)
        elif not isinstance(each, Presence) or each.wanted:
            yield each


def _keys(view: View) -> list[str]:
    """Return payload keys, from a sample if there are many; nested keys joined by dots."""
    found: dict[str, None] = {}
    bytes_ = 0
    rows = np.flatnonzero(view.alive)
    for row in rows[:: max(1, len(rows) // _SAMPLE)].tolist():
        payload = view.payloads[row]
        if payload is not None:
            found |= dict.fromkeys(_paths(read_payload(payload), ""))
            bytes_ += len(payload)
        if bytes_ > _SAMPLE_BYTES or len(found) > _MAX_WORDS:
            break
    return [*found]


def _paths(document: Any, before: str) -> Iterator[str]:  # noqa: ANN401 (JSON)
    if isinstance(document, list):
        for each in document:
            yield from _paths(each, before)
    elif isinstance(document, dict):
        for key, value in document.items():
            yield f"{before}{key}"
            yield from _paths(value, f"{before}{key}.")


def _words(known: Iterable[Hashable]) -> dict[str, str]:
    """Return words by their case-folded form."""
    words: dict[str, str] = {}
    for each in known:
        if len(word := str(each).casefold()) <= _MAX_LENGTH:
            words.setdefault(word, _shown(each))
        if len(words) >= _MAX_WORDS:
            break
    return words


def _similar(wanted: Hashable, words: Mapping[str, str]) -> str:
    """Return "did you mean" with the most similar word, or an empty text."""
    text = str(wanted).casefold()
    found = get_close_matches(text, words, 1) if len(text) <= _MAX_LENGTH else []
    return f"; did you mean {words[found[0]]}?" if found else ""


def _shown(value: Hashable) -> str:
    """Return a value as JSON; a text in single quotes, shortened."""
    if isinstance(value, str):
        return repr(value if len(value) <= _MAX_LENGTH else value[:_MAX_LENGTH] + "…")
    return json.dumps(value)
