"""Items are those of a dictionary: writes, versions, payloads and times beside each other."""

import json
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from gcws_search import index as ix
from tests.support.index.items import DIM, batch, held, opened_catalog, vector
from tests.support.index.policies import FEW_ROWS
from tests.support.index.saved_graph import copied

KEYS, IDS = "abc", 60
IN_BACKGROUND = replace(FEW_ROWS, max_foreground_rows=0)
LIVES = None, 5.0, 50.0, 0.5
VALUES = None, 0, 1, 2, "word"


class Entry(NamedTuple):
    """What an item should be; it expires at a time in seconds."""

    vector: Any
    payload: dict[str, Any] | None
    expires: float | None
    version: int

    def has(self, key: str, value: object) -> bool:
        return self.payload is not None and key in self.payload and self.payload[key] == value


def where(key: str, value: object) -> ix.Filter:
    return ix.parse_filter({"must": [{"key": key, "match": {"value": value}}]})


def parsed(payload: bytes | None) -> Any:  # noqa: ANN401
    return None if payload is None else json.loads(payload)


class Model:
    """A collection, and what it should hold; its clock stands until it is set."""

    def __init__(self, stored: ix.StoredCollection, rng: np.random.Generator, now: float) -> None:
        self.stored, self.rng, self.now = stored, rng, now
        self.entries: dict[str, Entry] = {}
        self.conflicts = self.expired = 0

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        gone = [each for each, e in self.entries.items() if (e.expires or np.inf) <= self.now]
        self.expired += len([self.entries.pop(each) for each in gone])

    def version(self, item_id: str) -> int:
        return self.entries[item_id].version if item_id in self.entries else 0

    def draw_version(self, item_id: str) -> int | None:
        """Return none, or that of an item, but now and then another one."""
        is_any, is_wrong = self.rng.integers(3) == 0, self.rng.integers(12) == 0
        return None if is_any else self.version(item_id) + int(is_wrong)

    def is_refused(self, ids: list[str], wanted: list[int | None], write: Any) -> bool:  # noqa: ANN401
        """Make a write that is to be refused if a version is wrong; it names the first such one."""
        for row, (each, version) in enumerate(zip(ids, wanted, strict=bool(wanted))):
            if version not in (None, self.version(each)):
                with pytest.raises(ix.VersionConflict) as caught:
                    write()
                found = caught.value.item_id, caught.value.row, caught.value.expected
                assert (*found, caught.value.got) == (each, row, version, self.version(each))
                self.conflicts += 1
                return True
        return False

    def put(self, ids: list[str]) -> None:
        values = [float(x) for x in self.rng.integers(1, 99, len(ids))]
        lives = [LIVES[self.rng.integers(4)] for _ in ids]
        until = [None if life is None else self.now + life for life in lives]
        wanted = [self.draw_version(each) for each in ids] if self.rng.integers(2) else []
        times = [None if at is None else round(at * 1000) for at in until]
        items = replace(batch(self.stored, ids, values), expires=times, if_versions=wanted)
        if self.is_refused(ids[: len(wanted)], wanted, partial(self.stored.put, items)):
            return
        result, there = self.stored.put(items), len(self.entries.keys() & {*ids})
        assert (result.inserted, result.updated) == (len(ids) - there, there)
        for each, x, at in zip(ids, values, until, strict=True):
            entry = Entry(vector(x), {"x": x}, at, self.version(each) + 1)
            self.entries.pop(each, None)  # an update puts an item at the end
            self.entries[each] = entry

    def change(self, ids: list[str]) -> None:
        """Delete items, or change their payloads: of some, of one on its version, by a filter."""
        wanted: list[int | None] = []
        chosen: list[str] | ix.Filter = ids
        match self.rng.integers(3):
            case 0:
                chosen, wanted = ids[:1], [self.draw_version(ids[0])]
            case 1:
                key, value = KEYS[self.rng.integers(3)], VALUES[self.rng.integers(1, 4)]
                chosen = where(key, value)
                ids = [each for each, entry in self.entries.items() if entry.has(key, value)]
        keys = self.rng.choice([*KEYS], int(self.rng.integers(0, 3)), replace=False).tolist()
        given = {key: VALUES[self.rng.integers(5)] for key in keys}
        kind = ["delete", "merge", "merge", "replace", "replace", "remove"][self.rng.integers(6)]
        payload = None if kind == "remove" else json.dumps(given).encode()
        write: Any = partial(
            self.stored.change_payloads, ix.PayloadChange(payload, merge=kind == "merge")
        )
        if kind == "delete":
            write = self.stored.delete
        write = partial(write, chosen, if_version=wanted[0] if wanted else None)
        if self.is_refused(ids[: len(wanted)], wanted, write):
            return
        there = [each for each in ids[: len(wanted) or None] if each in self.entries]
        assert write() == len(there)
        for each in there:
            old = self.entries[each]
            new = {"merge": (old.payload or {}) | given, "replace": given}.get(kind)
            self.entries[each] = Entry(old.vector, new, old.expires, old.version + 1)
            if kind == "delete":
                del self.entries[each]

    def check(self) -> None:
        stored, entries = self.stored, self.entries
        items = stored.page(limit=10_000, with_vector=True).items
        times = [None if item.expires is None else item.expires / 1000 for item in items]
        shown = {
            item.id: Entry(item.vector, parsed(item.payload), at, item.version)
            for item, at in zip(items, times, strict=True)
        }
        assert [*shown.items()] == [*entries.items()]  # in the order of puts
        assert stored.count() == len(stored) == stored.describe().items == len(items)
        assert [stored.get(item.id) for item in items[::5]] == items[::5]
        for key in KEYS:
            assert stored.count(where(key, 1)) == sum(e.has(key, 1) for e in entries.values())
        query = stored.space.from_items([vector(1.0)])
        [found] = stored.search(query, ix.SearchParams(limit=10_000, recall=1.0))
        payloads = map(parsed, found.payloads or ())
        assert dict(zip(found.ids, payloads, strict=True)) == {
            each: entry.payload for each, entry in entries.items()
        }
        [found] = stored.search(query, ix.SearchParams(limit=10_000))
        assert {*found.ids} <= entries.keys()


@pytest.mark.parametrize("policies", [FEW_ROWS, IN_BACKGROUND], ids=["writes", "background"])
@pytest.mark.parametrize("power", [1.0, 2.0])
def test_items_are_those_of_a_dictionary_through_compactions_and_restarts(
    tmp_path: Path, rng: np.random.Generator, policies: ix.Policies, power: float
) -> None:
    model: Model
    opened = partial(opened_catalog, policies=policies, clock=lambda: model.now)
    config = ix.CollectionConfig(
        dim=DIM, backend=ix.GcwsParams(bands=2), transform=ix.Transform(power=power)
    )
    catalog = opened(tmp_path)
    model = Model(catalog.create("things", config)[0], rng, now=1_800_000_000.0)
    rows, compacted = model.stored.memory.view.ids, 0
    for turn in range(320):
        ids = [f"i{n}" for n in rng.choice(IDS, int(rng.integers(1, 6)), replace=False).tolist()]
        (model.put if rng.integers(2) else model.change)(ids)
        model.pass_time(float(rng.integers(3) if turn % 2 else 0))
        compacted += model.stored.memory.view.ids is not rows
        rows = model.stored.memory.view.ids
        model.check()
        if turn % 80 == 40:
            model.stored.finish_background_work()
            model.check()
            assert len(model.stored.store) == len(model.entries)
        if turn % 80 == 79:
            catalog.close()
            model.pass_time(1.0)
            catalog = opened(tmp_path)
            model.stored = catalog.get("things")
            model.check()
    copy = copied(tmp_path, tmp_path / "copy", "things.sqlite")  # as after a kill
    with closing(opened(copy)) as again:
        assert held(again.get("things")) == held(model.stored)
    assert model.conflicts > 10
    assert model.expired > 30
    assert compacted or policies is IN_BACKGROUND  # perhaps between two looks
    catalog.close()
