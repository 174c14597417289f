"""Servers killed at every named point, and at some random instants, while clients write.

Hundreds of kills: ``python -m tests.crashes --kills 500``.
"""

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gcws_search.index.storage.data_directory import DataDirectory
from tests.crashes.checking import Lost
from tests.crashes.points import POINTS
from tests.crashes.servers import Asking, Ended, Running, serving, start
from tests.crashes.states import SHARED
from tests.crashes.trial import Trial
from tests.crashes.wrapping import after
from tests.model.shelf import DIM
from tests.support.forks import done_in_fork
from tests.support.service.bodies import TYPES, bodies

RANDOM_KILLS = 4
URL = "/v1/collections/things"
OF_WRITES = [
    "in a transaction", "after commit, before memory", "after the write, before the answer",
]  # fmt: skip
LOADED = 200
NAMED = 60


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """Yield one directory for all kills: what is left of one is there at the next.

    A kill at a point begins with a check of what the kill before it has left.
    """
    made = Trial(tmp_path_factory.mktemp("trial"), seed=0)
    made.kill_at("in a transaction", times=20)
    yield made
    made.check()


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_a_named_point_loses_nothing_acknowledged(trial: Trial, point: str) -> None:
    trial.kill_at(point)


@pytest.mark.parametrize("renames", [1, 2])
def test_a_kill_while_a_file_is_removed_leaves_it_with_its_log_or_neither(
    tmp_path: Path, renames: int
) -> None:
    """A file that lost its log has lost what was acknowledged last."""

    def remove() -> None:
        directory = DataDirectory(tmp_path)
        left = iter(range(renames))
        after(Path, "rename")(lambda: os._exit(0) if next(left) == renames - 1 else None)
        directory.remove("things")

    file, log = tmp_path / "things.sqlite", tmp_path / "things.sqlite-wal"
    for each in (file, log):
        each.touch()
    assert done_in_fork(remove) == ""
    DataDirectory(tmp_path).close()
    assert file.exists() == log.exists()


def test_kills_at_random_instants_lose_nothing_acknowledged(trial: Trial) -> None:
    before = trial.acknowledged
    for _ in range(RANDOM_KILLS):
        trial.kill_at_random()
    trial.check()
    assert trial.acknowledged > before


def test_what_is_lost_is_told(trial: Trial) -> None:
    trial.check()
    writer = trial.writers[0]
    [state] = known = writer.possible
    items = dict(state.items[SHARED])
    items["w0-never"] = (1.0,) * DIM, {}
    writer.possible = [state.having(SHARED, items)]
    with pytest.raises(Lost, match="w0-never"):
        trial.check()
    writer.possible = known


# Loads under a key: sent again, the exact set and counts


@pytest.mark.parametrize(
    ("kind", "point"), [*product(TYPES, OF_WRITES[:1]), *product(["ndjson"], OF_WRITES[1:])]
)
def test_a_load_whose_server_is_killed_goes_on_and_counts_every_row_once(
    tmp_path: Path, kind: str, point: str
) -> None:
    data, body = tmp_path / "data", bodies(LOADED)[kind]
    chunks = {"GCWS_LOAD_CHUNK_ROWS": "16"}

    def sent(asking: Asking) -> Any:  # noqa: ANN401
        headers = {"Content_Type": TYPES[kind], "Idempotency_Key": "one load"}
        return asking.success("POST", f"{URL}/load", body, **headers)

    with serving(data, **chunks) as server, Asking(server.port) as asking:
        asking.success("PUT", URL, {"dim": 4})
    kills = (2, 3, 4)  # each is after further chunks
    for times in kills:
        server = start(data, f"{point}:{times}", **chunks)
        try:
            assert server.ready()
            with Asking(server.port) as asking, pytest.raises(Ended):
                sent(asking)
            assert server.ended(60)
        finally:
            server.kill()
    with serving(data, **chunks) as server, Asking(server.port) as asking:
        [entry] = asking.success("GET", f"{URL}/loads")["loads"]
        before = asking.success("GET", URL)["items"]
        assert (entry["state"], entry["rows"]) == ("interrupted", before)
        assert before >= 16 * len(kills)
        answer = sent(asking)
        assert (answer["inserted"], answer["updated"], answer["rejected_count"]) == (LOADED, 0, 0)
        path = f"{URL}/items?limit={LOADED + 1}&with_vector=true"
        page = asking.success("GET", path)["items"]
        assert [item["id"] for item in page] == [str(row) for row in range(LOADED)]
        assert [item["vector"][0] for item in page] == [row + 1 for row in range(LOADED)]
        assert sent(asking)["inserted"] == LOADED
        assert asking.success("GET", URL)["items"] == LOADED


# Items that bring new names: each name has one coordinate, its items have it


def named_item(row: int) -> dict[str, Any]:
    """Return an item with a name that is new with it, and one that many have."""
    return {"id": str(row), "vector": {"names": [f"own {row}", f"shared {row % 7}"]}}


def require_sound(asking: Asking) -> int:
    """Check that every item has the coordinates of its names; return how many there are."""
    named = asking.success("GET", f"{URL}/names?limit=1000")["names"]
    coordinates = {one["name"]: one["index"] for one in named}
    assert len({*coordinates.values()}) == len(coordinates)
    page = asking.success("GET", f"{URL}/items?limit=1000&with_vector=true")["items"]
    for stored in page:
        names = named_item(int(stored["id"]))["vector"]["names"]
        assert stored["vector"]["indices"] == sorted(coordinates[name] for name in names)
    assert set(coordinates) == {
        name for stored in page for name in named_item(int(stored["id"]))["vector"]["names"]
    }
    return len(page)


def stored_until_the_end(server: Running, first: int) -> int:
    """Store two items at a time until the server ends; return how many it acknowledged."""
    with Asking(server.port) as asking:
        for row in range(first, NAMED, 2):
            pair = {"items": [named_item(row), named_item(row + 1)]}
            try:
                asking.success("PUT", f"{URL}/items", pair)
            except Ended:
                return row
    raise AssertionError("the server has not ended")


@pytest.mark.parametrize("point", OF_WRITES)
def test_a_name_is_there_with_the_first_item_that_has_it(tmp_path: Path, point: str) -> None:
    data = tmp_path / "data"
    with serving(data) as server, Asking(server.port) as asking:
        asking.success("PUT", URL, {"dim": None})
    acknowledged = 0
    for times in (3, 5):
        server = start(data, f"{point}:{times}")
        try:
            assert server.ready()
            acknowledged = stored_until_the_end(server, acknowledged)
        finally:
            server.kill()
        with serving(data) as server, Asking(server.port) as asking:
            held = require_sound(asking)
            assert acknowledged <= held <= acknowledged + 2
    with serving(data) as server, Asking(server.port) as asking:
        asking.success("PUT", f"{URL}/items", {"items": [named_item(row) for row in range(NAMED)]})
        assert require_sound(asking) == NAMED
        query = {"vector": {"names": ["own 17", "shared 3"]}, "limit": 1}
        [hit] = asking.success("POST", f"{URL}/query", query)["hits"]
        assert (hit["id"], hit["score"]) == ("17", 1)
