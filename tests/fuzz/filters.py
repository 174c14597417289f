"""Filters against a plain reading of what docs/api.md says of them: on payloads of every kind."""

import json
import math
import operator
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from hypothesis import strategies as st

from tests.support.service.client import Client

NAME: Final = "filtered"
URL: Final = f"/v1/collections/{NAME}"
JSON_TYPE: Final = {"Content-Type": "application/json"}
DEPTH: Final = 8
CONDITIONS: Final = 256
CLAUSES: Final = ("must", "should", "must_not")
COMPARED: Final = {
    "gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le,
}  # fmt: skip


def _moment(value: Any) -> datetime | None:  # noqa: ANN401
    """Return what a text says that begins as a date does, in UTC where it names no zone."""
    if not isinstance(value, str) or value[4:5] != "-":
        return None
    found = datetime.fromisoformat(value)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _is_number(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, int | float) and not isinstance(value, bool)


# Few of them, so that payloads and conditions often speak of the same.
_SCALARS: Final = st.sampled_from(
    [0, 1, 2, 1.0, True, False, -0.0, 0.5, "", "1", "x", "é", "2024-01-01",
     "2024-01-01T00:00:00+02:00", 2**53 + 1, float(2**53), 2**63, 1e25,
     -(2**63) - 1, -float(2**63), 2**64, 10**25]
)  # fmt: skip
_ANY_SCALARS: Final = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=3)
)
_NAMES: Final = st.sampled_from(["a", "b", "", "é"])
_KEYS: Final = st.sampled_from(["a", "a", "b", "b", "a.b", "a.a", "a.b.a", "é", ".", "a."])
_VALUES: Final = st.recursive(
    _SCALARS | _SCALARS | st.none() | _ANY_SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)
_OBJECTS: Final = st.fixed_dictionaries({"a": _VALUES}, optional={"b": _VALUES, "é": _VALUES})
PAYLOADS: Final = st.lists(st.one_of(_OBJECTS, _OBJECTS, st.none()), min_size=2, max_size=8)
_WRONG: Final = st.one_of(
    st.sampled_from([None, math.nan, -math.inf, [1], {}, 10**400, {"key": "a"}]),
    st.just({"keys": "a", "match": {"value": 1}}), _ANY_SCALARS,
)  # fmt: skip
_LISTS: Final = st.lists(_SCALARS, max_size=3)
_BOUNDS: Final = st.dictionaries(
    st.sampled_from(sorted(COMPARED)), _SCALARS.filter(_is_number), min_size=1, max_size=2
)
_DATED: Final = st.dictionaries(st.sampled_from(sorted(COMPARED)), _SCALARS.filter(_moment))
_MATCHED: Final = st.fixed_dictionaries({"value": _SCALARS}) | (
    st.fixed_dictionaries({"any": _LISTS})
)
_UNSOUND: Final = st.one_of(
    st.fixed_dictionaries({"key": _KEYS}, optional={"match": _MATCHED, "range": _BOUNDS}),
    st.fixed_dictionaries({"key": _KEYS, "match": st.fixed_dictionaries({"value": _WRONG})}),
    st.fixed_dictionaries({"key": _KEYS, "range": st.dictionaries(st.just("gt"), _WRONG)}),
    _WRONG,
)


def _places(document: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Yield the scalars of a payload, each with a key that may lead to it."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from _places(value, (*path, name))
    elif isinstance(document, list):
        for value in document:
            yield from _places(value, path)
    elif document is not None and any(path):
        yield ".".join(path), document


@st.composite
def _conditions(draw: st.DrawFn, places: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a condition that one of the payloads may fit."""
    key, value = draw(st.sampled_from(places))
    if _is_number(value) and draw(st.booleans()):
        word, bounds = draw(st.sampled_from(sorted(COMPARED))), draw(st.just({}) | _BOUNDS)
        return {"key": key, "range": bounds | {word: value}}
    if _moment(value) and draw(st.booleans()):
        word = draw(st.sampled_from(sorted(COMPARED)))
        return {"key": key, "range": draw(_DATED | _BOUNDS) | {word: value}}
    if draw(st.booleans()):
        return {"key": key, "match": {"any": [*draw(_LISTS), value]}}
    return {"key": draw(st.just(key) | _KEYS), "match": {"value": draw(st.just(value) | _SCALARS)}}


def _clauses(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.dictionaries(st.sampled_from(CLAUSES), inner | several | several, min_size=1)


@st.composite
def _trials(draw: st.DrawFn) -> tuple[list[Any], Any]:
    payloads = draw(PAYLOADS)
    conditions = _conditions([*_places(payloads), ("a", 1)])
    kinds = st.one_of(
        _clauses(conditions),
        _clauses(st.recursive(conditions, _clauses, max_leaves=6)),
        _clauses(st.recursive(conditions | conditions | _UNSOUND, _clauses, max_leaves=4)),
    )
    return payloads, draw(kinds)


TRIALS: Final = _trials()


class Refused(Exception):
    """The document is no filter."""


def _require(is_sound: bool) -> None:
    if not is_sound:
        raise Refused


def permits(document: Any, payload: Any, depth: int = 1, read: list[Any] | None = None) -> bool:  # noqa: ANN401
    """Return whether a filter lets a payload pass; raise Refused when it is none.

    Nothing is passed over for being decided already: all of a document is read. ``read`` has the
    conditions before it.
    """
    read = [] if read is None else read
    _require(isinstance(document, dict) and set(document) <= set(CLAUSES) and depth <= DEPTH)
    found = []
    for name in CLAUSES:
        clause = document.get(name)
        listed = [] if clause is None else [clause] if isinstance(clause, dict) else clause
        _require(isinstance(listed, list))
        found.append([_holds(each, payload, depth, read) for each in listed])
    must, should, must_not = found
    return all(must) and (not should or any(should)) and not any(must_not)


def _holds(document: Any, payload: Any, depth: int, read: list[Any]) -> bool:  # noqa: ANN401
    read.append(document)
    _require(len(read) <= CONDITIONS and isinstance(document, dict))
    if "key" not in document:
        return permits(document, payload, depth + 1, read)
    _require(set(document) <= {"key", "match", "range"} and bool(document["key"]))
    kinds = [kind for kind in ("match", "range") if document.get(kind) is not None]
    _require(len(kinds) == 1)
    held = [*_held(payload, document["key"].split("."))]
    if kinds == ["match"]:
        wanted = _wanted(document["match"])
        return any(_equal(one, other) for one in held for other in wanted)
    bounds = _bounds(document["range"])
    is_of_dates = any(isinstance(bound, datetime) for bound in bounds.values())
    ordered = [*filter(None, map(_moment, held))] if is_of_dates else [*filter(_is_number, held)]
    return any(
        all(COMPARED[word](value, bound) for word, bound in bounds.items()) for value in ordered
    )


def _equal(one: Any, other: Any) -> bool:  # noqa: ANN401
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _wanted(document: Any) -> list[Any]:  # noqa: ANN401
    _require(isinstance(document, dict) and set(document) in ({"value"}, {"any"}))
    wanted = document["any"] if "any" in document else [document["value"]]
    _require(isinstance(wanted, list))
    for value in wanted:
        _require(
            isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
        )
    return [*wanted]


def _bounds(document: Any) -> dict[str, Any]:  # noqa: ANN401
    _require(isinstance(document, dict) and set(document) <= set(COMPARED))
    bounds = {word: bound for word, bound in document.items() if bound is not None}
    moments = {word: moment for word, bound in bounds.items() if (moment := _moment(bound))}
    if bounds and len(moments) == len(bounds):
        return moments
    for bound in bounds.values():
        # A bound is a number that float64 reaches.
        _require(_is_number(bound) and -1.8e308 < bound < 1.8e308)
    _require(bool(bounds))
    return bounds


def _held(document: Any, path: list[str]) -> Iterator[Any]:  # noqa: ANN401
    """Yield the scalars that a key holds; a list stands for its elements, but not for theirs."""
    for each in document if isinstance(document, list) else [document]:
        if path and isinstance(each, dict) and path[0] in each:
            yield from _held(each[path[0]], path[1:])
        elif not path and isinstance(each, str | int | float):
            yield each


def send(client: Client, method: str, url: str, document: Any) -> Any:  # noqa: ANN401
    """Send JSON as Python writes it, NaN and infinities included."""
    content = json.dumps(document).encode()
    return client.request(method, url, content=content, headers=JSON_TYPE)


def try_filter(client: Client, trial: Any) -> None:  # noqa: ANN401
    """Ask for what passes a filter, delete it, and see what is left; or be told it is none."""
    payloads, document = trial
    client.put(URL, json={"dim": 2, "backend": {"kind": "exact"}})
    items = [
        {"id": str(row), "vector": [row + 1, 1], "payload": payload}
        for row, payload in enumerate(payloads)
    ]
    stored = send(client, "PUT", f"{URL}/items", {"items": items})
    assert stored.status_code == 200, stored.text
    query = {"vector": [1, 2], "limit": 10, "filter": document}
    answer = send(client, "POST", f"{URL}/query", query)
    try:
        passing = {str(row) for row, each in enumerate(payloads) if permits(document, each)}
    except Refused:
        assert answer.status_code == 422, answer.text
        assert answer.json()["code"] in ("invalid_filter", "invalid_parameter"), answer.text
    else:
        assert answer.status_code == 200, answer.text
        assert {hit["id"] for hit in answer.json()["hits"]} == passing
        if any(document.values()):  # else it is too little to delete by
            gone = send(client, "POST", f"{URL}/items/delete", {"filter": document})
            assert gone.json()["deleted"] == len(passing)
            left = client.get(f"{URL}/items").json()["items"]
            assert [item["id"] for item in left] == [
                str(row) for row in range(len(payloads)) if str(row) not in passing
            ]
    assert client.delete(URL).status_code == 204
