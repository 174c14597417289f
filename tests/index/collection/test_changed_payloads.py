"""Payloads that change while vectors, rows and places stay: in memory, in files, in old views."""

import json
from pathlib import Path
from typing import Any

import pytest

from gcws_search import index as ix
from tests.support.index.items import Make, batch, held, put, reopened, vector
from tests.support.index.saved_graph import change_file

Payload = dict[str, Any] | None


def change(payload: Payload, *, merge: bool = True) -> ix.PayloadChange:
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
    return ix.PayloadChange(None if payload is None else text, merge)


def where(key: str, value: object) -> ix.Filter:
    return ix.parse_filter({"must": [{"key": key, "match": {"value": value}}]})


def payloads(stored: ix.StoredCollection) -> dict[str, Payload]:
    return {
        item_id: None if text is None else json.loads(text)
        for item_id, (_, text) in held(stored).items()
    }


def test_views_show_the_payloads_of_their_time(stored: ix.StoredCollection) -> None:
    put(stored, {"a": 1, "b": 2})
    views = [stored.memory.view]
    for n in range(5):
        stored.change_payloads(change({"n": n}), ["a"])
        views.append(stored.memory.view)
    assert len({len(view) for view in views}) == 1  # no new row
    for n, view in enumerate(views):
        shown = json.loads(view.payloads[0] or b"")
        assert shown == ({"x": 1.0} if n == 0 else {"x": 1.0, "n": n - 1})
        for value in range(5):
            assert view.mask(where("n", value)).tolist() == [n == value + 1, 0]
        assert view.mask(where("x", 2.0)).tolist() == [0, 1]


def test_items_keep_rows_places_and_vectors(make: Make) -> None:
    stored = make(transform=ix.Transform(power=2.0))
    put(stored, {"a": 1, "b": 2, "c": 3})
    view = stored.memory.view
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored.memory.backend, "encode", None)  # nothing is hashed
        assert stored.change_payloads(change({"y": 1}), ["c", "nobody", "a", "c"]) == 2
        assert stored.change_payloads(change({"z": 1}), where("y", 1)) == 2
    after = stored.memory.view
    assert after.sequences.tolist() == view.sequences.tolist()
    assert after.state is view.state
    assert payloads(stored) == {
        "a": {"x": 1.0, "y": 1, "z": 1},
        "b": {"x": 2.0},
        "c": {"x": 3.0, "y": 1, "z": 1},
    }
    assert held(stored)["a"][0] == vector(1)


@pytest.mark.parametrize(
    ("old", "new", "merged"),
    [
        (None, {"a": 1}, {"a": 1}),
        ({}, {}, {}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"c": 2}}),
        ({"a": 1, "b": [2**70]}, {"a": None}, {"a": None, "b": [2**70]}),
        ({"a": 0.1, "é": "日本"}, {"b": -(10**20)}, {"a": 0.1, "é": "日本", "b": -(10**20)}),
    ],
)
def test_top_level_keys_are_merged(
    stored: ix.StoredCollection, old: Payload, new: dict[str, Any], merged: dict[str, Any]
) -> None:
    put(stored, {"a": 1})
    stored.change_payloads(change(old, merge=False), ["a"])
    stored.change_payloads(change(new), ["a"])
    assert payloads(stored)["a"] == merged


def test_many_payloads_change_in_one_commit(stored: ix.StoredCollection, tmp_path: Path) -> None:
    """Of rows in statements of every size that is kept."""
    ids = [f"i{n}" for n in range(600)]
    stored.put(batch(stored, ids, [1.0] * 600))
    commits = stored.writer.commits
    assert stored.change_payloads(change({"y": 1}), where("x", 1.0)) == 600
    assert stored.writer.commits == commits + 1
    assert {*map(json.dumps, payloads(stored).values())} == {'{"x": 1.0, "y": 1}'}
    assert reopened(stored, tmp_path) == held(stored)


def test_a_damaged_row_is_not_made_whole_by_a_new_payload(
    stored: ix.StoredCollection, tmp_path: Path
) -> None:
    put(stored, {"a": 1, "b": 2})
    change_file(tmp_path, "UPDATE items SET vector = zeroblob(length(vector)) WHERE id = 'a'")
    with pytest.raises(ix.DamagedFile, match="damaged"):
        stored.change_payloads(change({"y": 1}), ["a"])
