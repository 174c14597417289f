"""Versions of items: each write counts, and one of a wrong version is refused with all of it."""

import json
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gcws_search import index as ix
from gcws_search.index.storage.store import Store
from tests.support.index.items import batch, held, put
from tests.support.index.saved_graph import FILE, Restart, change_file, opened


def versions(stored: ix.StoredCollection) -> dict[str, int]:
    """Return all versions as pages show them, and `get` too."""
    items = stored.page(limit=10_000).items
    assert [stored.get(item.id).version for item in items] == [item.version for item in items]
    return {item.id: item.version for item in items}


def put_if(
    stored: ix.StoredCollection, ids: list[str], wanted: list[int | None], mode: ix.Mode = "upsert"
) -> ix.WriteResult:
    items = batch(stored, ids, [float(n + 1) for n in range(len(ids))])
    return stored.put(replace(items, if_versions=wanted), mode)


def test_of_threads_that_write_on_the_same_version_one_wins(stored: ix.StoredCollection) -> None:
    """A counter in a payload, raised by who has seen its last value, loses no step."""
    stored.put(batch(stored, ["n"], [1.0]))
    stored.change_payloads(ix.PayloadChange(b'{"n":0}', merge=False), ["n"])
    won = [0] * 4

    def count(thread: int) -> None:
        while won[thread] < 25:
            item = stored.get("n")
            assert item.payload is not None
            new = json.dumps({"n": json.loads(item.payload)["n"] + 1}).encode()
            try:
                if thread % 2:
                    change = ix.PayloadChange(new, merge=False)
                    stored.change_payloads(change, ["n"], if_version=item.version)
                else:
                    items = replace(batch(stored, ["n"], [1.0]), payloads=[new])
                    stored.put(replace(items, if_versions=[item.version]))
            except ix.VersionConflict:
                continue
            won[thread] += 1

    threads = [threading.Thread(target=count, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    item = stored.get("n")
    assert (item.version, item.payload) == (102, b'{"n": 100}')


def test_an_insert_on_a_version_must_also_be_new(stored: ix.StoredCollection) -> None:
    put(stored, {"a": 1})
    with pytest.raises(ix.ItemExists):
        put_if(stored, ["a"], [1], "insert")
    assert versions(stored) == {"a": 1}


def test_an_item_left_out_for_another_keeps_its_version(stored: ix.StoredCollection) -> None:
    put(stored, {"a": 1, "b": 50})
    unless = ix.UnlessSimilar(min_score=0.99, recall=1.0)
    with pytest.raises(ix.VersionConflict):
        put_if(stored, ["b"], [7], unless)
    assert len(put_if(stored, ["b"], [1], unless).similar) == 1
    assert versions(stored) == {"a": 1, "b": 1}


def test_a_version_that_nobody_wrote_is_damage(
    stored: ix.StoredCollection, catalog: ix.Catalog, restart: Restart, tmp_path: Path
) -> None:
    put(stored, {"a": 1, "b": 2})
    put(stored, {"a": 1})
    expected = held(stored)
    catalog.close()
    for version in (1, 3, 0, -1):
        change_file(tmp_path, "UPDATE items SET version = ? WHERE id = 'a'", version)
        [report] = ix.check_directory(tmp_path)
        assert len(report.findings) == 1, version
        with closing(Store(tmp_path / FILE, "things")) as store:
            with pytest.raises(ix.DamagedFile, match="damaged"):
                [*store.chunks()]
            with pytest.raises(ix.DamagedFile, match="damaged"):
                store.fetch(["a"])
    with restart("UPDATE items SET version = 2 WHERE id = 'a'") as again:
        assert held(again) == expected


def test_a_repair_keeps_versions(
    stored: ix.StoredCollection, catalog: ix.Catalog, tmp_path: Path
) -> None:
    put(stored, {"a": 1, "b": 2, "c": 3})
    put(stored, {"c": 3, "a": 1})
    stored.change_payloads(ix.PayloadChange(b'{"seen":true}'), ["a"])
    catalog.close()
    change_file(tmp_path, "UPDATE items SET vector = zeroblob(length(vector)) WHERE id = 'b'")
    [_] = ix.check_directory(tmp_path, repair=True)
    with opened(tmp_path) as again:
        assert versions(again) == {"c": 2, "a": 3}
