"""Servers killed while items bring new names: each name has one coordinate, its items have it."""

from pathlib import Path
from typing import Any

import pytest

from tests.crashes.servers import Asking, Ended, Nursery, Running

URL = "/v1/collections/things"
ROWS = 60
_POINTS = ["in a transaction", "after commit, before memory", "after the write, before the answer"]


def item(row: int) -> dict[str, Any]:
    """Return an item with a name that is new with it, and one that many have."""
    return {"id": str(row), "vector": {"names": [f"own {row}", f"shared {row % 7}"]}}


def require_sound(asking: Asking) -> int:
    """Check that every item has the coordinates of its names; return how many there are."""
    named = asking.success("GET", f"{URL}/names?limit=1000")["names"]
    coordinates = {one["name"]: one["index"] for one in named}
    assert len({*coordinates.values()}) == len(coordinates)
    page = asking.success("GET", f"{URL}/items?limit=1000&with_vector=true")["items"]
    for stored in page:
        names = item(int(stored["id"]))["vector"]["names"]
        assert stored["vector"]["indices"] == sorted(coordinates[name] for name in names)
    assert set(coordinates) == {
        name for stored in page for name in item(int(stored["id"]))["vector"]["names"]
    }
    return len(page)


def stored_until_the_end(server: Running, first: int) -> int:
    """Store two items at a time until the server ends; return how many it acknowledged."""
    with Asking(server.port) as asking:
        for row in range(first, ROWS, 2):
            pair = {"items": [item(row), item(row + 1)]}
            try:
                asking.success("PUT", f"{URL}/items", pair)
            except Ended:
                return row
    raise AssertionError("the server has not ended")


@pytest.mark.parametrize("point", _POINTS)
def test_a_name_is_there_with_the_first_item_that_has_it(
    servers: Nursery, tmp_path: Path, point: str
) -> None:
    data = tmp_path / "data"
    with servers.serving(data) as server, Asking(server.port) as asking:
        asking.success("PUT", URL, {"dim": None})
    acknowledged = 0
    for times in (3, 5):
        server = servers.start(data, point=point, times=times)
        try:
            assert server.ready()
            acknowledged = stored_until_the_end(server, acknowledged)
        finally:
            server.kill()
        with servers.serving(data) as server, Asking(server.port) as asking:
            held = require_sound(asking)
            assert acknowledged <= held <= acknowledged + 2
    with servers.serving(data) as server, Asking(server.port) as asking:
        asking.success("PUT", f"{URL}/items", {"items": [item(row) for row in range(ROWS)]})
        assert require_sound(asking) == ROWS
        query = {"vector": {"names": ["own 17", "shared 3"]}, "limit": 1}
        [hit] = asking.success("POST", f"{URL}/query", query)["hits"]
        assert (hit["id"], hit["score"]) == ("17", 1)
