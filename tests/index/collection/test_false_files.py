"""Files that say what is not so, all checksums right: what can be is made anew, others refused."""

import logging
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gcws_search.index.collection.check import check_directory
from gcws_search.index.collection.describe import Summary
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.errors import DamagedFile, DamagedSnapshot
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.contracts.saved_index import count_of, number_of
from gcws_search.index.payload import is_payload
from gcws_search.index.storage.schema import backend_checksum, text_checksum
from tests.fuzz.values import (
    BESIDE,
    Bench,
    Sound,
    require_sound,
    rewrite_config,
    rewrite_links,
    rewrite_notes,
    rewrite_row,
)
from tests.support.data.payloads import encode_payload

Change = Callable[[sqlite3.Connection], None]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    return Sound.made(tmp_path_factory.mktemp("false") / "sound")


@pytest.fixture(scope="module")
def bench(sound: Sound, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench.opened(sound, tmp_path_factory.mktemp("bench")) as bench:
        yield bench


def crafted(bench: Bench, name: str, change: Change) -> Path:
    path = bench.copied(name)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        change(file)
    return path


def has_lists(stored: StoredCollection) -> bool:
    return stored.memory.backend.saved(stored.memory.view.state) is not None


def noted(**changes: object) -> Change:
    """Return what replaces values of notes, or calls them with the value that there is."""

    def change(notes: Any) -> Any:  # noqa: ANN401
        return notes | {
            name: value(notes[name]) if callable(value) else value
            for name, value in changes.items()
        }

    return lambda file: rewrite_notes(file, change)


def first_curve(**changes: object) -> Change:
    """Return what replaces values of the first curves of a calibration."""
    return noted(
        calibration=lambda known: (
            known | {"curves": [known["curves"][0] | changes, *known["curves"][1:]]}
        )
    )


# Of calibrations a few: tests/index/graph/test_recall_curve.py has all that are refused.
NOTES: dict[str, Change] = {
    "another version": noted(version=0),
    "no version": noted(version=None),
    "no rounding": noted(rounding=None),
    "rounding of words": noted(rounding=[0, "a", 1]),
    "no kind of rounding": noted(rounding=[-1, 1.0, 0]),
    "rounding of sparse rows": noted(rounding=[3, 1.0, 0]),
    "step of nothing": noted(rounding=[0, 0.0, 0]),
    "step too small": noted(rounding=[0, 1e-45, 0]),
    "origin beyond bytes": noted(rounding=[0, 1.0, 70000]),
    "no calibration": noted(calibration={}),
    "no tables": noted(tables=0),
    "tables of words": noted(tables="many"),
    "built of none": noted(built=None),
    "too many tables": noted(tables=1 << 40),
    "fewer tables than none": noted(tables=-3),
    "built of nothing": noted(built=0),
    "built of less": noted(built=-5),
    "no curves": noted(calibration=lambda known: known | {"curves": []}),
    "a limit beyond memory": first_curve(limit=1 << 40),
    "shares of another length": first_curve(extended=[0.5] * 99),
    "too many shortfalls": noted(shortfalls=[0.0] * 33),
    "shortfalls of words": noted(shortfalls=["0"]),
    "shortfalls beyond all": noted(shortfalls=[-1e300]),
}


@pytest.mark.parametrize("way", ["open", "restore"])
@pytest.mark.parametrize("what", NOTES)
def test_lists_with_false_notes_are_made_anew(
    bench: Bench, way: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "index")
    with bench.brought_in(crafted(bench, "dense", NOTES[what]), way) as stored:
        assert [record.getMessage() for record in caplog.records] == [
            "index of collection 'tried': the saved index is of no use, and is rebuilt"
        ]
        require_sound(stored)
        stored.finish_background_work()
        assert has_lists(stored)
        require_sound(stored)


@pytest.mark.parametrize("rounding", [[0, 1.0, 0], [1, 1.0, 0], [2, 1.0, 0]], ids=str)
def test_sparse_rows_are_not_taken_for_rounded_ones(bench: Bench, rounding: list[Any]) -> None:
    with bench.brought_in(crafted(bench, "sparse", noted(rounding=rounding)), "open") as stored:
        require_sound(stored)


def test_sound_notes_and_lists_are_taken_as_they_are(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "index")
    for name in ("dense", "sparse", "learned"):
        with bench.brought_in(crafted(bench, name, lambda _: None), "open") as stored:
            assert has_lists(stored)
            assert stored.memory.view.attached["extra"].notes
            require_sound(stored)
            stored.finish_background_work()  # tables of sparse rows are not in the file
            query = stored.page(limit=1).items[0].id
            found = stored.search_around([query], SearchParams(limit=10))[0]
            methods = {"dense": "graph", "sparse": "graph", "learned": "rbf_nystroem"}
            assert found.explanation is not None
            assert found.explanation.method == methods[name]
    assert caplog.records == []


# Lists


def relinked(change: Callable[[bytearray], int | None]) -> Change:
    return lambda file: rewrite_links(file, change)


def written(place: int, value: int) -> Callable[[bytearray], None]:
    """Return what writes a whole number at a place; 20 is that of the first key."""
    return lambda data: struct.pack_into("<I", data, place, value)


LINKS: dict[str, Change] = {
    "no rows": relinked(written(8, 0)),
    "more rows": relinked(written(8, 1000)),
    "rows beyond memory": relinked(written(8, (1 << 32) - 1)),
    "no entries": relinked(written(12, 0)),
    "entries beyond memory": relinked(written(12, (1 << 32) - 1)),
    "no rows of many entries": relinked(
        lambda data: data.__setitem__(slice(8, None), b"\0" * 4 + b"\xff" * 4 + b"\0" * 4)
    ),
    "keys of 8 bytes": relinked(written(4, 8)),
    "keys of 3 bytes": relinked(written(4, 3)),
    "a key of no item": relinked(written(20, 0)),
    "a key of another part": relinked(written(20, 5000)),
    "a key twice": relinked(written(24, 2)),
    "half a number": relinked(lambda data: data.__delitem__(-1)),
    "another part": relinked(lambda _: 7),
    "a part below": relinked(lambda _: -1),
    "the last part": relinked(lambda _: (1 << 63) - 1),
    "the first part": relinked(lambda _: -(1 << 63)),
}  # fmt: skip


@pytest.mark.parametrize("way", ["open", "restore"])
@pytest.mark.parametrize("what", LINKS)
def test_lists_of_another_shape_or_of_other_rows_are_made_anew(
    bench: Bench, way: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "index")
    path = crafted(bench, "dense", LINKS[what])
    with bench.brought_in(path, way) as stored:
        assert "is rebuilt" in caplog.records[0].getMessage()
        assert len(caplog.records) <= 2
        require_sound(stored)
        stored.finish_background_work()
        assert has_lists(stored)
        stored.checkpoints.bring_up_to_date()
        assert [number for number, _ in stored.store.links()] == [0]


def test_lists_that_name_no_row_name_none(bench: Bench) -> None:
    def change(data: bytearray) -> None:
        for place in range(len(data) // 8 * 4, len(data) - 4, 8):
            struct.pack_into("<I", data, place, (1 << 32) - 1 - place)

    with bench.brought_in(crafted(bench, "dense", relinked(change)), "open") as stored:
        assert has_lists(stored)
        links = stored.memory.view.state.graph.links.array[:]
        assert links.max() < len(stored.memory.view)
        require_sound(stored)


# Landmarks


def learned(**changes: object) -> Change:
    def change(notes: Any) -> Any:  # noqa: ANN401
        (notes if "drawn_from" in changes else notes["map"]).update(changes)
        return notes

    def apply(file: sqlite3.Connection) -> None:
        for table in ("meta", "backends"):
            rewrite_notes(file, change, table)

    return apply


LANDMARKS: dict[str, Change] = {
    "of another form": learned(form="sparse"),
    "of no form": learned(form=None),
    "of no numbers": learned(dense=""),
    "of a number": learned(dense="AAAAAA=="),
    "of no text": learned(dense=5),
    "of other norms": learned(norms="AACAPwAAgD8AAIA/AACAPwAAgD8AAIA/AACAPwAAgD8="),
    "of no version": learned(version="1"),
    "drawn from nothing": learned(drawn_from=0),
    "drawn from true": learned(drawn_from=True),
    "drawn from a text": learned(drawn_from="5"),
}


@pytest.mark.parametrize("what", LANDMARKS)
def test_false_landmarks_are_drawn_anew(
    bench: Bench, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "index")
    with bench.brought_in(crafted(bench, "learned", LANDMARKS[what]), "open") as stored:
        assert len(caplog.records) == 2  # the primary backend, and the one attached
        require_sound(stored)
        stored.finish_background_work()
        assert has_lists(stored)
        assert stored.memory.view.attached["extra"].notes
        require_sound(stored)


# What cannot be made anew


def configured(**changes: object) -> Change:
    def change(config: Any) -> Any:  # noqa: ANN401
        for name, value in changes.items():
            *path, last = name.split("__")
            place = config
            for word in path:
                place = place[word]
            place[last] = value
        return config

    return lambda file: rewrite_config(file, change)


def rewritten(**columns: Any) -> Change:  # noqa: ANN401
    """Return what replaces columns of the item of key 7."""
    return lambda file: rewrite_row(file, 7, **columns)


def beside(name: str, kind: str, params: str) -> Change:
    def change(file: sqlite3.Connection) -> None:
        columns = (name, kind, params, backend_checksum(name, kind, params))
        file.execute("UPDATE backends SET name = ?, kind = ?, params = ?, checksum = ?", columns)

    return change


def executed(*statements: str) -> Change:
    def change(file: sqlite3.Connection) -> None:
        file.executescript(";".join(statements))

    return change


NAN = struct.pack("<6f", 1, 2, float("nan"), 4, 5, 6)
REFUSED: dict[str, Change] = {
    "a fraction of dimensions": configured(dim=6.5),
    "true dimensions": configured(dim=True),
    "other dimensions": configured(dim=5),
    "no configuration": executed(
        "UPDATE meta SET value = '[]' WHERE name = 'config'",
        f"UPDATE meta SET value = '{text_checksum('[]')}' WHERE name = 'config_checksum'",
    ),
    "a power in words": configured(transform__power="2"),
    "a true power": configured(transform__power=True),
    "a centre of words": configured(transform__center=["1"] * 6),
    "half a band": configured(backend__params__bands=2.5),
    "a seed with a point": configured(backend__params__seed=1.0),
    "no kind": configured(backend__kind=["gcws"]),
    "numbers that are none": rewritten(vector=NAN),
    "more numbers": rewritten(vector=NAN * 2),
    "an id of nothing": rewritten(id=""),
    "an endless id": rewritten(id="x" * 300),
    "a payload of two": rewritten(payload=b'{"a":1},{"b":2}'),
    "a payload that is a list": rewritten(payload=b"[1]"),
    "a payload of depth": rewritten(payload=b'{"a":' + b"[" * 1100 + b"]" * 1100 + b"}"),
    "a version of 0": rewritten(version=0),
    "a version beyond all": rewritten(version=1 << 62),
    "an expiry below 0": rewritten(expires=-1),
    "a key of 0": executed("UPDATE items SET key = 0 WHERE key = 7"),
    "a key below": executed("UPDATE items SET key = -7 WHERE key = 7"),
    "a key beyond all": executed(f"UPDATE items SET key = {(1 << 63) - 1} WHERE key = 7"),
    "a last key in words": executed("UPDATE sqlite_sequence SET seq = 'x'"),
    "a last key beyond all": executed(f"UPDATE sqlite_sequence SET seq = {(1 << 63) - 1}"),
    "a backend of the primary one's name": beside("gcws", "exact", "{}"),
    "a backend of no name": beside("../x", "exact", "{}"),
    "a backend of no parameters": beside("extra", "exact", "[]"),
    "a backend of half a feature": beside("extra", "nrff", '{"features":1.5}'),
    "a trigger": executed("CREATE TRIGGER t AFTER DELETE ON items BEGIN DELETE FROM meta; END"),
    "a view": executed("CREATE VIEW v AS SELECT 1"),
    "another table": executed("CREATE TABLE other (a)"),
    "another index": executed("CREATE INDEX i ON items (payload)"),
    "another column": executed("ALTER TABLE items ADD COLUMN more TEXT"),
    "a computed column": executed("ALTER TABLE items ADD COLUMN more TEXT AS (hex(vector))"),
    "no links": executed("DROP TABLE links"),
    "another page size": executed("PRAGMA page_size = 4096", "VACUUM"),
    "an earlier format": executed("DELETE FROM _sqlite_migrations WHERE name LIKE '0005%'",
                                  "DELETE FROM _sqlite_migrations WHERE name LIKE '0003%'"),
}  # fmt: skip


@pytest.mark.parametrize("way", ["open", "restore"])
@pytest.mark.parametrize("what", REFUSED)
def test_false_rows_configurations_and_tables_are_refused(
    bench: Bench, way: str, what: str
) -> None:
    path = crafted(bench, "dense", REFUSED[what])
    refusal = DamagedFile if way == "open" else DamagedSnapshot
    with pytest.raises(refusal), bench.brought_in(path, way):
        pass
    require_sound(bench.catalog.get(BESIDE))
    if way == "open":
        reports = {each.name: each for each in check_directory(bench.folder / "opened")}
        assert [reports[name].is_sound for name in ("tried", BESIDE)] == [False, True]


def sparse_row(indices: list[int], values: list[float]) -> bytes:
    return struct.pack(f"<{len(indices)}i{len(values)}f", *indices, *values)


@pytest.mark.parametrize("way", ["open", "restore"])
@pytest.mark.parametrize(
    "vector",
    [
        sparse_row([-1, 2], [1, 1]),
        sparse_row([2, 2], [1, 1]),
        sparse_row([5, 2], [1, 1]),
        sparse_row([1, 2], [1, 0]),
        sparse_row([1], [float("inf")]),
        sparse_row([1, 2], [1]),
        b"",
    ],
    ids=["below", "twice", "falling", "zero", "infinite", "half", "nothing"],
)
def test_false_sparse_vectors_are_refused(bench: Bench, way: str, vector: bytes) -> None:
    path = crafted(bench, "sparse", rewritten(vector=vector))
    refusal = DamagedFile if way == "open" else DamagedSnapshot
    with pytest.raises(refusal), bench.brought_in(path, way):
        pass


def test_a_collection_whose_numbers_fail_is_left_out_of_the_list_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    summary = StoredCollection.summary

    def fails(stored: StoredCollection) -> Summary:
        if stored.name == "tried":
            raise KeyError(-1)
        return summary(stored)

    with bench.brought_in(crafted(bench, "dense", lambda _: None), "restore"):
        assert {BESIDE, "tried"} <= {line.name for line in bench.catalog.list()}
        monkeypatch.setattr(StoredCollection, "summary", fails)
        assert [line.name for line in bench.catalog.list()] == [BESIDE]
    assert "collection 'tried' could not be summed up" in caplog.text


@pytest.mark.parametrize("value", [None, True, "1", [1], -1, 11, float("nan"), float("inf")])
def test_what_is_no_number_of_a_range_is_refused(value: object) -> None:
    for check in (number_of, count_of):
        with pytest.raises(ValueError, match="from 0 to 10"):
            check(value, 0, 10)
    assert (number_of(10, 0, 10), count_of(0, 0, 10)) == (10.0, 0)


def test_payloads_that_can_be_sent_can_be_read() -> None:
    for text in (b'{"n":' + b"9" * 400 + b"}", b'{"n":12345678901234567890123}', b"{}"):
        assert is_payload(text)
    for value in ({"a": {"b": [1, "é", None]}}, {"": 1 << 63}):
        payload = encode_payload(value)
        assert payload is not None
        assert is_payload(payload)
    for text in (b"", b'{"n":1} x', b'{"n":' + b"9" * 400 + b",}", b'{"n":NaN}'):
        assert not is_payload(text)
