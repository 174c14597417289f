"""Attached backends survive restarts, and say what cannot be read."""

from pathlib import Path

import pytest
from sqlite_utils import Database

from gcws_search.index.collection.attached_backends import AttachedBackends
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.errors import DamagedFile
from gcws_search.index.contracts.parameters import (
    FourierParams,
    GcwsParams,
    NystroemParams,
    SearchParams,
)
from tests.support.index.attached_backends import (
    LANDMARKS,
    NRFF,
    VALUES,
    backends,
    filled,
    opened_copy,
)
from tests.support.index.items import Make, batch, opened_catalog, put


@pytest.fixture
def stored(make: Make) -> StoredCollection:
    return filled(make)


def test_attached_backends_are_there_after_a_kill(tmp_path: Path, stored: StoredCollection) -> None:
    mine = FourierParams(kind="rff", features=8, gamma=2.0, seed=5)
    stored.attach(mine, "mine")
    stored.attach(LANDMARKS)
    stored.attach(GcwsParams(bands=3, encoding="b_bit", bits=1))
    put(stored, {"new": 50.0})
    own = SearchParams(limit=5, rerank="none")
    query = batch(stored, ["query"], [5.0]).vectors
    before = {name: stored.search(query, own, backend=name)[0].scores for name in backends(stored)}
    catalog = opened_copy(tmp_path)
    restarted = catalog.get("things")
    shown, told = backends(restarted), backends(stored)
    assert list(shown) == ["exact", "mine", "gmm_nystroem", "gcws"]
    assert [shown[name].params for name in shown] == [told[name].params for name in told]
    for name, scores in before.items():
        again = restarted.search(query, own, backend=name)[0].scores
        assert again == pytest.approx(scores, abs=1e-5), name
    catalog.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE backends SET kind = 'magic'",
        "UPDATE backends SET params = '{'",
        "UPDATE backends SET params = '[1]'",
        "UPDATE backends SET params = '{\"gamma\": -1}'",
        "UPDATE backends SET params = '{\"gammas\": 1}'",
    ],
)
def test_what_cannot_be_read_is_said(
    tmp_path: Path, make: Make, catalog: Catalog, sql: str
) -> None:
    put(stored := make(), VALUES)
    stored.attach(NRFF)
    catalog.close()
    with Database(tmp_path / "things.sqlite") as database:
        database.execute(sql)
        database.conn.commit()
    reopened = opened_catalog(tmp_path)
    with pytest.raises(DamagedFile, match="nrff"):
        reopened.get("things")
    reopened.close()


def test_notes_that_cannot_be_read_are_made_anew(
    tmp_path: Path, make: Make, catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    put(stored := make(), VALUES)
    stored.attach(NystroemParams(kind="gmm_nystroem", landmarks=4))
    catalog.close()
    with Database(tmp_path / "things.sqlite") as database:
        database.execute("UPDATE backends SET notes = 'x'")
        database.conn.commit()
    reopened = opened_catalog(tmp_path)
    warning = "'gmm_nystroem' of collection 'things': its notes are of no use, so it is rebuilt"
    assert warning in caplog.text
    again = reopened.get("things")
    again.finish_background_work()
    assert again.memory.view.attached["gmm_nystroem"].notes
    reopened.close()


def test_what_is_learned_later_is_kept(
    tmp_path: Path, stored: StoredCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bool] = []
    keep = AttachedBackends.save_notes

    def watched(each: AttachedBackends) -> None:
        keep(each)
        kept.append(True)

    monkeypatch.setattr(AttachedBackends, "save_notes", watched)
    stored.attach(LANDMARKS)
    put(stored, {f"more{n}": float(n + 20) for n in range(100)})
    stored.finish_background_work()  # many more items than landmarks were drawn from: drawn again
    assert kept
    own = SearchParams(limit=5, rerank="none")
    query = batch(stored, ["query"], [5.0]).vectors
    scores = stored.search(query, own, backend="gmm_nystroem")[0].scores
    catalog = opened_copy(tmp_path)
    results = catalog.get("things").search(query, own, backend="gmm_nystroem")
    assert results[0].scores == pytest.approx(scores, abs=1e-5)
    catalog.close()
