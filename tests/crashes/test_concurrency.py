"""Many clients of the same items: the last write wins, and nobody sees half of one."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from tests.crashes.servers import Asking, Running, serving

URL = "/v1/collections/things"
SIZE = 8
WRITERS = 3
TURNS = 25
IDS = [f"i{place}" for place in range(SIZE)]

Version = tuple[int, int]
"""Which writer, and its how many-th write."""
NONE: Version = (-1, -1)


@dataclass
class History:
    """When each write began and was acknowledged, and what readers saw when.

    ``seen``: when a read began and ended, and what it saw. ``halves``: reads that saw anything but
    one whole write.
    """

    began: dict[Version, float] = field(default_factory=dict)
    ended: dict[Version, float] = field(default_factory=dict)
    seen: list[tuple[float, float, Version]] = field(default_factory=list)
    halves: list[Any] = field(default_factory=list)


def put(asking: Asking, version: Version) -> None:
    payload = {"writer": version[0], "turn": version[1]}
    items = [
        {"id": item_id, "vector": [1, place + 1, version[1] + 1], "payload": payload}
        for place, item_id in enumerate(IDS)
    ]
    asking.success("PUT", f"{URL}/items", {"items": items})


def write(server: Running, history: History, writer: int) -> None:
    with Asking(server.port) as asking:
        for turn in range(TURNS):
            version = writer, turn
            history.began[version] = time.monotonic()
            put(asking, version)
            history.ended[version] = time.monotonic()


def read(server: Running, history: History, finished: threading.Event, *, paging: int) -> None:
    with Asking(server.port) as asking:
        while not finished.is_set():
            began = time.monotonic()
            if paging:
                found = asking.success("GET", f"{URL}/items?limit=100")["items"]
            else:
                query = {"vector": [1, 1, 1], "limit": 100, "recall": 1}
                found = asking.success("POST", f"{URL}/query", query)["hits"]
            ended = time.monotonic()
            versions = {(each["payload"]["writer"], each["payload"]["turn"]) for each in found}
            if sorted(each["id"] for each in found) != IDS or len(versions) != 1:
                history.halves.append(found)
            else:
                history.seen.append((began, ended, versions.pop()))


def is_possible(history: History, began: float, ended: float, version: Version) -> bool:
    """Whether a read in that time may see a write: begun before its end, and not surely replaced.

    A write is surely replaced when another began after its acknowledgement and was itself
    acknowledged before the read began.
    """
    acknowledged = 0.0 if version == NONE else history.ended.get(version, inf)
    return history.began.get(version, 0.0) <= ended and not any(
        history.began[other] > acknowledged and done < began
        for other, done in history.ended.items()
    )


def test_the_last_write_wins_and_no_reader_sees_half_of_one(tmp_path: Path) -> None:
    history, finished = History(), threading.Event()
    with (
        serving(tmp_path / "data") as server,
        Asking(server.port) as asking,
        ThreadPoolExecutor() as threads,
    ):
        asking.success("PUT", URL, {"dim": 3, "backend": {"kind": "gcws", "params": {"bands": 4}}})
        put(asking, NONE)
        readers = [threads.submit(read, server, history, finished, paging=each) for each in (0, 1)]
        writers = [threads.submit(write, server, history, number) for number in range(WRITERS)]
        wait(writers)
        finished.set()
        for each in (*writers, *readers):
            each.result()
        assert history.halves == []
        assert len(history.ended) == WRITERS * TURNS
        assert [seen for seen in history.seen if not is_possible(history, *seen)] == []
        last = asking.success("GET", f"{URL}/items/{IDS[0]}")["payload"]
        now = time.monotonic()
        assert is_possible(history, now, now, (last["writer"], last["turn"]))
    with serving(tmp_path / "data") as server, Asking(server.port) as asking:
        page = asking.success("GET", f"{URL}/items")["items"]
        assert [item["payload"] for item in page] == [last] * SIZE
