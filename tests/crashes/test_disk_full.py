"""A disk that is full for a while: writes are refused, reads go on, nothing is lost or half there.

No file of the server may grow beyond a size; to SQLite that is a disk that takes no more.
"""

import json
import resource
from pathlib import Path

from tests.crashes.servers import Asking, Running, serving

URL = "/v1/collections/things"
_FULL = 507
_ROUNDS = 400
_LOADED = 500


def items_of(turn: int, count: int = 10) -> list[dict[str, object]]:
    """Return items whose payloads take 2 KiB each."""
    text = {"turn": turn, "text": f"{turn:04}" * 512}
    return [
        {"id": f"{turn}.{place}", "vector": [turn + 1, place, 1, 0], "payload": text}
        for place in range(count)
    ]


def limit_files(server: Running, size: int) -> None:
    _, most = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, most))


def ids(asking: Asking) -> set[str]:
    page = asking.success("GET", f"{URL}/items?limit=10000")
    assert page["next_cursor"] is None
    return {item["id"] for item in page["items"]}


def test_a_full_disk_refuses_writes_serves_reads_and_takes_writes_again(tmp_path: Path) -> None:
    stored: set[str] = set()
    with serving(tmp_path / "data") as server, Asking(server.port) as asking:
        asking.success("PUT", URL, {"dim": 4})
        limit_files(server, 512 * 1024)
        refused = None
        for turn in range(_ROUNDS):
            status, answer = asking.ask("PUT", f"{URL}/items", {"items": items_of(turn)})
            if status != 200:
                refused = status, answer["code"]
                break
            stored |= {f"{turn}.{place}" for place in range(10)}
        assert refused == (_FULL, "disk_full")
        assert stored

        lines = "".join(json.dumps(item) + "\n" for item in items_of(_LOADED, 2000))
        status, answer = asking.ask("POST", f"{URL}/load", lines.encode())
        assert (status, answer["code"]) == (_FULL, "disk_full")
        stored |= {f"{_LOADED}.{row}" for row in range(answer["committed"])}

        assert ids(asking) == stored
        query = {"vector": [1, 0, 1, 0], "limit": 1}
        [hit] = asking.success("POST", f"{URL}/query", query)["hits"]
        assert (hit["id"], hit["score"]) == ("0.0", 1.0)
        status, answer = asking.ask("PUT", "/v1/collections/more", {"dim": 4})
        assert status in (201, _FULL), answer

        limit_files(server, resource.RLIM_INFINITY)
        asking.success("PUT", f"{URL}/items", {"items": items_of(_ROUNDS)})
        asking.success("DELETE", f"{URL}/items/0.0")
        stored |= {f"{_ROUNDS}.{place}" for place in range(10)}
        stored -= {"0.0"}
        assert ids(asking) == stored
    with serving(tmp_path / "data") as server, Asking(server.port) as asking:
        assert ids(asking) == stored
