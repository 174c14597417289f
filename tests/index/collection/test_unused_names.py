"""Names of coordinates that no item has any more are in no file, and are given anew."""

from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.index.collection import reclaim
from tests.support.index.items import opened_catalog
from tests.support.index.policies import FEW_ROWS
from tests.support.index.saved_graph import Restart

WORDS = [f"w{n}" for n in range(40)]


def rows_of(stored: ix.StoredCollection, *words: list[str]) -> ix.RawBatch:
    vectors: list[ix.OneVector] = [
        ix.named_vector(each, [1.0 + len(each)] * len(each)) for each in words
    ]
    return ix.InputVectors(mixed=vectors).check(stored.space, stored.names.reserve)


def put(stored: ix.StoredCollection, items: dict[str, list[str]]) -> None:
    raw = rows_of(stored, *items.values())
    stored.put(ix.ItemBatch([*items], raw, [None] * len(items)))


def named(stored: ix.StoredCollection) -> dict[str, int]:
    """Return the names and their coordinates, in the file as in memory."""
    found = {name: coordinate for coordinate, name in stored.names.listed()}
    assert {name: coordinate for coordinate, name in stored.store.names()} == found
    assert len(stored.names) == len(found)
    return found


def words_of(stored: ix.StoredCollection, item_id: str) -> set[str]:
    """Return the words of an item, by the names of its coordinates."""
    vector = stored.get(item_id).vector
    assert isinstance(vector, dict)
    names = stored.names.of(vector["indices"])
    assert len(names) == len(vector["indices"])
    return {each.name for each in names}


@pytest.mark.parametrize("transform", [ix.Transform(), ix.Transform(power=0.5, normalize="l2")])
def test_names_are_those_of_the_items_and_their_coordinates_never_move(
    tmp_path: Path, rng: np.random.Generator, transform: ix.Transform
) -> None:
    config = ix.CollectionConfig(dim=None, transform=transform, backend=ix.GcwsParams(bands=2))
    catalog = opened_catalog(tmp_path, FEW_ROWS)
    stored = catalog.create("things", config)[0]
    model: dict[str, list[str]] = {}
    places: dict[str, int] = {}
    owners: dict[int, str] = {}
    lasts, freed = set[str](), 0
    for turn in range(60):
        ids = [f"i{n}" for n in rng.choice(12, 4, replace=False).tolist()]
        if turn % 3 < 2:
            new = {each: rng.choice(WORDS, 3, replace=False).tolist() for each in ids}
            put(stored, new)
            model |= new
        else:
            stored.delete(ids)
            model = {each: words for each, words in model.items() if each not in ids}
        stored.finish_background_work()
        if turn % 20 == 19:
            catalog.close()
            catalog = opened_catalog(tmp_path, FEW_ROWS)
            stored = catalog.get("things")
            stored.finish_background_work()
        wanted, found = {*chain.from_iterable(model.values())}, named(stored)
        assert wanted <= {*found}
        assert {*found} - wanted <= lasts, "the last one stays until something else is deleted"
        lasts |= {max(found, key=lambda name: found[name], default="")}
        assert all(found[each] == places[each] for each in wanted & places.keys())
        assert all(owners.setdefault(found[each], each) == each for each in found)
        freed += len(places.keys() - found.keys())
        places = {each: found[each] for each in wanted}
        for item_id, words in model.items():
            assert words_of(stored, item_id) == {*words}
    assert freed > 20
    put(stored, {"one": ["new"], "other": ["newer"]})
    stored.delete([*model])
    stored.finish_background_work()
    assert {*named(stored)} == {"new", "newer"}
    catalog.close()
    assert all(report.is_sound for report in ix.check_directory(tmp_path))


def test_a_vector_that_was_read_before_its_names_were_freed_has_them(
    catalog: ix.Catalog, restart: Restart
) -> None:
    stored = catalog.create("things", ix.CollectionConfig(dim=None))[0]
    put(stored, {"a": ["x", "y"], "b": ["z"]})
    raw = rows_of(stored, ["x", "y"])
    stored.delete(["a"])
    stored.finish_background_work()
    assert {*named(stored)} == {"z"}
    stored.put(ix.ItemBatch(["c"], raw, [None]))
    assert words_of(stored, "c") == {"x", "y"}
    with restart() as again:
        assert words_of(again, "c") == {"x", "y"}


def test_memory_holds_no_more_than_some_names_of_items_of_the_past(
    catalog: ix.Catalog, restart: Restart
) -> None:
    """Except those of a vector that was read before, and is stored after all."""
    stored = catalog.create("things", ix.CollectionConfig(dim=None))[0]
    words = (f"{number}" for number in count())
    with stored.names.reading():
        old = rows_of(stored, ["x", "y"])
        for _ in range(6):
            put(stored, {each: [*islice(words, 1000)] for each in map(str, range(30))})
            stored.finish_background_work()
        stored.put(ix.ItemBatch(["old"], old, [None]))
    before = stored.names.nbytes
    for _ in range(6):
        put(stored, {each: [*islice(words, 1000)] for each in map(str, range(30))})
        stored.finish_background_work()
    assert stored.names.nbytes < before
    put(stored, {"last": ["x", "0", f"{next(words)}"]})
    wanted = named(stored)
    assert words_of(stored, "old") == {"x", "y"}
    with restart() as again:
        assert named(again) == wanted
        assert words_of(again, "old") == {"x", "y"}


@pytest.mark.parametrize("place", ["as_sent", "run_between_changes"])
def test_items_that_are_put_while_names_are_looked_for_have_theirs(
    catalog: ix.Catalog, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    stored = catalog.create("things", ix.CollectionConfig(dim=None))[0]
    put(stored, {"a": ["x", "y"], "b": ["z"]})
    stored.finish_background_work()
    where = reclaim if place == "as_sent" else stored.writer
    call, calls = getattr(where, place), count()

    def call_after_a_write(*arguments: Any) -> Any:  # noqa: ANN401
        if next(calls) == (place != "as_sent"):  # the names are watched by then
            put(stored, {"c": ["x"]})
        return call(*arguments)

    monkeypatch.setattr(where, place, call_after_a_write)
    stored.delete(["a"])
    stored.finish_background_work()
    assert {*named(stored)} == {"x", "z"}
    assert words_of(stored, "c") == {"x"}
