"""One scenario over every kind of collection, waited for and awaited."""

import asyncio
import io
import json
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

import gcws_search
from gcws_search import GivenIds, InvalidInput, InvalidParameter, InvalidVector, ItemNotFound
from gcws_search.client.remote import RemoteCollection
from tests.client.conftest import Open
from tests.support.files import source
from tests.support.service.client import Json, gmm
from tests.support.service.live_server import listening

COFFEES: dict[str, list[float]] = {
    "kenya": [2, -1, 1, -0.5],
    "brazil": [-1, 1.5, 1, 0],
    "robusta": [-2, 0, 0, 3],
    "sidamo": [0.5, 0, 2, -1],
}
ROASTS = ["light", "medium", "dark", "light"]


def test_weights_are_learned_and_given(opened: Open) -> None:
    items = opened(4, transform={"weights": "max"})
    items.add([*COFFEES.values()], ids=[*COFFEES])
    assert items.describe()["weights"]["version"] == 0
    learned = items.fit()
    assert (learned["kind"], learned["version"], learned["items"]) == ("max", 1, 4)
    weights = 1 / np.abs([*COFFEES.values()]).max(0)
    first, second = ((np.array(COFFEES[name]) * weights).tolist() for name in ("kenya", "sidamo"))
    assert items.explain("kenya", "sidamo").score == pytest.approx(gmm(first, second), rel=1e-6)
    assert items.get("kenya").vector == COFFEES["kenya"]
    assert items.fit(np.array([1, 2, 0.5, 1]))["version"] == 2
    assert items.config.transform.weights == (1, 2, 0.5, 1)
    assert items.describe()["transform"]["weights"] == [1, 2, 0.5, 1]
    given = np.array([1, 2, 0.5, 1])
    first, second = ((np.array(COFFEES[name]) * given).tolist() for name in ("kenya", "sidamo"))
    hits = items.query(id="kenya", limit=3)
    scores = {hit.id: hit.score for hit in hits}
    assert scores["sidamo"] == pytest.approx(gmm(first, second), rel=1e-6)
    for wrong in ([1, 2], [1, 2, 3, 0], "tfidf", 3):
        with pytest.raises(InvalidParameter, match="weights"):
            items.fit(wrong)
    assert items.describe()["weights"]["version"] == 2


def test_an_iteration_ends_though_each_item_is_put_again_meanwhile(opened: Open) -> None:
    items = opened(1)
    vectors, ids = np.arange(1.0, 2501)[:, None], [f"i{n}" for n in range(2500)]
    items.add(vectors, ids=ids)
    found = []
    for number, item in enumerate(items):
        found.append(item.id)
        if number % 400 == 0:
            items.add(vectors, ids=ids)
    assert found == ids


def test_payloads_change_without_vectors(opened: Open) -> None:
    items = opened(4)
    items.add([*COFFEES.values()], ids=[*COFFEES], payloads={"roast": ROASTS})
    assert items.set_payload("kenya", payload={"big": 2**70, "at": np.int64(3)}) == 1
    assert items.get("kenya").payload == {"roast": "light", "big": 2**70, "at": 3}
    assert items.set_payload(["kenya", "nobody", "brazil"], payload={"big": None}) == 2
    assert items.get("brazil").payload == {"roast": "medium", "big": None}
    assert items.set_payload(where={"roast": "light"}, payload={"x": 1}, merge=False) == 2
    assert items.set_payload("robusta", payload=None, merge=False) == 1
    assert [item.payload for item in items] == [
        {"x": 1},
        {"roast": "medium", "big": None},
        None,
        {"x": 1},
    ]
    assert [item.id for item in items] == [*COFFEES]
    assert [item.vector for item in items] == [*COFFEES.values()]
    refused: list[Json] = [
        {"payload": {}},
        {"ids": "kenya", "where": {"x": 1}, "payload": {}},
        {"ids": "kenya", "payload": None},
    ]
    for wrong in refused:
        with pytest.raises(InvalidParameter):
            items.set_payload(**wrong)
    with pytest.raises(gcws_search.InvalidFilter):
        items.set_payload(where={}, payload={})
    for bad in ({"a": object()}, [1], "{}"):
        with pytest.raises(gcws_search.InvalidPayload, match="payload"):
            items.set_payload("kenya", payload=bad)
    assert items.get("kenya").payload == {"x": 1}


def test_integers_beyond_64_bits_are_as_they_were_given(opened: Open) -> None:
    items = opened(2)
    items.add([[1, 2], [2, 1]], ids=["a", "b"], payloads={"n": [10**30, 2**64], "k": [1, 2]})
    assert items.query_many([[1, 2]], limit=1, with_payload=True).payloads == [
        [{"n": 10**30, "k": 1}]
    ]
    assert items.query([1, 1], where={"n": 10**30}, group_by="k").ids == ["a"]
    assert items.set_payload(where={"n": 2**64}, payload={"n": 2**65}) == 1
    assert items.get("b").payload == {"n": 2**65, "k": 2}


def test_what_json_does_not_hold_is_null_or_refused_by_name(opened: Open) -> None:
    items = opened(2)
    long: list[Json] = [
        {"n": 2**64, "k": float("nan"), "l": [np.float32("nan")]},
        {"n": [2**64, None, "NaN"]},
    ]
    items.add([[1, 2]] * 2, ids=["a", "b"], payloads=long)
    assert items.get("a").payload == {"n": 2**64, "k": None, "l": [None]}
    assert items.get("b").payload == long[1]
    items.set_payload("b", payload=long[0], merge=False)
    assert items.get("b").payload == items.get("a").payload
    itself: Json = {}
    itself["a"] = itself
    refused: list[Json] = [{"a": "\ud800"}, {"a": itself}, {"n": 2**64, "k": np.inf}, {"\ud800": 1}]
    for bad in refused:
        with pytest.raises(gcws_search.InvalidPayload, match="payload"):
            items.add([[1, 2]], payloads=[bad])
        with pytest.raises(gcws_search.InvalidPayload, match="payload"):
            items.set_payload("a", payload=bad)
        with pytest.raises(gcws_search.InvalidPayload, match=r"payload|\[0\]"):
            items.add([[1, 2]], payloads={name: [value] for name, value in bad.items()})
    for wrong in (*refused, {"a": object()}, [1], "x"):
        with pytest.raises(InvalidParameter, match="metadata"):
            items.set_metadata(wrong)
    bad_names: list[Json] = [[1, 2], "ab", ["a", None]]
    for names in bad_names:
        with pytest.raises(InvalidParameter, match="names: expected a list of strings"):
            items.set_names(names)
    assert items.count() == 2
    assert not items.names()


def test_ids_are_strings_or_whole_numbers_and_nothing_is_missed_in_silence(opened: Open) -> None:
    items = opened(2)
    uuid = UUID(int=7)
    items.add([[1, 2]] * 3, ids=[np.int64(3), uuid, np.str_("x")])
    assert [item.id for item in items.get_many([np.int64(3), uuid, "x"])] == ["3", str(uuid), "x"]
    wrong: list[Json] = [[3.0], [None], 3.0, np.array([3.0, np.nan]), [True], [["x"]]]
    for ids in wrong:
        with pytest.raises(gcws_search.InvalidId, match=r"ids\[0\]"):
            items.delete(ids)
        with pytest.raises(gcws_search.InvalidId, match=r"ids\[0\]"):
            items.get_many(ids)
    assert items.delete([np.int64(3), uuid, np.str_("x")]) == 3


def test_numbers_are_those_that_were_sent(opened: Open) -> None:
    items = opened(3)
    vectors: list[Json] = [[0.1, 8.2, -1e-7], [16777217, 3.3e38 / 1e6, 0.5]]
    items.add(vectors)
    assert items.get("0").vector == vectors[0]
    assert [each.vector for each in items] == [vectors[0], [16777216, 3.3e32, 0.5]]
    words = opened(None)
    words.add([{"a": 0.1, "b": 2.7}])
    assert words.get_many("0")[0].vector == {"indices": [0, 1], "values": [0.1, 2.7]}


def test_ties_with_the_last_hit_of_many_queries_are_cut_by_id(opened: Open) -> None:
    items = opened(2)
    items.add([[1, 1], [1, 1], [2, 3], [1, 1]], ids=["d", "b", "a", "c"])
    for score in ("gmm", "containment"):
        for limit in (1, 2, 4):
            many = items.query_many([[1, 1], [2, 3]], limit=limit, recall=1, score=score)
            alone = [
                items.query(each, limit=limit, recall=1, score=score) for each in ([1, 1], [2, 3])
            ]
            assert many.ids.tolist() == [each.ids for each in alone]
    none = items.query_many([[-1, -1], [0, -1]], min_score=0.5)
    assert none.ids.tolist() == [[None], [None]]


def test_similar_rows_are_counted_among_all_that_were_given(opened: Open) -> None:
    items = opened(2)
    items.add([[1, 2]], ids=["a"])
    rows = [[0, 0], [1, 2], [0, 0], [5, 1], [5, 1]]
    added = items.add(rows, mode="unless_similar", min_score=0.9, recall=1, on_error="skip")
    assert [each.row for each in added.rejected] == [0, 2]
    assert [each.row for each in added.similar] == [1, 4]


WRONG_OPTIONS: list[tuple[str, Json, str]] = [
    ("add", {"mode": "insret"}, "mode"),
    ("add", {"on_error": "skipp"}, "on_error"),
    *(("add", {"id_start": each}, "id_start") for each in (-1, "x", True, 1.0, 2**63)),
    ("add", {"mode": "unless_similar"}, "min_score"),
    ("add", {"recall": 1}, "recall"),
    ("query", {"limit": 0}, "limit"),
    ("query", {"limit": 10**30}, "limit: expected at most"),
    ("query", {"offset": 1.5}, "offset: expected a whole number, at least 0, got 1.5"),
    ("query", {"offset": -1}, "offset"),
    ("query", {"group_by": 3}, "group_by: expected a string, got 3"),
    ("query", {"group_by": ""}, "group_by"),
    ("query", {"group_by": "k", "group_size": "2"}, "group_size: expected a whole number"),
    ("query", {"group_by": "k", "group_size": 0}, "group_size"),
    ("query", {"group_by": "k", "offset": 1}, "offset"),
    ("query", {"guarantee": "always"}, "guarantee"),
    ("query", {"score": "ruzicka"}, "ruzicka is gmm"),
    ("query", {"score": "Bray-Curtis"}, "Bray-Curtis is bray_curtis"),
    ("query", {"explain": "yes"}, "explain: expected True or False"),
    ("query", {"min_score": np.nan}, "min_score: expected a number, got nan"),
    ("query_many", {"limit": 2.0}, "limit"),
    ("query_many", {"guarantee": "always"}, "guarantee"),
    ("query_many", {"on_error": "skipp"}, "on_error"),
    ("query_many", {"backend": ["gcws"]}, "backend: expected a string"),
    ("pairs", {"min_score": 0}, "min_score"),
    ("pairs", {"min_score": "0.5"}, "min_score: expected a number, got '0.5'"),
    ("pairs", {"min_score": "x", "score": "bray_curtis"}, "min_score"),
    ("pairs", {"min_score": 0.5, "limit": 0}, "limit"),
    ("pairs", {"min_score": 0.5, "limit": "x"}, "limit"),
    ("pairs", {"min_score": 0.5, "recall": 1.5}, "recall"),
    ("groups", {"min_score": 2}, "min_score"),
    ("groups", {"min_score": 0.5, "mode": "stars"}, "mode"),
    ("groups", {"min_score": 0.5, "keep": 3}, "keep"),
    ("groups", {"min_score": 0.5, "keep": ""}, "keep"),
    ("join", {}, "limit"),
    ("join", {"limit": True}, "limit"),
    ("join", {"limit": 1, "after": -1}, "after"),
    ("join", {"limit": 1, "after": "x"}, "after"),
    ("join", {"min_score": 0.5, "after": 1.5}, "after: expected the number of a row, or an id"),
    ("map", {"key": 3}, "key"),
    ("map", {"key": ""}, "key: expected at least 1 character"),
    ("map", {"also": 3}, "also: expected a list of ids and vectors, got 3"),
    ("map", {"sample": 0}, "sample"),
    ("map", {"sample": 2.5}, "sample"),
    ("profile", {"sample": 0}, "sample"),
    ("profile", {"seed": -1}, "seed: expected a whole number, at least 0, got -1"),
    ("compare", {"sample": 0}, "sample: expected a whole number, at least 1, got 0"),
    ("explain", {"limit": 0}, "limit"),
    ("explain", {"limit": "all"}, "limit"),
    ("curve", {"limit": None}, "limit"),
    ("page", {"cursor": "x"}, "cursor"),
    ("page", {"cursor": 3}, "cursor: expected a string, got 3"),
    ("find", {"text": ""}, "expected"),
    ("find", {"text": 3}, "text: expected a string, got 3"),
    ("find", {"text": "a", "limit": 0}, "expected"),
    ("names", {"prefix": 3}, "prefix"),
    *(("names", {"indices": each}, "indices: expected a list") for each in (3, ["x"], [-1])),
    *(("compare", {"backends": each}, "backends: expected a list") for each in ([], "gcws", [3])),
    ("set_payload", {"merge": "no"}, "merge: expected True or False, got 'no'"),
    ("attach", {"kind": "annoy"}, "kind"),
    ("attach", {"kind": "nrff", "params": {"feature": 64}}, "feature"),
    ("attach", {"kind": "nrff", "params": 3}, "params: expected a dict, got 3"),
    *(("detach", {"name": each}, "name") for each in ("", 3)),
]


def test_options_that_none_has_are_refused_by_name_and_nothing_is_stored(opened: Open) -> None:
    items = opened(2)
    items.add([[1, 2], [2, 1]], ids=["a", "b"])
    given: dict[str, tuple[tuple[Any, ...], Json]] = {
        "add": (([[1, 2]],), {}),
        "query": (([1, 2],), {}),
        "query_many": (([[1, 2]],), {}),
        "join": (([[1, 2]],), {}),
        "explain": (("a", "b"), {}),
        "set_payload": (("a",), {"payload": {}}),
    }
    for operation, wrong, words in WRONG_OPTIONS:
        values, more = given.get(operation, ((), {}))
        with pytest.raises(InvalidParameter, match=words):
            getattr(items, operation)(*values, **more, **wrong)
    for beyond in (1e39, np.nan):
        with pytest.raises(InvalidVector, match=r"vector\[1\]: expected a finite float32"):
            items.query([1, beyond])
    with pytest.raises(InvalidVector, match=r"\[1\].vector.values\[0\]"):
        items.add(
            [{"indices": [0]}, {"indices": [0], "values": [1e39]}], if_version=1, ids=["a", "b"]
        )
    assert items.count() == 2


def test_texts_are_shown_compared_and_mapped(opened: Open) -> None:
    items = opened(None, text={"tokens": "words", "weights": "counts"})
    items.add(texts=["nuts and tea", "earth"], ids=["brazil", "java"])
    many = items.query_many(texts=["…", "earth"], limit=1, on_error="skip", with_payload=True)
    assert many.texts.tolist() == [[None], ["earth"]]
    assert many.payloads.tolist() == [[None], [None]]
    assert items.query_many(texts=["earth"]).texts is None
    shown = items.map(also=["java", {"text": "tea"}])
    assert max(shown.also.scores[1]) == pytest.approx(1 / 3)
    compared = items.compare([{"text": "earth"}, {"text": "tea earth"}], limit=1)
    assert compared.mean_similarity == pytest.approx([1, 1 / 2])


def test_texts_are_added_found_and_explained(opened: Open, tmp_path: Path) -> None:
    items = opened(None, text={"tokens": "words", "weights": "counts", "ngrams": [1, 2]})
    notes = {"kenya": "Black tea, black currant", "brazil": "Nuts and black tea", "java": "Earth"}
    added = items.add(texts=notes.values(), ids=[*notes], payloads={"n": [1, 2, 3]})
    assert added.inserted == 3
    assert items.config.text.ngrams == (1, 2)
    hits = items.query(text="black TEA", min_score=0.1)
    assert [(hit.id, hit.text, hit.payload) for hit in hits] == [
        ("brazil", notes["brazil"], {"n": 2}),
        ("kenya", notes["kenya"], {"n": 1}),
    ]
    assert hits.scores == pytest.approx([3 / 7, 3 / 7])
    assert hits.to_pandas().columns.tolist() == ["id", "score", "text", "n"]
    many = items.query_many(texts=["earth", "nuts and"], limit=1, with_payload=True)
    assert many.ids.tolist() == [["java"], ["brazil"]]
    assert many.payloads.tolist() == [[{"n": 3}], [{"n": 2}]]
    skipped = items.query_many(texts=["earth", "…"], limit=1, on_error="skip")
    assert [each.row for each in skipped.rejected] == [1]
    assert (items.get("java").text, items.get("java").payload) == ("Earth", {"n": 3})
    assert items.find("currant")[0].text == notes["kenya"]
    why = items.explain("kenya", {"text": "black tea"})
    assert {each.name: each.min for each in why.coordinates if each.min} == {
        "black": 1,
        "tea": 1,
        "black tea": 1,
    }
    other = opened(None, text={"tokens": "words", "weights": "counts", "ngrams": [1, 2]})
    assert other.add([*items]).inserted == 3
    assert [*other] == [*items]
    assert other.add([{"id": 7, "text": "earth too"}, {"id": 8, "text": "x"}]).inserted == 2
    assert other.get(7).text == "earth too"
    before = [*items]
    mixed = {"texts": ["fine", "…"], "ids": [1, 2]}
    with pytest.raises(InvalidVector, match="1"):
        items.add(**mixed)
    told = items.add(**mixed, on_error="skip")
    assert [each.row for each in told.rejected] == [1]
    assert items.delete(1) == 1
    for bad in (["a", 5], "a text", ["\ud800"], None):
        with pytest.raises((InvalidVector, InvalidParameter)):
            items.add(texts=bad)
    for arguments in ([[1.0, 2.0]], [{"a": 1}]):
        with pytest.raises(InvalidVector, match="text"):
            items.add(arguments)
    with pytest.raises(InvalidVector, match="text"):
        items.query({"a": 1})
    with pytest.raises(InvalidParameter):
        items.query(text="a", id="kenya")
    with pytest.raises(InvalidParameter):
        items.add(texts=["a"], ids=["kenya"], keep_payloads=True)
    assert [*items] == before
    with pytest.raises(InvalidVector, match="text"):
        opened(2).add(texts=["a"])
    with pytest.raises(InvalidParameter, match="dim"):
        opened(2, text={})


def test_ids_and_columns_that_are_none_are_refused_alike(opened: Open) -> None:
    items, rows, half = opened(2), [[1.0, 2.0], [2.0, 1.0]], "\ud800"
    assert items.add(rows, ids=["a", half], on_error="skip").rejected_count == 1
    asks: list[Callable[[], object]] = [
        lambda: items.add(rows, ids=["b", half]),
        lambda: items.add([{"id": half, "vector": rows[0]}]),
        lambda: items.get_many([half]),
        lambda: items.delete(half),
        lambda: items.set_payload(half, payload={}),
        lambda: items.add(rows[:1], ids=3),
    ]
    for ask in asks:
        with pytest.raises(gcws_search.InvalidId):
            ask()
    assert half not in items
    for column in (1, None, np.array(3), (each for each in rows), {1, 2}, {"a": 1, "b": 2}, b"xy"):
        with pytest.raises(gcws_search.InvalidPayload):
            items.add(rows, payloads={"k": column})
    empties: list[Any] = [np.zeros((2, 0)), [[], []]]
    for empty in empties:
        with pytest.raises(InvalidVector, match="expected 2 values, got 0"):
            items.add(empty, ids=["a", "b"])
    others: list[Callable[[], object]] = [
        lambda: items.query(id=half),
        lambda: items.detach(half),
        lambda: items.add([{half: 1}], ids=["b"]),
    ]
    for ask in others:
        with pytest.raises((InvalidInput, ItemNotFound, gcws_search.BackendNotFound)):
            ask()
    with suppress(InvalidInput):
        assert not items.find(half)
    assert len(items) == 1


def test_items_expire_by_times_seconds_and_the_ttl_of_a_collection(
    opened: Open, tmp_path: Path
) -> None:
    items = opened(4, ttl=3600)
    rows, until = [*COFFEES.values()], datetime(2127, 1, 1, tzinfo=UTC)
    times = [until, "2001-01-01T00:00:00Z", 60.0, None]
    assert items.add(rows, ids=[*COFFEES], expires=times).inserted == 4
    assert [item.id for item in items] == [[*COFFEES][at] for at in (0, 2, 3)]
    first, *others = [item.expires for item in items]
    assert first == "2127-01-01T00:00:00.000Z"
    assert all(others)
    assert others[0] < others[1] < first
    again = items.add([*items])  # each keeps its own
    assert again.updated == 3
    assert [item.expires for item in items] == [first, *others]
    items.set_payload("kenya", payload={"n": 1})
    assert items.get("kenya").expires == first
    items.add(rows, ids=[*COFFEES], expires=until, if_version=[2 + 1, 0, 2, 2])
    assert {item.expires for item in items} == {first}
    before = [*items]
    spans = [np.full(4, 60, "m8[s]"), np.full(4, 60, "m8[ns]"), [np.timedelta64(60, "s")] * 4]
    moments = [np.datetime64("2127-01-01", unit) for unit in ("D", "s", "ns")]
    wrongs = ("soon", "-1", "nan", -1, datetime(2127, 1, 1), [until], [[60]] * 4, b"60")
    for wrong in (*wrongs, *spans, *moments):
        with pytest.raises(InvalidParameter):
            items.add(rows, ids=[*COFFEES], expires=wrong)
    assert [*items] == before
    items.add(rows[:1], ids=["one"], expires="60")
    assert items.get("one").expires < first
    items.add(rows[:1], ids=["one"], expires="60", if_version=1)
    items.add([{"id": "one", "vector": rows[0], "expires": "60"}])
    assert items.get("one").expires < first
    items.add(rows[:1], ids=["one"], expires="2127-01-01T00:00:00.25Z")
    items.export(str(tmp_path / "all.parquet"))
    table = pq.read_table(tmp_path / "all.parquet")
    assert table["expires"].to_pylist()[-1] == datetime(2127, 1, 1, 0, 0, 0, 250_000, UTC)
    again = opened(4)
    assert again.add(table).inserted == 5
    assert [(each.id, each.expires) for each in again] == [(e.id, e.expires) for e in items]


def test_writes_on_a_version_are_made_or_refused_as_a_whole(opened: Open) -> None:
    items = opened(4)
    rows = [*COFFEES.values()]
    assert items.add(rows, ids=[*COFFEES], if_version=0).inserted == 4
    versions = [None, 1, 1, None]
    assert items.add(rows, ids=[*COFFEES], payloads=[{}] * 4, if_version=versions).updated == 4
    assert items.set_payload("kenya", payload={"n": 1}, if_version=np.int64(2)) == 1
    assert [item.version for item in items] == [2 + (item.id == "kenya") for item in items]
    before = [*items]
    calls: list[Callable[[], object]] = [
        lambda: items.add(rows, ids=["new", "kenya", "x", "y"], if_version=[None, 2, 0, 0]),
        lambda: items.set_payload("kenya", payload={}, if_version=2),
        lambda: items.delete("kenya", if_version=2),
    ]
    for call in calls:
        with pytest.raises(gcws_search.VersionConflict) as caught:
            call()
        assert (caught.value.item_id, caught.value.expected, caught.value.got) == ("kenya", 2, 3)
    assert caught.value.row == 0
    refused: list[Callable[[], object]] = [
        lambda: items.add(rows, if_version=0),
        lambda: items.add(rows, ids=[*"abcd"], if_version=[0]),
        lambda: items.add(rows, ids=[*"abcd"], if_version=-1),
        lambda: items.add(rows, ids=[*"abcd"], if_version=0, on_error="skip"),
        lambda: items.add(rows, ids=[*"abca"], if_version=0),
        lambda: items.delete(["kenya", "brazil"], if_version=3),
        lambda: items.delete(where={"n": 1}, if_version=3),
        lambda: items.set_payload("kenya", payload={}, if_version=0),
        lambda: items.set_payload("kenya", payload={}, if_version=2**63),
        lambda: items.delete("kenya", if_version=True),
        lambda: items.delete("kenya", if_version=3.0),
    ]
    for call in refused:
        with pytest.raises(InvalidParameter):
            call()
    assert [(item, item.version) for item in items] == [(item, item.version) for item in before]
    columns = np.array([[np.int64(2), np.int64(3)]])
    assert items.add(rows[:1], ids=["brazil"], if_version=[*columns[0, :1]]).updated == 1
    assert items.delete("kenya", if_version=columns[0, 1]) == 1
    assert items.add(before, mode="insert", ids=[*"abcd"]).inserted == 4


def test_items_are_added_found_read_and_deleted(opened: Open, tmp_path: Path) -> None:
    items = opened(4)
    vectors = np.array([*COFFEES.values()])
    payloads = {"roast": ROASTS, "place": range(4)}
    added = items.add(vectors, ids=[*COFFEES], payloads=payloads)
    assert (added.inserted, added.updated, added.rejected) == (4, 0, [])
    assert len(items) == 4
    assert bool(items)

    hits = items.query([1.5, -1, 0, -0.5], limit=2, recall=1, explain=True)
    assert hits.ids == ["kenya", "sidamo"]
    assert hits[0].score == pytest.approx(gmm([1.5, -1, 0, -0.5], COFFEES["kenya"]))
    assert hits[0].payload == {"roast": "light", "place": 0}
    assert hits.explanation["method"] == "scan"
    assert items.query(id="kenya", limit=9).ids[-1] != "kenya"
    assert items.query(COFFEES["kenya"], where={"roast": "dark"}).ids == ["robusta"]
    either = items.query(COFFEES["kenya"], where={"roast": ["dark", "medium"]}, min_score=0.01)
    assert either.ids == ["brazil"]

    many = items.query_many(vectors, limit=9)
    assert many.ids.shape == many.scores.shape == (4, 4)
    assert many.ids[:, 0].tolist() == [*COFFEES]
    assert many.scores[:, 0].tolist() == [1, 1, 1, 1]
    filtered = items.query_many(vectors, limit=1, where={"roast": "dark"})
    assert filtered.ids.tolist() == [["robusta"]] * 4

    item = items.get("brazil")
    assert item.vector == COFFEES["brazil"]
    assert item.payload == {"roast": "medium", "place": 1}
    assert [each.id for each in items] == [*COFFEES]

    why = items.explain("kenya", [1.5, -1, 0, -0.5])
    assert why.score == hits[0].score
    assert [share.coordinate for share in why.coordinates] == [0, 1, 3, 2]
    first = items.explain("kenya", [1.5, -1, 0, -0.5], limit=1)
    assert (first.coordinates, first.score) == (why.coordinates[:1], why.score)
    assert first.rest == (3, 1.5, 2.5)
    assert repr(first) == "Explained(0.6667: 0 0.333, …)"
    with pytest.raises(gcws_search.InvalidVector, match=r"b\.vector: expected 4 values"):
        items.explain("kenya", [1, 2, 3])
    [pair] = items.pairs(min_score=0.3)
    assert (pair.a, pair.b) == ("kenya", "sidamo")
    assert [each.recall for each in items.compare(sample=2).backends] == [1.0]

    exported = tmp_path / "coffees.ndjson"
    assert items.export(str(exported)) == 4
    lines = [json.loads(line) for line in exported.read_text().splitlines()]
    assert [line["vector"] for line in lines] == [*COFFEES.values()]
    assert items.delete("kenya") == 1
    assert items.delete(["kenya", "brazil"]) == 1
    assert items.delete(where={"roast": "dark"}) == 1
    assert items.describe()["items"] == len(items) == 1


DAYS = ["2023-12-31T23:00:00-01:00", "2024-01-31", "2024-01-31T23:00:00Z", "soon"]


def test_items_are_counted(opened: Open) -> None:
    items = opened(4)
    items.add([*COFFEES.values()], payloads={"roast": ROASTS, "place": range(4), "on": DAYS})
    assert items.count() == 4
    january = {"on": {"gte": date(2024, 1, 1), "lt": "2024-02-01T00:00:00+01:00"}}
    for where, number in (
        ({"roast": "light"}, 2), ({"place": {"gte": 1}}, 3), ({"a": 1}, 0), (january, 2),
        ({"place": [1, 2**70]}, 1), ({"place": {"lt": 2**70}}, 4),
    ):  # fmt: skip
        assert items.count(where=where) == number
        assert len(items.query([1, 1, 1, 1], where=where)) == number
    with pytest.raises(gcws_search.InvalidFilter):
        items.count(where={"must": 1})


@pytest.mark.parametrize("where", [None, {"roast": ["light", "medium", "dark"]}])
def test_hits_of_many_queries_have_payloads_where_asked(opened: Open, where: Json) -> None:
    items = opened(4)
    items.add([*COFFEES.values()], ids=[*COFFEES], payloads=[*({"roast": r} for r in ROASTS)])
    items.add([[0, 0, 0, 9]], ids=["bare"])
    queries = [*COFFEES.values(), [0, 0, 0, 1]]
    asked = {"limit": 9, "where": where, "recall": 1}
    found = items.query_many(queries, **asked, with_payload=True)
    assert items.query_many(queries, **asked).payloads is None
    plain = items.query_many(queries, **asked)
    assert found.ids.tolist() == plain.ids.tolist()
    known = dict(zip(COFFEES, ({"roast": roast} for roast in ROASTS), strict=True))
    expected = [[known.get(each) for each in line] for line in found.ids.tolist()]
    assert found.payloads.tolist() == expected
    skipped = items.query_many(
        [queries[0], [0, 0, 0, 0]], **asked, with_payload=True, on_error="skip"
    )
    assert skipped.payloads.tolist()[0] == expected[0]
    assert set(skipped.payloads[1].tolist()) == {None}
    bad = items.query_many([[0, 0, 0, 0]], limit=2, with_payload=True, on_error="skip")
    assert bad.payloads.tolist() == [[None, None]]


def test_a_query_that_is_no_vector_takes_no_other_along(opened: Open) -> None:
    items = opened(4)
    items.add([*COFFEES.values()], ids=[*COFFEES])
    first, *others = COFFEES.values()
    odd: list[Json] = [[1], first, None, [0, 0, 0, 0], [1, "x", 2, 3], *others]
    found = items.query_many(odd, limit=1, on_error="skip")
    kenya, *more = COFFEES
    assert found.ids[:, 0].tolist() == [None, kenya, None, None, None, *more]
    assert [each.row for each in found.rejected] == [0, 2, 3, 4]
    zeros = found.rejected[2].detail
    assert "3" in zeros.partition(": ")[0]
    assert "non-zero" in zeros
    assert "'x'" in found.rejected[3].detail
    with pytest.raises(InvalidVector, match=r"\[0\]: expected vectors of numbers"):
        items.query_many(odd, limit=1)
    names: list[Json] = [{0: 1.0}, {0: "x"}, {9: 1.0}, {1: 1.0}]
    assert [each.row for each in items.query_many(names, on_error="skip").rejected] == [1, 2]


def test_a_masked_vector_is_refused_and_one_without_a_mask_is_searched_for(opened: Open) -> None:
    items = opened(3)
    items.add([[1, 2, 3], [7, 8, 1]], ids=["a", "b"])
    asked: Json = {"limit": np.int64(1), "min_score": np.float32(0.5), "recall": np.float16(0.5)}
    [hit] = items.query(np.ma.masked_array([7.0, 8, 1], mask=False), **asked)
    assert (hit.id, hit.score) == ("b", 1)
    masked = np.ma.masked_array([7.0, 8, 1], mask=[False, False, True])
    for ask in (items.query, lambda vector: items.query_many([vector])):
        with pytest.raises(InvalidVector, match=r"masked ones; \.filled\(0\)"):
            ask(masked)


def test_hits_become_a_frame(opened: Open) -> None:
    items = opened(4)
    payloads = [{"roast": "light"}, {"payload.id": 8, "id": 7}, {"roast": "dark"}, None]
    items.add([*COFFEES.values()], ids=[*COFFEES], payloads=payloads)
    hits = items.query(COFFEES["kenya"], recall=1)
    frame = hits.to_pandas()
    assert set(frame.columns) == {"id", "score", "roast", "payload.id", "payload.payload.id"}
    assert frame["id"].tolist() == hits.ids
    assert frame["score"].tolist() == hits.scores
    by_id = frame.set_index("id")
    assert by_id.loc["kenya", "roast"] == "light"
    assert by_id.loc["brazil", ["payload.id", "payload.payload.id"]].tolist() == [8, 7]
    assert by_id["roast"].isna().sum() == len(hits) - 2
    none = items.query(COFFEES["kenya"], where={"roast": "none"}).to_pandas()
    assert (list(none.columns), len(none)) == (["id", "score"], 0)


def test_a_frame_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        gcws_search.Hits([]).to_pandas()


def test_the_package_has_its_version() -> None:
    assert gcws_search.__version__ == metadata.version("gcws-search")


def test_items_are_added_unless_similar_ones_are_there(opened: Open) -> None:
    items = opened(2)
    asked = {"mode": "unless_similar", "min_score": 0.9, "recall": 1}
    added = items.add([[1, 2], [1, 2.01], [-5, 1]], ids=["a", "b", "c"], **asked)
    assert (added.inserted, added.similar_count) == (2, 1)
    [left_out] = added.similar
    assert left_out[:3] == (1, "b", "a")
    assert left_out.score == pytest.approx(3 / 3.01)
    assert "similar_count=1" in repr(added)
    assert items.add([[1, 2]], **asked).similar_count == 1
    times = ["2001-01-01T00:00:00Z", None, None, "2001-01-01T00:00:00Z"]
    added = items.add([[7, 7], [7, 7], [7, 7], [8, -9]], ids=[*"wxyz"], expires=times, **asked)
    assert [each[:3] for each in added.similar] == [(2, "y", "x")]
    assert [item.id for item in items] == ["a", "c", "x"]


def test_scores_are_of_the_kind_that_is_asked_for(opened: Open) -> None:
    items = opened(4)
    items.add([*COFFEES.values()], ids=[*COFFEES])
    query = [1.5, -1, 0, -0.5]
    plain = items.query(query, limit=2, recall=1)
    asked = {"limit": 2, "recall": 1, "score": "bray_curtis"}
    expected = [2 * score / (1 + score) for score in plain.scores]
    assert items.query(query, **asked).scores == expected
    assert items.query(query, **asked, min_score=expected[0]).ids == plain.ids[:1]
    far = items.query(query, **asked, distance=True)
    assert far.scores == [1 - score for score in expected]
    assert items.query(query, limit=2, recall=1, distance=True).scores == [
        1 - score for score in plain.scores
    ]
    assert items.query_many([query], **asked).scores.tolist() == [expected]
    assert items.query_many([query], **asked, distance=True).scores.tolist() == [far.scores]
    [pair] = items.pairs(min_score=0.3)
    score = 2 * pair.score / (1 + pair.score)
    assert [each.score for each in items.pairs(min_score=score, score="bray_curtis")] == [score]
    by_part: Any = {"limit": 2, "score": "containment"}
    found = items.query([0, 1, 0, 2], **by_part)
    many = items.query_many([[0, 1, 0, 2]], **by_part, distance=True)
    assert many.ids.tolist() == [found.ids]
    np.testing.assert_allclose(many.scores, [[1 - each for each in found.scores]])
    [group] = items.groups(min_score=score, recall=1, score="bray_curtis")
    assert group.weakest == group.members[1][1] == score
    part = items.pairs(min_score=0.01, score="containment")[0]
    small = [[min(0, each) for each in COFFEES[part.a]]]  # a part of one item
    items.add(small, ids=["part"])
    [whole] = items.pairs(min_score=1, score="containment")
    assert (whole.score, {whole.a, whole.b}) == (1, {part.a, "part"})
    [group] = items.groups(min_score=1, score="containment")
    assert (group.representative, group.members[1]) == (part.a, ("part", 1))


def test_vectors_and_other_collections_are_joined(opened: Open) -> None:
    items, others = opened(4), opened(4)
    items.add([*COFFEES.values()], ids=[*COFFEES], payloads={"roast": ROASTS})
    vectors = [*COFFEES.values()]
    found = items.join(vectors, min_score=0.99, recall=1)
    assert (found.rows.tolist(), found.ids, found.to) == ([*range(len(COFFEES))], None, [*COFFEES])
    assert found.scores.tolist() == [1] * len(COFFEES)
    named = items.join(vectors, ids=[f"q{name}" for name in COFFEES], limit=1, recall=1)
    assert named.ids == [f"q{name}" for name in COFFEES]
    assert named.to_pandas().columns.tolist() == ["row", "id", "to", "score"]
    dark = items.join(vectors, limit=9, where={"roast": ROASTS[0]}, score="bray_curtis")
    hits = items.query(vectors[0], limit=9, where={"roast": ROASTS[0]}, score="bray_curtis")
    ours = dark.rows == 0
    assert dark.scores[ours].tolist() == hits.scores
    far = items.join(vectors[:1], limit=2, recall=1, distance=True)
    assert far.scores[0] == 0 < far.scores[1]
    others.add(vectors[:2], ids=["x", "y"])
    both = items.join(others, limit=1, recall=1)
    assert (both.rows, both.ids, both.to) == (None, ["x", "y"], [*COFFEES][:2])
    assert len(items.join(np.empty((0, 4)), limit=1)) == 0
    rest = items.join(vectors, ids=[*COFFEES], limit=1, recall=1, after=0)
    assert (rest.rows.tolist(), rest.ids) == ([*range(1, len(COFFEES))], [*COFFEES][1:])
    assert rest.to == [*COFFEES][1:]
    assert len(items.join(vectors, limit=1, after=len(COFFEES))) == 0
    assert items.join(others, limit=1, recall=1, after="x").ids == ["y"]
    with pytest.raises(ItemNotFound):
        items.join(others, limit=1, after=7)
    words, notes = (opened(None, text={"tokens": "words"}) for _ in range(2))
    words.add(texts=["a b c", "d e"], ids=["abc", "de"])
    notes.add(texts=["e d"], ids=["ed"])
    assert words.join(texts=["c b a", "x"], min_score=0.5, recall=1).to == ["abc"]
    assert words.join(notes, min_score=0.5, recall=1).to == ["de"]
    with pytest.raises(InvalidParameter, match="text"):
        words.join(opened(None), limit=1)
    with pytest.raises(InvalidVector):
        items.join([[1, 2, 3, 4], [0, 0]], limit=1)
    bad = [[1, 2, 3, 4], [0, 0, 0, 0], [1, np.nan, 3, 4], [1, 2, 3, 4], [0, 0, 0, 0]]
    for rows in (bad, np.array(bad), sparse.csr_array(np.array(bad))):
        with pytest.raises(InvalidVector, match=r"\[1\].*all zeros"):
            items.join(rows, limit=1)
        assert items.join(rows[:4], limit=1, after=2).rows.tolist() == [3]
        with pytest.raises(InvalidVector, match=r"\[4\].*all zeros"):
            items.join(rows, limit=1, after=2)


def test_a_filter_that_no_item_passes_is_answered_with_hints(opened: Open) -> None:
    items = opened(4)
    items.add([*COFFEES.values()], ids=[*COFFEES], payloads={"roast": ROASTS})
    hits = items.query(COFFEES["kenya"], where={"raost": "dark"})
    assert hits.hints == ["no item has the key 'raost'; did you mean 'roast'?"]
    assert not hits
    assert not items.query(COFFEES["kenya"], where={"roast": "dark"}).hints
    items.set_names(["acidity", "body", "sweetness", "bitterness"])
    assert items.query({"boby": 1}).hints == ["no item has the name 'boby'; did you mean 'body'?"]
    assert not items.query({"body": 1}).hints
    named = [{"body": 1}, {"boby": 1}, {"body": 1, "acidty": 2}, {"boby": 1}]
    unknown = [
        f"no item has the name {name}"
        for name in ("'boby'; did you mean 'body'?", "'acidty'; did you mean 'acidity'?")
    ]
    assert items.query_many(named).hints == unknown
    words = opened(None)
    words.add([{"body": 1}, {"acid": 2}])
    assert words.query_many([{"boby": 1}, {"acid": 1, "boby": 1}]).hints == unknown[:1]
    assert not words.query_many([{"body": 1}, {"acid": 1, "boby": 1}]).hints
    assert items.query_many([*COFFEES.values()], where={"raost": "dark"}).hints == hits.hints
    assert not items.query_many([*COFFEES.values()], where={"roast": "dark"}).hints
    count = items.count(where={"raost": "dark"})
    assert (count, count.hints) == (0, hits.hints)
    assert items.delete(where={"raost": "dark"}).hints == hits.hints
    assert items.set_payload(where={"raost": "dark"}, payload={"seen": True}).hints == hits.hints
    assert not items.count(where={"roast": "dark"}).hints
    assert items.map(where={"raost": "dark"}).hints == hits.hints
    assert items.map(key="raost").hints == hits.hints
    assert not items.map(where={"roast": "dark"}, key="roast").hints
    every = {"min_score": 0.01}
    assert items.groups(**every, keep="raost").hints == hits.hints
    assert items.groups(**every, where={"raost": "dark"}).hints == hits.hints
    assert not items.groups(**every, where={"roast": "dark"}, keep="roast").hints
    for other in ([COFFEES["kenya"]], items):
        assert items.join(other, limit=1, where={"raost": "dark"}).hints == hits.hints
        assert not items.join(other, limit=1, where={"roast": "dark"}).hints


def test_pages_of_a_ranking_share_no_hit(opened: Open, rng: np.random.Generator) -> None:
    items, rows = opened(8), rng.normal(size=(100, 8))
    items.add(rows, payloads={"row": range(100)})
    for query in ({"vector": rows[0] + 0.1}, {"id": "7"}):
        pages = [items.query(**query, limit=70, offset=n, recall=1) for n in (0, 70)]
        whole = items.query(**query, limit=100, recall=1)
        assert [hit for page in pages for hit in page] == [*whole]
        assert all(hit.payload == {"row": int(hit.id)} for hit in whole)
    assert not items.query(rows[0], offset=100)


def test_hits_are_the_best_of_each_group(opened: Open) -> None:
    items = opened(4)
    items.add([*COFFEES.values()], ids=[*COFFEES], payloads={"roast": ROASTS})
    asked: Json = {"limit": 9, "recall": 1, "group_by": "roast"}
    whole = items.query(COFFEES["kenya"], recall=1).ids
    assert items.query(COFFEES["kenya"], **asked).ids == [e for e in whole if e != "sidamo"]
    assert items.query(COFFEES["kenya"], **asked, group_size=2).ids == whole
    around = items.query(id="kenya", **asked, where={"roast": ["light", "dark"]})
    assert around.ids == ["sidamo", "robusta"]
    none = items.query(COFFEES["kenya"], group_by="raost")
    assert not none
    assert none.hints == ["no item has the key 'raost'; did you mean 'roast'?"]


def test_search_methods_are_attached_measured_and_dropped(opened: Open) -> None:
    items = opened(4)
    items.add([*COFFEES.values()], ids=[*COFFEES])
    attached = items.attach("nrff", name="other", params={"features": 64})
    assert (attached["name"], attached["kind"], attached["params"]["features"]) == (
        "other",
        "nrff",
        64,
    )
    assert {each["name"] for each in items.describe()["backends"]} > {"other"}
    with pytest.raises(gcws_search.BackendExists):
        items.attach("nrff", name="other")
    items.detach("other")
    with pytest.raises(gcws_search.BackendNotFound):
        items.detach("other")
    assert items.curve(limit=5)["limit"] == 5
    assert {*items.audits()} == {"audited", "allowance", "waiting"}


def test_snapshots_are_awaited_too(url: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with gcws_search.connect_async(url) as server:
            items = await server.collection("snapped", dim=1)
            await items.add([[1]])
            snapshots = server.snapshots("snapped")
            made = await snapshots.create()
            assert await snapshots.list() == [made]
            copy = tmp_path / "copy.sqlite"
            await snapshots.download(made["name"], copy)
            await snapshots.delete(made["name"])
            await items.add([[2]])
            assert (await snapshots.upload("again", copy))["sha256"] == made["sha256"]
            assert (await snapshots.restore("again", replace=True))["items"] == 1
            await snapshots.delete("again")
            assert await snapshots.list() == []

    asyncio.run(work())


def test_a_snapshot_that_arrives_changed_is_not_kept(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = httpx.Response.iter_bytes
    with gcws_search.connect(url) as server:
        server.collection("changed", dim=1).add([[1]])
        snapshots = server.snapshots("changed")
        made = snapshots.create()
        monkeypatch.setattr(
            httpx.Response, "iter_bytes", lambda *given: (each[:-1] for each in read(*given))
        )
        with pytest.raises(gcws_search.ServerError, match="not what was sent"):
            snapshots.download(made["name"], tmp_path / "copy")
        snapshots.delete(made["name"])
    assert [*tmp_path.iterdir()] == []


def test_rows_whose_id_comes_again_are_counted(opened: Open) -> None:
    items = opened(2)
    items.add([[9, 9]], ids=["c"])
    rows = [[1, 0], [2, 0], [0, 0], [3, 0], [4, 0], [5, 0]]
    added = items.add(rows, ids=list("abaaca"), on_error="skip")
    assert (added.inserted, added.updated, added.rejected_count) == (2, 1, 1)
    assert added.repeated_count == 2
    assert items.get("a").vector == [5, 0]
    assert items.add([[1, 1]], ids=["a"]).repeated_count == 0


def test_items_are_found_by_a_text(opened: Open) -> None:
    items = opened(4)
    items.add([*COFFEES.values()], ids=[*COFFEES], payloads={"roast": ["s", "a B", 'x "y"', "é"]})
    found = items.find("s")
    assert [item.id for item in found] == ["sidamo", "kenya", "brazil", "robusta"]
    assert [item.id for item in items.find("A b")] == ["brazil"]
    assert found[1] == gcws_search.Item("kenya", None, {"roast": "s"})
    assert found.complete
    assert repr(items.find("s", limit=2)) == "FoundItems(2: sidamo, kenya, complete=True)"
    assert [item.id for item in items.find('"Y"')] == ["robusta"]
    assert [item.id for item in items.find("É")] == ["sidamo"]
    assert not items.find("tea")


def test_near_duplicates_are_grouped(opened: Open) -> None:
    items = opened(4)
    payloads = {"roast": ROASTS, "place": range(4)}
    items.add([*COFFEES.values()], ids=[*COFFEES], payloads=payloads)
    [pair] = items.pairs(min_score=0.3)
    [group] = items.groups(min_score=0.3, recall=1, keep="place")
    assert group.representative == "sidamo"
    assert group.members == [("sidamo", 1.0), ("kenya", pair.score)]
    assert group.weakest == pair.score
    assert items.groups(min_score=0.3, where={"roast": "dark"}) == []


def test_a_map_shows_a_sample_and_others(opened: Open) -> None:
    items = opened(4)
    vectors = np.array([*COFFEES.values()])
    items.add(vectors, ids=[*COFFEES], payloads={"roast": ROASTS, "place": range(4)})
    shown = items.map(where={"roast": ["light", "dark"]}, also=["brazil", vectors[0]], key="place")
    assert (shown.ids, shown.values) == (["kenya", "robusta", "sidamo"], [0, 2, 3])
    assert shown.sample.neighbours.shape == shown.sample.scores.shape == (3, 2)
    assert shown.sample.neighbours[0].tolist() == [2, 1]
    assert shown.also.scores[1, 0] == 1
    assert shown.also.xy[1] == pytest.approx(shown.sample.xy[0], abs=1e-6)
    assert repr(shown) == "ItemMap(3 items, also Places(2))"
    with pytest.raises(gcws_search.InvalidVector, match=r"also\[0\]: expected 4 values"):
        items.map(also=[[1, 2, 3]])
    with pytest.raises(gcws_search.ItemNotFound, match="nobody"):
        items.map(also=["nobody"])
    alone = items.map(sample=1, also=["kenya", "sidamo"])
    assert len(alone.sample) == len({*alone.ids}) == 1
    assert alone.also.neighbours.shape == (2, 1)


def test_a_profile_tells_of_similarities_and_buckets(opened: Open) -> None:
    items = opened(4)
    items.add(np.array([*COFFEES.values()]))
    found = items.profile()
    assert (found["items"], found["sample"], found["negative"]) == (4, 4, 5 / 12)
    assert 0 < sum(found["pairs"]["counts"]) < 40
    assert found["depths"][0]["probabilities"][-1] == 1
    assert items.profile(sample=2)["sample"] == 2


def test_items_keep_their_payloads_where_that_is_asked(opened: Open) -> None:
    items = opened(2)
    items.add([[1, 0], [0, 1], [1, 1]], payloads={"label": ["a", "b", "c"]})
    with pytest.raises(InvalidParameter, match="rows without ids"):
        items.add(np.array([[2, 0], [0, 2]]), keep_payloads=True)
    items.add(np.array([[2, 0], [0, 2]]), id_start=0, keep_payloads=True)
    items.add([[3, 3]], ids=["2"], payloads=[{"label": "d"}], keep_payloads=True)
    found = sorted((each.vector, (each.payload or {})["label"]) for each in items)
    assert found == [([0, 2], "b"), ([2, 0], "a"), ([3, 3], "d")]
    items.add(np.array([[5, 0]]), id_start=0)
    assert items.get("0").payload is None
    rejected = items.add([[0, 0], [7, 7]], ids=["1", "2"], keep_payloads=True, on_error="skip")
    assert (rejected.rejected_count, items.get("2").payload) == (1, {"label": "d"})


def test_sparse_items_of_an_open_space(opened: Open, tmp_path: Path) -> None:
    items = opened(None)
    dense = np.array([[0, 1.5, 0, -2], [3, 0, 0, 0], [0, 0, 0, 0.5]])
    assert items.add(sparse.csr_matrix(dense)).inserted == 3
    assert items.add([{7: 1, 3: -2.0}], ids=["x"]).inserted == 1
    assert items.query({3: -2, 1: 1.5}, limit=1).ids == ["0"]
    assert items.query_many(sparse.csr_matrix(dense), limit=1).ids.tolist() == [["0"], ["1"], ["2"]]
    assert items.get("x").vector == {"indices": [3, 7], "values": [-2, 1]}
    items.export(str(tmp_path / "all.parquet"))
    again = opened(None)
    assert again.add(pq.read_table(tmp_path / "all.parquet")).inserted == 4
    assert [(each.id, each.vector) for each in again] == [(each.id, each.vector) for each in items]


def test_coordinates_have_names(opened: Open, tmp_path: Path) -> None:
    items = opened(None)
    items.add([{"acid": 2, "ester": 1}, {"ester": -3.5}], ids=["a", "b"], payloads={"n": [1, 2]})
    items.add([{"names": ["phenol", "acid"], "values": [1, 0.5]}], ids=["c"])
    assert sorted(items.names().values()) == ["acid", "ester", "phenol"]
    assert [*items.names("es").values()] == ["ester"]
    place = {name: index for index, name in items.names().items()}
    more = range(99, 5000)  # several requests of them
    assert items.names(indices=[place["acid"], *more]) == {place["acid"]: "acid"}
    hits = items.query({"acid": 2, "never seen": 2}, limit=1)
    assert [(hit.id, hit.score) for hit in hits] == [("a", 2 / 5)]
    many = items.query_many([{"ester": -1}, {"acid": 1}], limit=1)
    assert many.ids.tolist() == [["b"], ["a"]]
    why = items.explain("a", {"acid": 1, "ester": 1})
    shares = [(each.name, each.min, each.max) for each in why.coordinates]
    assert shares == [("acid", 1, 2), ("ester", 1, 1)]
    why = items.explain("a", {"acid": 2, "never seen": 2})
    assert (why.score, why.coordinates[-1].name) == (2 / 5, "ester")
    assert [each.label for each in why.coordinates] == ["acid", "never seen", "ester"]
    for name in ("all.ndjson", "all.parquet"):
        items.export(str(tmp_path / name))
    again = opened(None)
    lines = (tmp_path / "all.ndjson").read_text().splitlines()
    again.add([json.loads(line)["vector"] for line in reversed(lines)], ids=["c", "b", "a"])
    assert again.explain("a", {"acid": 2, "ester": 1}).score == 1
    assert again.add(pq.read_table(tmp_path / "all.parquet")).updated == 3
    assert again.query({"ester": -3.5}, limit=1)[0] == ("b", 1.0, {"n": 2})
    with pytest.raises(gcws_search.InvalidVector, match="names of 1 to 255 characters"):
        items.add([{"x" * 256: 1}])


@pytest.mark.parametrize("opened", ["server-async"], indirect=True)  # memory keeps names
@pytest.mark.parametrize("change", ["first names", "deleted", "updated"])
def test_a_file_has_names_though_a_writer_adds_or_removes_them_meanwhile(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    items = opened(None)
    page, changes = gcws_search.AsyncCollection.page, [change]

    async def change_then_page(collection: Json, *given: Json, **more: Json) -> Json:
        if changes == ["first names"]:
            changes.clear()
            await collection.add([{"acid": 1}], ids=["a"])
        found = await page(collection, *given, **more)
        if changes:
            if changes.pop() == "deleted":
                await collection.delete("a")
            else:
                await collection.add([{"body": 3}], ids=["a"])
            while "acid" in (await collection.names()).values():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return found

    if change == "first names":
        items.add([{"indices": [1 << 20], "values": [2]}], ids=["by index"])
    else:
        items.add([{"acid": 1}, {"body": 1}], ids=["a", "b"])
    monkeypatch.setattr(gcws_search.AsyncCollection, "page", change_then_page)
    items.export(str(tmp_path / "all.ndjson"))
    lines = [json.loads(each) for each in (tmp_path / "all.ndjson").read_text().splitlines()]
    found = {each["id"]: each["vector"] for each in lines}
    body = {"names": ["body"], "values": [1]}
    assert (
        found
        == {
            "first names": {
                "by index": {"indices": [1 << 20], "values": [2]},
                "a": {"names": ["acid"], "values": [1]},
            },
            "deleted": {"b": body},
            "updated": {"a": {"names": ["body"], "values": [3]}, "b": body},
        }[change]
    )


def test_a_fixed_dim_is_given_its_names(opened: Open) -> None:
    coffees = opened(3)
    with pytest.raises(gcws_search.InvalidVector, match="has no names"):
        coffees.add([{"acid": 1}])
    assert coffees.set_names(["acid", "body", "sweet"]) == 3
    coffees.add([{"acid": 2, "sweet": 1}], ids=["kenya"])
    assert coffees.get("kenya").vector == [2, 0, 1]
    assert coffees.explain("kenya", [2, 1, 0]).coordinates[0].name == "acid"
    assert coffees.query({"acid": 2, "bitter": 1})[0].score == pytest.approx(0.5)
    many = coffees.query_many([{"acid": 2, "bitter": 1}, {"sweet": 1}], limit=1)
    assert many.scores[:, 0].tolist() == pytest.approx([0.5, 1 / 3])
    coffees.add([{"body": 1}], ids=["brazil"])
    compared = coffees.compare([{"sweet": 1}, {"acid": 2, "bitter": 1}], limit=1)
    assert compared.mean_similarity == pytest.approx([1 / 3, 0.5])
    assert [each.recall for each in compared.backends] == [1]
    with pytest.raises(gcws_search.InvalidVector, match="bitter"):
        coffees.add([{"bitter": 1}])
    with pytest.raises(gcws_search.InvalidParameter, match="twice"):
        coffees.set_names(["acid", "acid"])


def a_frame(rng: np.random.Generator, rows: int = 6) -> Json:
    """Return a frame of pandas of four columns of numbers, and one of text."""
    columns = {name: rng.normal(size=rows).astype(np.float32) for name in ("a b", "mass", "é", "x")}
    return pd.DataFrame({"kind": [f"kind {row}" for row in range(rows)], **columns})


TASTES = ["a b", "mass", "é", "x"]


def test_columns_of_frames_are_taken_by_name(opened: Open, rng: np.random.Generator) -> None:
    frame, items = a_frame(rng), opened(4)
    vectors = frame[TASTES].to_numpy()
    items.add(frame[:3])
    assert [*items.names().values()] == TASTES
    mixed = frame[["x", "kind", *TASTES[:-1]]]
    added = items.add(mixed[3:])
    assert np.float32(items.get(added.ids.last).vector).tolist() == vectors[5].tolist()
    for query in (mixed.iloc[5], mixed[5:], mixed[TASTES[::-1]].iloc[5]):
        for hit in items.query(query, recall=1):
            expected = gmm(vectors[5].tolist(), items.get(hit.id).vector)
            assert hit.score == pytest.approx(expected, abs=1e-6)
    assert items.explain(mixed.iloc[5], added.ids.last).score == pytest.approx(1)
    found = items.query_many(mixed, limit=1, recall=1)
    assert found.scores[:, 0].tolist() == pytest.approx([1] * 6)
    assert items.compare(mixed, limit=1, recall=1).mean_similarity == pytest.approx([1] * 6)
    places = items.map(also=[mixed.iloc[0]])
    assert places.also.scores[0, 0] == pytest.approx(1)
    items.add(frame[TASTES].set_axis(range(4), axis=1).iloc[:, ::-1], ids=[*"uvwxyz"])
    items.add(frame[TASTES[::-1]].to_numpy(), ids=[*"abcdef"])
    for item_id in ("u", "a"):  # by position
        assert np.float32(items.get(item_id).vector).tolist() == vectors[0, ::-1].tolist()


def test_columns_that_are_no_coordinates_are_named(opened: Open, rng: np.random.Generator) -> None:
    frame, items = a_frame(rng), opened(4)
    items.add(frame, ids="kind")
    for wrong in (frame.drop(columns="mass"), frame.rename(columns={"mass": "weight"})):
        for call in (items.add, items.query_many, lambda frame: items.query(frame.iloc[0])):
            with pytest.raises(InvalidVector, match="'mass'") as raised:
                call(wrong)
            assert ("'weight'" in str(raised.value)) == ("weight" in wrong)
    with pytest.raises(InvalidVector, match="'year'"):
        items.query_many(frame.assign(year=3))
    assert len(items) == len(frame)
    assert items.add(frame.assign(year=3), payloads=["year"]).inserted == len(frame)


def test_a_bad_number_of_a_frame_is_named_by_its_row_and_column(
    opened: Open, rng: np.random.Generator
) -> None:
    frame, items = a_frame(rng), opened(4)
    frame.loc[2, "mass"] = np.nan
    for _ in range(2):
        with pytest.raises(InvalidVector, match=r"rows\[2\]\.mass: ") as raised:
            items.add(frame[["kind", *TASTES[::-1]]])
        assert raised.value.loc == ("rows", 2, "mass")
        items.add(frame[:2])
    odd = frame.rename(columns={"mass": "mass (g)"})
    with pytest.raises(InvalidVector) as raised:
        opened(4).add(odd)
    assert raised.value.loc == ("rows", 2, "mass (g)")
    with pytest.raises(InvalidVector) as raised:
        opened(None).add(odd)
    assert raised.value.loc == ("rows", 2, "mass (g)")


def test_frames_have_texts(opened: Open) -> None:
    items = opened(None, text={"tokens": "words"})
    frame = pd.DataFrame({"text": ["a b", "c d"], "n": [1, 2]}, index=["x", "y"])
    assert items.add(frame).inserted == 2
    assert items.add(frame[:1].rename(columns={"text": "body"}), texts="body").updated == 1
    assert [(each.id, each.text, each.payload) for each in items] == [
        ("y", "c d", {"n": 2}),
        ("x", "a b", {"n": 1}),
    ]
    for wrong, error in (
        ({"data": frame, "texts": "body"}, r"'body'.*text, n"),
        ({"data": frame, "texts": "n"}, r"text in column 'n'"),
        ({"data": frame, "texts": ["a", "b"]}, "'data' and 'texts'"),
        ({"data": [[1]], "texts": "text"}, "'data' and 'texts'"),
        ({"data": frame.assign(text=["a", None])}, r"rows\[1\]\.text: "),
    ):
        with pytest.raises(InvalidInput, match=error):
            items.add(**wrong)
    assert len(items) == 2


def test_items_are_read_by_many_ids(opened: Open) -> None:
    items = opened(2)
    ids = [f"{'long ' * 40}{number}, and a comma" for number in range(300)] + ["a,b"]
    items.add([[1, number + 1] for number in range(301)], ids=ids, payloads={"n": range(301)})
    asked = [ids[7], "a,b", *ids[::-1], "none"]
    found = items.get_many(asked)
    assert [item.id for item in found] == asked[:-1]
    assert found[1] == items.get("a,b")
    assert items.get_many("a,b", with_vector=False)[0].vector is None
    assert items.get_many([]) == items.get_many(["none"]) == []


def test_loads_are_listed(opened: Open) -> None:
    items = opened(2)
    items.add([[1, 2], [3, 4]])
    is_server = isinstance(items.place, RemoteCollection)
    assert [(each["state"], each["rows"]) for each in items.loads()] == [("done", 2)] * is_server


def test_metadata_are_replaced_but_for_a_fingerprint(opened: Open) -> None:
    items = opened(2)
    items.set_metadata({"fingerprint": "morgan:2", "a": np.int64(1)})
    assert items.describe()["metadata"] == {"fingerprint": "morgan:2", "a": 1}
    items.set_metadata({"b": 2})
    assert items.describe()["metadata"] == {"fingerprint": "morgan:2", "b": 2}
    items.set_metadata({"fingerprint": "torsion"})
    assert items.describe()["metadata"] == {"fingerprint": "torsion"}
    items.set_metadata(None)
    assert not items.describe()["metadata"]


@pytest.mark.parametrize("word", ["The", "ÜBER"])
def test_a_stop_word_that_is_no_token_is_refused(opened: Open, word: str) -> None:
    with pytest.raises(InvalidParameter, match="lowercase"):
        opened(None, text={"stop_words": ["a", word]})
    items = opened(None, text={"stop_words": [word], "lowercase": False})
    items.add(texts=[f"{word} tea", word.lower()])
    assert items.query(text="tea", recall=1).scores[:1] == [1]


def test_names_are_of_the_first_frame_that_is_stored(
    opened: Open, rng: np.random.Generator
) -> None:
    frame, items = a_frame(rng), opened(4)
    with pytest.raises(InvalidVector):
        items.add(frame.assign(x=np.nan))
    assert items.names() == {}
    other = frame.rename(columns={"mass": "weight"})
    assert items.add(other.assign(x=0, weight=np.nan), on_error="skip").rejected_count == len(frame)
    assert items.names() == {}
    items.add(other)
    assert "weight" in items.names().values()
    unnamed = opened(4)
    unnamed.add(frame[TASTES].to_numpy())
    unnamed.add(frame[TASTES[::-1]])
    assert unnamed.names() == {}
    found = np.float32(unnamed.get("6").vector)
    assert found.tolist() == frame[TASTES[::-1]].to_numpy()[0].tolist()


def test_columns_name_the_coordinates_of_an_open_space(
    opened: Open, rng: np.random.Generator
) -> None:
    frame, items = a_frame(rng), opened(None)
    items.add(frame, ids="kind")
    found = items.query_many(frame[["x", "mass", "é", "a b"]], limit=1)
    assert found.ids[:, 0].tolist() == frame["kind"].tolist()
    assert {*items.names().values()} == {*TASTES}


def test_ids_may_be_numbers_or_dots_and_payloads_come_back(opened: Open) -> None:
    items = opened(2, transform={"center": [9, 0], "power": 2.0, "normalize": "l1"})
    payloads: list[Json] = [{"n": 2**70, "x": 1e-300, "t": "é\u2028"}, None, {}, {"a": [{}, None]}]
    items.add([{"id": i, "vector": [1, i], "payload": each} for i, each in enumerate(payloads)])
    assert [each.payload for each in items] == payloads
    items.add([{"id": i, "vector": [1, i], "payload": {"price": i}} for i in range(4)])
    assert items.get(3).id == "3"
    [hit] = items.query(id=0, limit=1)
    assert (hit.id, items.explain(0, 1).score) == ("1", hit.score)
    assert items.explain(0, 1) == items.explain("0", "1")
    assert items.query([1, 1], where={"price": {"gt": 1, "lte": 2}}).ids == ["2"]
    assert (items.delete(3), items.delete([2, np.int64(7)])) == (1, 1)
    items.add([[1, 0], [0, 1]], ids=[".", ".."])
    assert items.get("..").vector == [0, 1]
    assert "..." not in items
    assert (items.delete(".."), len(items)) == (1, 3)
    empty: list[Json] = [{}, {"must": []}, {"must": [{"should": []}]}]
    for where in empty:
        with pytest.raises(gcws_search.InvalidFilter, match="at least one condition"):
            items.delete(where=where)
    printed = [items.query([1, 0]), items.query_many([[1, 0]]), items.get("0"), items.map()]
    printed += [items.compare(sample=2), items.pairs(min_score=0.1), items.add([[3, 3]])]
    assert not [each for each in map(repr, printed) if "\n" in each]


WRONG: list[tuple[Json, str]] = [
    ({"transform": {"normalise": "l2"}}, "transform: expected center, power, normalize"),
    ({"backend": {"params": {}}}, "backend: expected a kind, got none"),
    ({"backend": {"kind": "gcws", "bands": 3}}, "backend: expected kind, params"),
    ({"backend": {"kind": "gcws", "params": 3}}, "params: expected a dict, got 3"),
    ({"transform": "l2"}, '"normalize": "l2".*got \'l2\''),
    ({"transform": 2}, "got 2"),
    ({"transform": {"power": "2"}}, "power: expected .*, got '2'"),
    ({"ttl": "5"}, "ttl: expected .*, got '5'"),
    ({"transform": ("l2",)}, "got \\('l2',\\)"),
    ({"transform": {"center": "x"}}, "transform.center: expected a list of numbers, got 'x'"),
    ({"transform": {"weights": 3}}, "transform.weights: expected a list of numbers, got 3"),
    ({"dim": True}, "dim: expected a whole number"),
    ({"threads": -1}, "threads: expected a whole number, at least 1, got -1"),
    ({"durability": "none"}, "durability: expected 'full' or 'normal', got 'none'"),
    ({"backend": "exact"}, '"kind": "exact".*got \'exact\''),
]


@pytest.mark.parametrize(("config", "words"), WRONG)
def test_a_transform_or_a_backend_that_is_none_is_refused(config: Json, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        gcws_search.Collection.open(":memory:", **{"dim": 2, **config})


def test_queries_of_few_items_and_of_none(opened: Open) -> None:
    items = opened(2)
    assert len(items.query([1, 2])) == 0
    assert items.query_many([[1, 2], [3, 4]]).ids.shape[0] == 2
    items.add([[1, 0], [0, 1]])
    many = items.query_many([[1, 0], [1, 1]], limit=5, min_score=0.4)
    assert many.ids.tolist() == [["0", None], ["0", "1"]]
    assert np.isnan(many.scores[0, 1])
    assert many.scores[1].tolist() == [0.5, 0.5]
    none: list[Json] = [np.empty((0, 2)), [], sparse.csr_matrix((0, 2))]
    for queries in none:
        for where in (None, {"label": 3}):
            ids, scores = items.query_many(queries, limit=7, where=where)
            assert ids.shape == scores.shape == (0, 7)


def test_a_frame_of_another_number_of_columns_is_refused_by_their_names(opened: Open) -> None:
    items = opened(2)
    frame = pd.DataFrame({"x": [1.0], "y": [2.0], "is_new": [True], "note": ["n"]})
    uses: list[Json] = [lambda: items.add(frame), lambda: items.query_many(frame)]
    for use in uses:
        with pytest.raises(InvalidVector, match="2 columns of numbers, got 3, 'x', 'y', 'is_new'"):
            use()
    assert items.add(frame, payloads=["is_new", "note"]).inserted == 1
    assert items.get("0").payload == {"is_new": True, "note": "n"}


def test_errors_are_the_same_classes_everywhere(opened: Open) -> None:
    items = opened(4)
    with pytest.raises(gcws_search.InvalidVector, match="expected 4 values, got 3 values"):
        items.query([1, 2, 3])
    with pytest.raises(gcws_search.ItemNotFound, match="'nobody'") as missing:
        items.get("nobody")
    assert missing.value.item_id == "nobody"
    with pytest.raises(ItemNotFound, match="''"):
        items.get("")
    with pytest.raises(gcws_search.InvalidParameter):
        items.query()
    many = partial(items.query_many, [[1, 2, 3, 4]])
    for ask in (partial(items.query, [1, 2, 3, 4]), many, items.count, items.delete):
        for where, told in (
            ({"must": 3}, r"filter\.must: expected a list"),
            ({"must": [{"key": "a", "match": {}}]}, r"filter\.must\[0\]\.match: expected one of"),
            ({"price": {"above": 3}}, r"filter\.price: expected 'gt'"),
            ({"a": object()}, "filter: expected values that JSON holds, got object"),
            ({"a": "\ud800"}, "filter: expected values that JSON holds"),
        ):
            with pytest.raises(gcws_search.InvalidFilter, match=told):
                ask(where=where)
    match = {"must": [{"key": "n", "match": {"value": np.int64(3)}}]}
    assert items.count(where=match) == items.count(where={"n": Decimal(3)}) == 0
    with pytest.raises(gcws_search.BackendNotFound):
        items.query([1, 2, 3, 4], backend="other")
    items.add([[1, 2, 3, 4]], ids=["a"])
    with pytest.raises(gcws_search.ItemExists) as existing:
        items.add([[1, 2, 3, 5], [1, 2, 3, 4]], ids=["b", "a"], mode="insert")
    assert (existing.value.item_id, existing.value.row) == ("a", 1)
    with pytest.raises(gcws_search.InvalidVector) as bad:
        items.add([[1, 2, 3, 4], [1, np.nan, 3, 4]])
    assert bad.value.loc == ("rows", 1, "vector", 1)
    assert len(items) == 1


def test_rows_that_cannot_be_stored_are_named_and_left_out(opened: Open) -> None:
    items = opened(2)
    items.add([[1, 1]], ids=["old"])
    vectors = [[1, 2], [np.inf, 0], [0, 0], [3, 4], [5, 6]]
    ids = ["a", "b", "c", "old", "d"]
    told: list[int] = []
    added = items.add(
        vectors, ids=ids, payloads=[None] * 5, mode="insert", on_error="skip", progress=told.append
    )
    assert (added.inserted, added.rejected_count) == (2, 3)
    rejected = [(each.row, each.code) for each in added.rejected]
    assert rejected == [(1, "invalid_vector"), (2, "invalid_vector"), (3, "item_exists")]
    assert sum(told) == 5
    assert [each.id for each in items] == ["old", "a", "d"]


def a_polars_frame() -> Any:  # noqa: ANN401
    return pl.DataFrame({"id": ["a", None, "c", "d"], "v": [[1.0, 2], [1, 2], [1], [3, 4]]})


def a_mixed_frame() -> Any:  # noqa: ANN401
    columns = {"x": [1.0, 2, 3, np.nan], "y": 1.0, "what": [{1, 2}, "b", b"c", None]}
    return pd.DataFrame({"id": [*"abcd"], **columns, "n": [1, np.inf, 2, 3]})


INF = float("inf")
BAD_ROWS: dict[str, tuple[Callable[[], dict[str, Any]], dict[int, str], list[str]]] = {
    "lists": (
        lambda: {"data": [[1, 2], [1], [3, 4], None, [1, 2, 3]], "ids": [*"abcde"]},
        {1: "got 1 value", 3: "None", 4: "got 3 values"},
        ["a", "c"],
    ),
    "lists, most of them too long": (
        lambda: {"data": iter([[1, 2, 3], [1, 2], [1, 2, 3]])},
        {0: "got 3 values", 2: "got 3 values"},
        ["0"],
    ),
    "ids": (
        lambda: {"data": np.eye(4)[:, :2] + 1, "ids": ["a", None, "c", 1.5]},
        {1: r"None \(in id\)", 3: r"1\.5 \(in id\)"},
        ["a", "c"],
    ),
    "columns of payloads": (
        lambda: {
            "data": sparse.csr_array(np.ones((4, 2))),
            "payloads": {"n": [1, INF, {2}, None]},
            "id_start": 7,
        },
        {1: r"infinity \(in n\)", 2: r"set \{2\} \(in n\)"},
        ["7", "10"],
    ),
    "columns of Arrow": (
        lambda: {
            "data": [[1, 2], [0, 0], [3, 4]],
            "ids": pa.array(["a", "b", None]),
            "payloads": {"n": pa.array([2**53 + 1, None, 3])},
        },
        {1: "all zeros", 2: r"None \(in id\)"},
        ["a"],
    ),
    "payloads": (
        lambda: {"data": np.ones((4, 2)), "payloads": [{}, {"n": INF}, 5, None]},
        {1: r"infinity \(in payload\.n\)", 2: r"got 5.*\(in payload\)"},
        ["0", "1"],
    ),
    "a frame of pandas": (
        lambda: {"data": a_mixed_frame(), "payloads": ["what", "n"]},
        {0: r"set .*\(in what\)", 1: r"inf \(in n\)", 2: r"b'c' \(in what\)", 3: r"nan \(in"},
        [],
    ),
    "a frame of polars": (
        lambda: {"data": a_polars_frame()},
        {1: r"a missing value \(in id\)", 2: "2 values, got 1"},
        ["a", "d"],
    ),
    "items": (
        lambda: {
            "data": [
                {"id": "a", "vector": [1, 2]},
                {"id": "b"},
                {"id": "c", "vector": [2, 1], "payload": {"n": INF}},
                {"id": "d", "vector": [2, 1], "expires": datetime(2127, 1, 1)},
                {"id": "e", "vector": [2, 2]},
            ]
        },
        {1: "a vector", 2: r"infinity \(in payload\.n\)", 3: r"its zone.*\(in expires\)"},
        ["a", "e"],
    ),
    "dicts": (
        lambda: {"data": [{0: 1}, {0: "x"}, [1, 2], {7: 1}, {1: 2}], "ids": [*"abcde"]},
        {1: "numbers as values", 2: "a dict", 3: "7"},
        ["a", "e"],
    ),
}


@pytest.mark.parametrize("kind", BAD_ROWS)
def test_rows_that_cannot_be_read_are_named_and_left_out_and_no_others(
    opened: Open, kind: str
) -> None:
    make, wrong, stored = BAD_ROWS[kind]
    items = opened(2)
    told: list[int] = []
    added = items.add(**make(), on_error="skip", progress=told.append)
    assert {each.row: each.detail for each in added.rejected}.keys() == wrong.keys(), added.rejected
    for each in added.rejected:
        assert re.match(rf"row {each.row}: expected .*({wrong[each.row]})", each.detail), each
        assert each.code in ("invalid_vector", "invalid_id", "invalid_payload", "invalid_parameter")
    assert (added.rejected_count, added.inserted) == (len(wrong), len(stored))
    assert sum(told) == len(wrong) + len(stored)
    assert [each.id for each in items] == stored
    if kind == "columns of Arrow":
        assert items.get("a").payload == {"n": 2**53 + 1}
    with pytest.raises(gcws_search.InvalidInput):
        items.add(**make())
    assert [each.id for each in items] == stored


def test_texts_that_are_none_are_named_and_left_out(opened: Open) -> None:
    items = opened(None, text={})
    added = items.add(texts=["black tea", 5, "green tea", None], ids=["a", "b", None, "d"],
                      on_error="skip")  # fmt: skip
    told = {each.row: (each.code, each.detail.split(", got ")[1]) for each in added.rejected}
    assert told == {
        1: ("invalid_vector", "5 (in text)"),
        2: ("invalid_id", "None (in id)"),
        3: ("invalid_vector", "None (in text)"),
    }
    assert [each.text for each in items] == ["black tea"]


def test_rows_of_a_server_and_of_this_process_are_refused_in_the_same_words(
    opened: Open, rng: np.random.Generator
) -> None:
    items = opened(4)
    frame = a_frame(rng)
    frame.loc[2, "mass"] = np.nan
    said = "expected a finite float32, got nan"
    told = items.add(frame[["kind", *TASTES[::-1]]], on_error="skip").rejected
    assert [each.detail for each in told] == [f"row 2: {said} (in mass)"]
    items.add([[1, 2, 3, 4]])
    for queries, where in (
        ([[1, 2, 3, 4], [1, 2], [1, np.nan, 1, 1]], "vector[1]"),
        (frame[TASTES], "mass"),
    ):
        told = items.query_many(queries, on_error="skip").rejected
        assert told[-1].detail == f"query 2: {said} (in {where})"
    bad = [[1, 2, 3, 4], [1, np.nan, 1, 1]]
    for rows, where in ((bad, "1].vector[1]"), (frame[TASTES], "2].mass")):
        for ask, name in ((items.query_many, "queries"), (partial(items.join, limit=1), "data")):
            with pytest.raises(InvalidVector) as raised:
                ask(rows)
            assert str(raised.value) == f"{name}[{where}: {said}"


def test_a_bad_query_of_several_requests_is_named_by_its_row(opened: Open) -> None:
    items = opened(800)
    queries = np.ones((2800, 800), np.float32)  # more than one request takes
    queries[-1, 7] = np.nan
    items.add(queries[:1])
    with pytest.raises(InvalidVector, match=r"queries\[2799\]\.vector\[7\]"):
        items.query_many(queries, limit=1)


def test_more_ids_and_queries_than_a_request_takes_are_sent_in_parts(opened: Open) -> None:
    items, ids = opened(1), [*map(str, range(100_001))]
    items.add([[1], [2]], ids=[ids[0], ids[-1]])
    assert items.query_many(np.ones((len(ids), 1)), limit=1).ids.shape == (len(ids), 1)
    assert items.set_payload([*ids, ids[0]], payload={"n": 1}) == 2
    assert items.get(ids[0]).version == 2
    assert items.delete(ids) == 2
    assert items.delete([]) == 0


def test_a_long_filter_goes_with_each_of_many_queries(opened: Open) -> None:
    items = opened(1)
    items.add([[1], [2]], payloads={"n": [1, 2]})
    where = {"n": [1, *(f"{n} {'x' * 900}" for n in range(200))]}
    found = items.query_many(np.ones((200, 1)), where=where, limit=1)
    assert found.ids.tolist() == [["0"]] * 200
    if isinstance(items.place, RemoteCollection):
        with pytest.raises(gcws_search.InvalidFilter, match=r"filter: expected at most .* address"):
            items.join([[1]], limit=1, where=where)
    else:
        assert items.join([[1]], limit=1, where=where).to == ["0"]


def test_a_refusal_of_all_queries_of_a_request_is_of_none_of_them(tmp_path: Path) -> None:
    with (
        listening(tmp_path, max_queries_per_request=2) as port,
        gcws_search.connect(f"http://127.0.0.1:{port}") as server,
    ):
        items = server.collection("few", dim=1)
        items.add([[1]])
        with pytest.raises(InvalidInput, match="at most 2"):
            items.query_many([[1]] * 3)
        (tmp_path / "rows.csv").write_text("x\n1\n2\n3\n")
        rows = source(tmp_path / "rows.csv")  # as the command `query` asks
        with pytest.raises(InvalidInput, match="at most 2"), rows.naming_rows():
            items.query_many([[1]] * 3)


def test_parts_of_a_frame_and_chunks_of_a_file_are_appended(opened: Open) -> None:
    frame = pd.DataFrame({"x": np.arange(1.0, 13), "y": 1.0, "word": "w"})
    items = opened(2)
    for part in pd.read_csv(io.StringIO(frame.to_csv(index=False)), chunksize=5):
        assert (items.add(part).inserted, items.add(part[::2]).updated) == (len(part), 0)
    assert len(items) == 12 + 3 + 3 + 1
    for part in (frame[frame.x <= 6], frame[frame.x > 6], frame[frame.x % 2 == 0]):
        added = items.add(part)
        assert (added.inserted, added.updated) == (len(part), 0)
        assert added.ids is not None
        assert int(added.ids.last) - int(added.ids.first) + 1 == len(part)
    assert len(items) == 19 + 12 + 6
    assert sorted(int(each.id) for each in items) == [*range(37)]


KINDS: dict[str, Callable[[], Any]] = {
    "array": lambda: np.eye(3) + 1,
    "array with payloads": lambda: np.eye(3) + 1,
    "sparse": lambda: sparse.csr_matrix(np.eye(3) + 1),
    "lists": lambda: [[1, 2, 3], [4, 5, 6], [7, 8, 9]],
    "dicts": lambda: [{0: 1}, {1: 2}, {2: 3}],
    "generator": lambda: ([each, 1, 2] for each in range(3)),
    "documents": lambda: [{"vector": [each, 1, 2]} for each in range(3)],
    "polars": lambda: pl.DataFrame({c: [1, 2, 3] for c in "abc"}),
    "pandas": lambda: pd.DataFrame({c: [1, 2, 3] for c in "abc"}),
    "Arrow": lambda: pa.table({c: [1, 2, 3] for c in "abc"}),
}


@pytest.mark.parametrize(
    ("opened", "kind"),
    [("memory-async", kind) for kind in KINDS]
    + [("server", kind) for kind in ("array with payloads", "sparse", "documents", "Arrow")]
    + [("server-async", "generator"), ("file", "array")],
    indirect=["opened"],
)
def test_rows_without_ids_that_come_twice_are_stored_twice(opened: Open, kind: str) -> None:
    items, make = opened(3), KINDS[kind]
    payloads = {"label": [7, 8, 9]} if kind == "array with payloads" else None
    for turn, mode in enumerate(["upsert", "insert", "upsert"]):
        added = items.add(make(), payloads=payloads, mode=mode)
        ids = GivenIds(str(3 * turn), str(3 * turn + 2))
        assert (added.inserted, added.updated, added.ids) == (3, 0, ids)
    assert [each.id for each in items] == [*map(str, range(9))]
    added = items.add(make(), payloads=payloads, id_start=1)
    assert (added.inserted, added.updated, added.ids) == (0, 3, None)
    items.delete([*map(str, range(9))])
    assert items.add(make(), on_error="skip").ids == GivenIds("9", "11")


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_query_that_cannot_be_searched_for_costs_no_other(opened: Open, is_sparse: bool) -> None:
    items = opened(3)
    vectors = np.eye(3) + 1
    items.add(vectors, payloads={"label": [3, 3, 3]})
    queries = np.concatenate([vectors, vectors[:2]])
    queries[1] = 0
    if not is_sparse:
        queries[3, 2] = np.nan
    bad = [1] if is_sparse else [1, 3]
    good = [row for row in range(5) if row not in bad]
    asked = sparse.csr_matrix(queries) if is_sparse else queries
    with pytest.raises(InvalidVector, match=r"queries\[1\]"):
        items.query_many(asked)
    for where in (None, {"label": 3}):
        many = items.query_many(asked, limit=2, where=where, on_error="skip")
        alone = items.query_many(asked[good], limit=2, where=where)
        rejected = [(each.row, each.code) for each in many.rejected]
        assert rejected == [(row, "invalid_vector") for row in bad]
        assert many.ids[good].tolist() == alone.ids.tolist()
        assert many.scores[good].tolist() == alone.scores.tolist()
        assert many.ids[bad].tolist() == [[None] * 2] * len(bad)
        assert np.isnan(many.scores[bad]).all()
    nothing = items.query_many(np.zeros((2, 3)), limit=2, on_error="skip")
    assert (nothing.ids.shape, len(nothing.rejected)) == ((2, 2), 2)
    ids, scores = items.query_many(vectors, limit=1, on_error="skip")
    assert ids.tolist() == [["0"], ["1"], ["2"]]
    assert scores.shape == (3, 1)
