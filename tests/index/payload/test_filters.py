import json
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gcws_search import index as ix
from gcws_search.index.payload import MAX_COLUMNS, MAX_CONDITIONS, MAX_DEPTH, MAX_MASKS, Columns
from tests.support.data.payloads import encode_payload

PAYLOADS: list[dict[str, Any] | None] = [
    {"label": 3, "price": 1.5, "tags": ["red", "blue"]},
    {"label": 3.0, "price": 9, "seller": {"city": "Bonn", "stars": [4, 5]}},
    {"label": True, "price": "cheap", "tags": "red"},
    {"label": "3", "seller": {"city": ["Köln", "Bonn"]}},
    None,
    {},
    {"label": None, "price": None, "tags": []},
    {"label": 1, "price": -2, "parts": [{"size": 1}, {"size": 7}, 3]},
    {"label": False, "price": 2**60 + 1},
    {"label": 0, "seller": "nobody", "tags": [["red"]]},
    {"nulls": [1, None]},
    {"on": ["2024-01-01T00:00:00+02:00", "soon"]},
    {"on": "2024-01-01T00:00:00Z"},
    {"on": "2024-01-01 00:00:00.000001"},
    {"on": 20240101},
]


def columns_of(payloads: list[dict[str, Any] | None]) -> Columns:
    return Columns([*map(encode_payload, payloads)])


def rows_matching(document: dict[str, Any]) -> list[int]:
    where = ix.parse_filter(document)
    assert repr(ix.parse_filter(where.to_dict())) == repr(where)
    mask = columns_of(PAYLOADS).mask(where, len(PAYLOADS))
    assert mask.dtype == np.uint8
    assert mask.shape == (len(PAYLOADS),)
    assert set(mask.tolist()) <= {0, 1}
    return np.flatnonzero(mask).tolist()


def rows_of(columns: Columns, count: int, condition: dict[str, Any]) -> list[int]:
    mask = columns.mask(ix.parse_filter({"must": condition}), count)
    return np.flatnonzero(mask).tolist()


def match(key: str, value: object) -> dict[str, Any]:
    return {"key": key, "match": {"value": value}}


def test_a_key_with_dots_is_found_before_it_is_taken_apart() -> None:
    payloads: list[dict[str, Any] | None] = [
        {"petal.width": 1, "petal": {"width": 2}},
        {"petal": {"width": 1}},
        {"iris": {"petal.width": [1, None]}},
        {"petal.width": None},
    ]
    rows = partial(rows_of, columns_of(payloads), len(payloads))
    assert rows(match("petal.width", 1)) == [0, 1]
    assert rows(match("iris.petal.width", 1)) == [2]
    assert rows({"key": "petal.width", "exists": True}) == [0, 1, 3]
    assert rows({"key": "iris.petal.width", "is_null": True}) == [2]
    assert rows(match("petal.width.x", 1)) == []


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        (match("label", 3), [0, 1]),
        (match("label", 3.0), [0, 1]),
        (match("label", "3"), [3]),
        (match("label", True), [2]),
        (match("label", 1), [7]),
        (match("label", False), [8]),
        (match("label", 0), [9]),
        (match("label", 99), []),
        (match("absent", 1), []),
        (match("tags", "red"), [0, 2]),
        (match("seller.city", "Bonn"), [1, 3]),
        (match("seller.stars", 5), [1]),
        (match("seller", "nobody"), [9]),
        (match("seller.city.more", "Bonn"), []),
        (match("parts.size", 7), [7]),
        ({"key": "label", "match": {"any": [1, "3", False]}}, [3, 7, 8]),
        ({"key": "label", "match": {"any": []}}, []),
        ({"key": "price", "range": {"gte": 1.5}}, [0, 1, 8]),
        ({"key": "price", "range": {"gt": 1.5}}, [1, 8]),
        ({"key": "price", "range": {"lt": 1.5}}, [7]),
        ({"key": "price", "range": {"lte": 9, "gt": -2}}, [0, 1]),
        ({"key": "price", "range": {"gt": 5, "lt": 1}}, []),
        ({"key": "price", "range": {"gt": 2**60}}, [8]),
        ({"key": "price", "range": {"gt": 2**60 + 1}}, []),
        ({"key": "price", "range": {"gte": 2**60 + 1, "lte": 2**60 + 1}}, [8]),
        ({"key": "label", "range": {"gte": 0}}, [0, 1, 7, 9]),
        ({"key": "parts.size", "range": {"gte": 7}}, [7]),
        ({"key": "seller", "match": {"prefix": "no"}}, [9]),
        ({"key": "label", "match": {"prefix": ""}}, [3]),
        ({"key": "tags", "match": {"prefix": "bl"}}, [0]),
        ({"key": "price", "match": {"prefix": "9"}}, []),
        ({"key": "label", "exists": True}, [0, 1, 2, 3, 6, 7, 8, 9]),
        ({"key": "label", "exists": False}, [4, 5, *range(10, 15)]),
        ({"key": "label", "is_null": True}, [6]),
        ({"key": "on", "range": {"gte": "2024-01-01"}}, [12, 13]),
        ({"key": "on", "range": {"lt": "2024-01-01"}}, [11]),
        ({"key": "on", "range": {"lte": "2023-12-31T22:00Z"}}, [11]),
        ({"key": "on", "range": {"gt": "2024-01-01T01:00:00+01:00"}}, [13]),
        ({"key": "on", "range": {"gt": 0}}, [14]),
        ({"key": "label", "is_null": False}, [0, 1, 2, 3, 4, 5, *range(7, 15)]),
        ({"key": "tags", "exists": True}, [0, 2, 6, 9]),
        ({"key": "tags", "is_null": True}, []),
        ({"key": "seller.city", "exists": True}, [1, 3]),
        ({"key": "parts.size", "exists": True}, [7]),
        ({"key": "nulls", "is_null": True}, [10]),
    ],
)
def test_a_condition_holds_for_the_rows_it_should(
    condition: dict[str, Any], rows: list[int]
) -> None:
    assert rows_matching({"must": [condition]}) == rows
    assert rows_matching({"should": [condition]}) == rows
    assert rows_matching({"must": condition}) == rows
    others = [row for row in range(len(PAYLOADS)) if row not in rows]
    assert rows_matching({"must_not": [condition]}) == others


@pytest.mark.parametrize("document", [{}, {"must": []}, {"should": [], "must_not": None}])
def test_an_empty_filter_lets_every_row_pass(document: dict[str, Any]) -> None:
    assert rows_matching(document) == list(range(len(PAYLOADS)))


@pytest.mark.parametrize("value", [True, 1, 1.5, "1", 2**64, 10**400])
def test_a_filter_says_what_it_was_parsed_from(value: object) -> None:
    document = {
        "must": [match("a", value), {"key": "b", "range": {"gte": 1, "lt": 2**70}}],
        "should": {"must_not": match("c", "x")},
    }
    where = ix.parse_filter(document)
    assert repr(ix.parse_filter(json.loads(json.dumps(where.to_dict())))) == repr(where)


@pytest.mark.parametrize("big", [2**64, -(2**63) - 1, 10**29 + 1, 10**400, -(10**400)])
def test_integers_of_any_size_are_told_apart(big: int) -> None:
    numbers = [big, big + 1, 3, float(10**29)]
    columns = Columns([json.dumps({"n": number}).encode() for number in numbers])
    rows = partial(rows_of, columns, len(numbers))
    assert rows(match("n", big)) == [0]
    assert rows(match("n", 3)) == [2]
    assert rows({"key": "n", "range": {"lt": 4}}) == ([2] if big > 0 else [0, 1, 2])
    if abs(big) < 10**300:
        assert rows({"key": "n", "range": {"gt": big}})[0] == 1


def test_clauses_are_joined_by_and() -> None:
    document = {
        "must": [{"key": "price", "range": {"gte": -5}}],
        "should": [match("label", 3), match("label", 1), match("label", "3")],
        "must_not": [match("tags", "blue")],
    }
    assert rows_matching(document) == [1, 7]


def test_filters_nest() -> None:
    inner = {"must": [match("label", 3)], "must_not": [match("tags", "red")]}
    assert rows_matching({"must": [inner]}) == [1]
    assert rows_matching({"must_not": [{"should": [inner, match("label", 1)]}]}) == [
        row for row in range(len(PAYLOADS)) if row not in (1, 7)
    ]


def nested(depth: int) -> dict[str, Any]:
    document: dict[str, Any] = {"must": [match("label", 3)]}
    for _ in range(depth - 1):
        document = {"must": [document]}
    return document


@pytest.mark.parametrize(
    ("document", "loc"),
    [
        ([], ()),
        ("label", ()),
        ({"most": []}, ()),
        ({"must": 3}, ("must",)),
        ({"must": [3]}, ("must", 0)),
        ({"must": [{"match": {"value": 1}}]}, ("must", 0)),
        ({"must": [{"key": "a"}]}, ("must", 0)),
        ({"must": [{"key": "a", "match": {"value": 1}, "range": {"gt": 1}}]}, ("must", 0)),
        ({"must": [{"key": "a", "march": {"value": 1}}]}, ("must", 0)),
        ({"must": [match("", 1)]}, ("must", 0, "key")),
        ({"must": [{"key": 3, "match": {"value": 1}}]}, ("must", 0, "key")),
        ({"must": [match("a" * 2000, 1)]}, ("must", 0, "key")),
        ({"must": [match(".".join("a" * 40), 1)]}, ("must", 0, "key")),
        ({"should": [match("a", 1), match("a", None)]}, ("should", 1, "match", "value")),
        ({"must": [match("a", [1])]}, ("must", 0, "match", "value")),
        ({"must": [match("a", float("nan"))]}, ("must", 0, "match", "value")),
        ({"must": [{"key": "a", "match": {}}]}, ("must", 0, "match")),
        ({"must": [{"key": "a", "match": 3}]}, ("must", 0, "match")),
        ({"must": [{"key": "a", "match": {"value": 1, "any": [1]}}]}, ("must", 0, "match")),
        ({"must": [{"key": "a", "match": {"any": 1}}]}, ("must", 0, "match", "any")),
        ({"must": [{"key": "a", "match": {"any": [1, {}]}}]}, ("must", 0, "match", "any", 1)),
        ({"must_not": [{"key": "a", "range": {}}]}, ("must_not", 0, "range")),
        ({"must": [{"key": "a", "range": {"ge": 1}}]}, ("must", 0, "range")),
        ({"must": [{"key": "a", "range": {"gt": "1"}}]}, ("must", 0, "range", "gt")),
        ({"must": [{"key": "a", "range": {"gt": True}}]}, ("must", 0, "range", "gt")),
        ({"must": [{"key": "a", "range": {"gt": "2023-02-29"}}]}, ("must", 0, "range", "gt")),
        ({"must": [{"key": "a", "range": {"gt": "2023-02"}}]}, ("must", 0, "range", "gt")),
        ({"must": [{"key": "a", "range": {"gt": 1, "lt": "2023-02-01"}}]}, ("must", 0, "range")),
        ({"must": [{"key": "a", "range": {"lt": float("inf")}}]}, ("must", 0, "range", "lt")),
        ({"must": [{"key": "a", "range": {"lt": 10**400}}]}, ("must", 0, "range", "lt")),
        (nested(MAX_DEPTH + 1), ("must", 0) * MAX_DEPTH),
    ],
)
def test_a_malformed_filter_is_refused_where_it_is_wrong(
    document: object, loc: tuple[str | int, ...]
) -> None:
    with pytest.raises(ix.InvalidFilter) as caught:
        ix.parse_filter(document)
    assert caught.value.loc == loc


def test_depth_and_number_of_conditions_have_limits() -> None:
    ix.parse_filter(nested(MAX_DEPTH))
    ix.parse_filter({"must": [match("a", 1)] * MAX_CONDITIONS})
    with pytest.raises(ix.InvalidFilter, match="at most 256 conditions"):
        ix.parse_filter({"must": [match("a", 1)] * (MAX_CONDITIONS + 1)})


@pytest.mark.parametrize(
    ("condition", "payloads", "mask"),
    [
        ({"range": {"gte": 1}}, [{"a": 1}, None, {"a": [0, 2]}, {"a": "x"}], [1, 0, 1, 0]),
        (
            {"match": {"prefix": "b"}},
            [{"a": "bb"}, {"a": 7}, {"a": "a"}, {"a": ["c", "ba"]}, {"a": "b"}],
            [1, 0, 0, 1, 1],
        ),
    ],
)
def test_columns_follow_payloads_that_are_added_and_earlier_views_do_not(
    condition: dict[str, Any], payloads: list[Any], mask: list[int]
) -> None:
    where = ix.parse_filter({"must": {"key": "a", **condition}})
    texts = [*map(encode_payload, payloads)]
    held = texts[:2]
    columns = Columns(held)
    assert columns.mask(where, 2).tolist() == mask[:2]
    held += texts[2:]
    for count in (len(mask), 2, 3):
        assert columns.mask(where, count).tolist() == mask[:count]


class Counted(list[bytes | None]):
    reads = 0

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401
        self.reads += 1
        return super().__getitem__(key)


def test_payloads_are_parsed_once_a_key() -> None:
    payloads = Counted([b'{"a":%d}' % (i % 7) for i in range(5000)])
    columns = Columns(payloads)
    for value in range(7):
        columns.mask(ix.parse_filter({"must": [match("a", value)]}), 5000)
    assert payloads.reads == 2  # two chunks


def test_payloads_are_parsed_once_for_all_keys_of_a_filter() -> None:
    payload = b'{"a%d":[{"b":{"d":%d}}],"c":"x%d"}'
    payloads = Counted([payload % (i % 300, i % 2, i) for i in range(5000)])
    conditions = [
        *(match(f"a{i}.b.d", 1) for i in range(MAX_COLUMNS)),
        *({"key": f"no{i}", "exists": True} for i in range(MAX_COLUMNS)),
        {"key": "c", "match": {"prefix": "x499"}},
        {"key": "a9", "exists": True},
    ]
    columns = Columns(payloads)
    columns.mask(ix.parse_filter({"must": [match("c", "x1")]}), 4000)
    before = payloads.reads
    mask = columns.mask(ix.parse_filter({"must": {"should": conditions}}), 5000)
    assert payloads.reads - before == 2  # to row 4,000, and the rest
    alone = [Columns(payloads).mask(ix.parse_filter({"must": [each]}), 5000) for each in conditions]
    assert mask.tolist() == np.bitwise_or.reduce(alone).tolist()


def test_columns_and_masks_kept_are_bounded() -> None:
    columns = columns_of(PAYLOADS)
    first = ix.parse_filter({"must": [match("label", 3)]})
    expected = columns.mask(first, len(PAYLOADS)).tolist()
    for i in range(2 * MAX_COLUMNS):
        columns.mask(ix.parse_filter({"must": [match(f"key{i}", 3)]}), len(PAYLOADS))
    assert len(columns.growing) == MAX_COLUMNS
    assert len(columns.masks) == MAX_MASKS
    assert columns.mask(first, len(PAYLOADS)).tolist() == expected


def test_filters_that_differ_in_type_only_are_not_mistaken_for_each_other() -> None:
    columns = columns_of(PAYLOADS)
    for value, rows in ((1, [7]), (True, [2]), (1.0, [7]), (True, [2])):
        assert rows_of(columns, len(PAYLOADS), match("label", value)) == rows


numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3),
    st.floats(allow_nan=False, width=64),
    st.sampled_from([2**53, 2**53 + 1, float(2**53), -(2**53) - 1]),
).filter(lambda x: abs(x) < float("inf"))


@given(values=st.lists(numbers, min_size=1, max_size=20), bound=numbers)
def test_numbers_compare_exactly_whatever_their_size(values: list[float], bound: float) -> None:
    columns = columns_of([{"x": value} for value in values])
    for word, expected in (
        ("gt", [value > bound for value in values]),
        ("gte", [value >= bound for value in values]),
        ("lt", [value < bound for value in values]),
        ("lte", [value <= bound for value in values]),
    ):
        where = ix.parse_filter({"must": [{"key": "x", "range": {word: bound}}]})
        assert columns.mask(where, len(values)).astype(bool).tolist() == expected
    where = ix.parse_filter({"must": [match("x", bound)]})
    assert columns.mask(where, len(values)).astype(bool).tolist() == [v == bound for v in values]


zones = st.none() | st.integers(-1439, 1439).map(
    lambda minutes: timezone(timedelta(minutes=minutes))
)
dates = st.dates(date(2, 1, 1), date(9998, 12, 31)) | st.dates(date(2024, 1, 30), date(2024, 2, 2))
# Within two days of the bounds of the others, so that zones decide.
local = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)) | st.datetimes(
    datetime(2024, 1, 30), datetime(2024, 2, 2)
)
times = st.builds(datetime.replace, local, tzinfo=zones)


def in_utc(value: date) -> datetime:
    if not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value if value.tzinfo else value.replace(tzinfo=UTC)


@given(values=st.lists(dates | times, min_size=1, max_size=20), bound=dates | times)
def test_dates_compare_as_moments_whatever_their_zones(values: list[date], bound: date) -> None:
    others = [None, 5, "", "2024", "2024-01", "20240131", "2024-02-30", "2024-01-31T25:00", True]
    columns = columns_of(
        [{"x": each} for each in (*(value.isoformat() for value in values), *others)]
    )
    moments, limit = [in_utc(value) for value in values], in_utc(bound)
    for word, expected in (
        ("gt", [moment > limit for moment in moments]),
        ("gte", [moment >= limit for moment in moments]),
        ("lt", [moment < limit for moment in moments]),
        ("lte", [moment <= limit for moment in moments]),
    ):
        condition = {"key": "x", "range": {word: bound.isoformat()}}
        where = ix.parse_filter({"must": [condition]})
        assert ix.parse_filter(where.to_dict()) == where
        mask = columns.mask(where, len(values) + len(others)).astype(bool).tolist()
        assert mask == expected + [False] * len(others)
