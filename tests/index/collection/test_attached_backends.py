"""Comparison backends come and go beside those who search and write, and survive restarts."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from gcws_search import index as ix
from gcws_search.index.backends import FeatureBackend, RandomBinningBackend
from gcws_search.index.collection import attached_backends
from gcws_search.index.collection.attached_backends import Building
from gcws_search.index.collection.backend_index import BackendIndex
from gcws_search.index.collection.optimizer import optimize
from gcws_search.index.storage.store import Store
from tests.support.index.attached_backends import (
    LANDMARKS,
    NRFF,
    VALUES,
    assert_as_if_made_now,
    backends,
    filled,
    found,
    opened_copy,
)
from tests.support.index.items import Make, batch, put
from tests.support.index.policies import compacting_from
from tests.support.index.saved_graph import Restart
from tests.support.pausing import Work, paused_at


@pytest.fixture
def stored(make: Make) -> ix.StoredCollection:
    return filled(make)


def attaching(stored: ix.StoredCollection) -> AbstractContextManager[Work]:
    """Attach a backend, which has been made and comes once the block ends."""
    return paused_at(attached_backends, "build_index", lambda: stored.attach(NRFF), done=True)


# --- names -------------------------------------------------------------------------------------


def test_names_are_kinds_numbered_where_taken(stored: ix.StoredCollection) -> None:
    names = [stored.attach(params).name for params in (NRFF, NRFF, ix.ExactParams(), NRFF)]
    assert names == ["nrff", "nrff_2", "exact_2", "nrff_3"]
    assert stored.attach(NRFF, "mine").name == "mine"
    for taken in ("mine", "nrff_2", "exact"):
        with pytest.raises(ix.BackendExists, match=taken):
            stored.attach(NRFF, taken)
    stored.detach("nrff_2")
    assert stored.attach(NRFF).name == "nrff_2"


# --- dropping ----------------------------------------------------------------------------------


def test_dropping_gives_the_memory_back(stored: ix.StoredCollection) -> None:
    before = stored.describe().bytes_in_memory
    stored.attach(NRFF)
    assert stored.describe().bytes_in_memory >= before + 4 * 16 * len(VALUES)
    stored.detach("nrff")
    assert stored.describe().bytes_in_memory == before
    assert list(backends(stored)) == ["exact"]
    with pytest.raises(ix.BackendNotFound, match="nrff"):
        found(stored, "nrff")


def test_a_dropped_backend_stays_away(tmp_path: Path, stored: ix.StoredCollection) -> None:
    stored.attach(NRFF)
    stored.attach(ix.GcwsParams(bands=2))
    stored.detach("nrff")
    with opened_copy(tmp_path) as restarted:
        assert list(backends(restarted)) == ["exact", "gcws"]


# --- following changes -------------------------------------------------------------------------


@pytest.mark.parametrize("policies", [compacting_from(3)])
def test_a_backend_takes_in_what_changed_while_it_was_made(stored: ix.StoredCollection) -> None:
    with attaching(stored) as work:
        put(stored, {"new": 50.0, "i3": 30.0})
        stored.delete([f"i{n}" for n in range(4, 12)])
        assert stored.describe().rows == 5
        put(stored, {"newer": 51.0, "i5": 7.0})
    assert work.error is None
    assert len(found(stored, "nrff")) == 7
    assert_as_if_made_now(stored)


def test_many_rows_put_meanwhile_do_not_hold_up_those_who_write(
    stored: ix.StoredCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    catch_up: list[int] = []
    alone = stored.writer.run_as_change

    def watched(work: Callable[[], None]) -> None:
        extend = BackendIndex.extend
        with mock.patch.object(BackendIndex, "extend", autospec=True, side_effect=extend) as called:
            alone(work)
        catch_up.append(sum(len(call.args[2]) for call in called.call_args_list))

    monkeypatch.setattr(stored.writer, "run_as_change", watched)
    with attaching(stored) as work:
        put(stored, {f"more{n}": float(n) for n in range(100)})
    assert work.error is None
    assert catch_up == [0]
    assert_as_if_made_now(stored)


def test_an_index_made_for_a_backend_dropped_meanwhile_is_not_given_to_its_successor(
    catalog: ix.Catalog, stored: ix.StoredCollection
) -> None:
    catalog.pause_optimizing()
    stored.attach(LANDMARKS, "mine")
    put(stored, {f"more{n}": float(n + 20) for n in range(100)})
    assert stored.memory.overdue(stored.memory.view) == "mine"  # other landmarks are to be drawn

    def late(adopt: Callable[[], bool]) -> bool:
        stored.detach("mine")
        stored.attach(replace(LANDMARKS, landmarks=5), "mine")
        return adopt()

    assert optimize(stored.memory, late, threading.Event()) is False
    assert backends(stored)["mine"].params["landmarks"] == 5


def test_nobody_waits_for_a_backend_that_is_made(stored: ix.StoredCollection) -> None:
    with attaching(stored):
        coming = backends(stored)["nrff"]
        assert (coming.status, coming.progress, coming.primary) == ("building", 1.0, False)
        assert coming.params == {"features": 16, "gamma": 1.0, "seed": 0}
        put(stored, {"new": 5.0})
        assert found(stored, "exact")[0][1] == 1.0
        with pytest.raises(ix.BackendNotFound):
            found(stored, "nrff")
        with pytest.raises(ix.BackendExists):
            stored.attach(NRFF, "nrff")
    ready = backends(stored)["nrff"]
    assert (ready.status, ready.progress) == ("ready", 1.0)
    assert ready.build_seconds > 0


# --- what ends early ---------------------------------------------------------------------------


def test_a_backend_dropped_while_it_is_made_never_comes(stored: ix.StoredCollection) -> None:
    with attaching(stored) as work:
        stored.detach("nrff")
    assert isinstance(work.error, ix.BackendNotFound)
    assert list(backends(stored)) == ["exact"]
    assert stored.attach(NRFF).name == "nrff"


def test_a_backend_dropped_at_the_moment_it_comes_is_gone(
    stored: ix.StoredCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropping = threading.Thread(target=stored.detach, args=("nrff",))
    add = Store.add_backend

    def dropped(store: Store, record: ix.BackendRecord) -> None:
        dropping.start()
        while not stored.attached_backends.building[0].stop.wait(0.01):
            assert dropping.is_alive()
        add(store, record)

    monkeypatch.setattr(Store, "add_backend", dropped)
    with suppress(ix.BackendNotFound):  # it was there for a moment
        stored.attach(NRFF)
    dropping.join()
    assert list(backends(stored)) == ["exact"]


@pytest.mark.parametrize("moment", ["before it may come", "as it waits for a write"])
def test_a_drop_is_heard_until_a_backend_comes(
    stored: ix.StoredCollection, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    alone = stored.writer.run_as_change

    def late(work: Callable[[], None]) -> None:
        if moment == "before it may come":
            monkeypatch.setattr(stored.writer, "run_as_change", alone)
            stored.detach("nrff")
        else:
            stored.attached_backends.building[0].stop.set()
        alone(work)

    monkeypatch.setattr(stored.writer, "run_as_change", late)
    with pytest.raises(ix.BackendNotFound, match="nrff"):
        stored.attach(NRFF)
    assert list(backends(stored)) == ["exact"]


def test_a_collection_dropped_meanwhile_ends_the_making(
    catalog: ix.Catalog, stored: ix.StoredCollection
) -> None:
    with attaching(stored) as work:
        [building] = stored.attached_backends.building
        dropping = Work(lambda: catalog.drop("things"))
        assert building.stop.wait(60)
    dropping.join()
    assert isinstance(work.error, ix.CollectionNotFound)
    with pytest.raises(ix.CollectionNotFound):
        stored.attach(NRFF)


def test_without_room_nothing_is_attached(stored: ix.StoredCollection) -> None:
    full = mock.patch.object(Store, "add_backend", side_effect=ix.DiskFull("things"))
    with full, pytest.raises(ix.DiskFull):
        stored.attach(NRFF)
    assert list(backends(stored)) == ["exact"]
    assert put(stored, {"new": 3.0}).inserted == 1
    assert stored.attach(NRFF).name == "nrff"


@pytest.mark.parametrize(("done", "expected"), [(False, ["exact"]), (True, ["exact", "nrff"])])
def test_a_kill_between_two_steps_leaves_all_or_nothing(
    tmp_path: Path, stored: ix.StoredCollection, done: bool, expected: list[str]
) -> None:
    """A copy of the files is what another process finds after a kill at that moment."""
    with (
        paused_at(Store, "add_backend", lambda: stored.attach(NRFF), done=done),
        opened_copy(tmp_path) as restarted,
    ):
        assert list(backends(restarted)) == expected
        assert_as_if_made_now(restarted)


def test_more_landmarks_than_items_are_refused(make: Make) -> None:
    with pytest.raises(ix.InvalidParameter, match="landmarks"):
        make().attach(ix.NystroemParams(kind="rbf_nystroem", landmarks=1))
    put(stored := make(), VALUES)
    with pytest.raises(ix.InvalidParameter, match=r"params\.landmarks: expected 1 to 12.*got 13"):
        stored.attach(ix.NystroemParams(kind="gmm_nystroem", landmarks=13))
    assert (
        stored.attach(ix.NystroemParams(kind="gmm_nystroem", landmarks=12)).name == "gmm_nystroem"
    )


def test_landmarks_of_another_collection_are_taken(stored: ix.StoredCollection) -> None:
    attached = stored.attach(LANDMARKS)
    view = stored.memory.view
    notes = ix.notes_of_backend(view.attached[attached.name])
    one = ix.StoredCollection.in_memory("one", stored.config)
    put(one, {"a": 1.0})  # fewer items than landmarks
    with pytest.raises(ix.InvalidParameter):
        one.attach(LANDMARKS)
    name = one.attach(LANDMARKS, notes=notes).name
    there = one.memory.view
    assert ix.notes_of_backend(there.attached[name]) == notes
    assert one.describe().backends[1].stats["features"] == attached.stats["features"]


BOXES = ix.RandomBinningParams(scale=4.0, bands=4)


def test_progress_is_that_of_features_by_landmarks_too(
    stored: ix.StoredCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    report = Building.report

    def heard(building: Building, first: float, last: float, share: float) -> None:
        report(building, first, last, share)
        seen.append(building.progress)

    monkeypatch.setattr(FeatureBackend, "chunk_rows", 4)
    monkeypatch.setattr(Building, "report", heard)
    stored.attach(LANDMARKS)  # of 12 items: no features at first, then those of 4 at a time
    assert seen == pytest.approx([0.5, 0.5 + 1 / 6, 0.5 + 2 / 6, 1.0])
    seen.clear()
    stored.attach(NRFF)
    assert seen == [1.0]


@pytest.mark.parametrize(
    ("params", "owner"),
    [(BOXES, RandomBinningBackend), (NRFF, FeatureBackend)],
    ids=["bins", "nrff"],
)
def test_a_backend_is_tried_out_before_anybody_can_ask_it(
    stored: ix.StoredCollection,
    monkeypatch: pytest.MonkeyPatch,
    params: ix.BackendParams,
    owner: type[RandomBinningBackend | FeatureBackend],
) -> None:
    search = owner.search
    asked: list[ix.Rerank] = []

    def watched(self: object, *given: object) -> object:
        asked.extend(each.rerank for each in given if isinstance(each, ix.SearchParams))
        assert "boxes" not in stored.memory.view.attached
        return search(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(owner, "search", watched)
    stored.attach(params, "boxes")
    assert asked == ["own", "none"]  # what has not been compiled is compiled now


def test_attached_backends_are_there_after_a_kill(
    tmp_path: Path, stored: ix.StoredCollection
) -> None:
    mine = ix.FourierParams(kind="rff", features=8, gamma=2.0, seed=5)
    stored.attach(mine, "mine")
    stored.attach(LANDMARKS)
    stored.attach(ix.GcwsParams(bands=3, encoding="b_bit", bits=1))
    put(stored, {"new": 50.0})
    own = ix.SearchParams(limit=5, rerank="none")
    query = batch(stored, ["query"], [5.0]).vectors
    before = {name: stored.search(query, own, backend=name)[0].scores for name in backends(stored)}
    with opened_copy(tmp_path) as restarted:
        shown, told = backends(restarted), backends(stored)
        assert list(shown) == ["exact", "mine", "gmm_nystroem", "gcws"]
        assert [shown[name].params for name in shown] == [told[name].params for name in told]
        for name, scores in before.items():
            again = restarted.search(query, own, backend=name)[0].scores
            assert again == pytest.approx(scores, abs=1e-5), name


def test_notes_that_cannot_be_read_are_made_anew(
    make: Make, restart: Restart, caplog: pytest.LogCaptureFixture
) -> None:
    put(stored := make(), VALUES)
    stored.attach(ix.NystroemParams(kind="gmm_nystroem", landmarks=4))
    with restart("UPDATE backends SET notes = 'x'") as reopened:
        warning = "'gmm_nystroem' of collection 'things': its notes are of no use, so it is rebuilt"
        assert warning in caplog.text
        again = reopened
        again.finish_background_work()
        assert again.memory.view.attached["gmm_nystroem"].notes


def test_what_is_learned_later_is_kept(tmp_path: Path, stored: ix.StoredCollection) -> None:
    save = stored.attached_backends.save_notes
    with mock.patch.object(stored.attached_backends, "save_notes", wraps=save) as saving:
        stored.attach(LANDMARKS)
        put(stored, {f"more{n}": float(n + 20) for n in range(100)})
        stored.finish_background_work()  # many more items than landmarks were drawn from
    assert saving.called
    own = ix.SearchParams(limit=5, rerank="none")
    query = batch(stored, ["query"], [5.0]).vectors
    scores = stored.search(query, own, backend="gmm_nystroem")[0].scores
    with opened_copy(tmp_path) as restarted:
        results = restarted.search(query, own, backend="gmm_nystroem")
        assert results[0].scores == pytest.approx(scores, abs=1e-5)
