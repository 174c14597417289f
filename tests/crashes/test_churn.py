"""Items replaced over and over: what is dead is forgotten, in memory and in the file.

An hour of it: ``python -m benchmarks.service.durability --only --churn 60``.
"""

import os
import random
from pathlib import Path

from tests.crashes.servers import Asking, Running, serving

URL = "/v1/collections/things"
ITEMS = 200
BATCH = 50
PAYLOAD = 16384
WARM = 30
ROUNDS = 60
MIB = 1 << 20


def resident_bytes(server: Running) -> int:
    words = Path(f"/proc/{server.pid}/statm").read_text().split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE")


def replace_some(asking: Asking, random_: random.Random, rounds: int) -> None:
    for _ in range(rounds):
        ids = [str(number) for number in random_.sample(range(ITEMS), BATCH)]
        asking.success("POST", f"{URL}/items/delete", {"ids": ids[: BATCH // 2]})
        items = [
            {
                "id": item_id,
                "vector": [random_.uniform(-1, 1) for _ in range(16)],
                "payload": {"text": f"{random_.randrange(10**9):09}" * (PAYLOAD // 9)},
            }
            for item_id in ids
        ]
        asking.success("PUT", f"{URL}/items", {"items": items})


def test_memory_and_file_stay_as_they_are_while_items_are_replaced(tmp_path: Path) -> None:
    random_ = random.Random(0)
    settings = {"GCWS_DURABILITY": "normal", "GCWS_THREADS": "1"}
    with serving(tmp_path / "data", **settings) as server, Asking(server.port) as asking:
        asking.success("PUT", URL, {"dim": 16, "backend": {"kind": "gcws", "params": {"bands": 8}}})
        replace_some(asking, random_, WARM)
        before, file_before = resident_bytes(server), asking.success("GET", URL)["bytes_on_disk"]
        replace_some(asking, random_, ROUNDS)
        after, shown = resident_bytes(server), asking.success("GET", URL)
    put = ROUNDS * BATCH * PAYLOAD
    # Kept dead rows would be all that was put; an allocator's holes are not a quarter of it.
    assert after - before < put / 4, (before / MIB, after / MIB, put / MIB)
    assert shown["bytes_on_disk"] - file_before < put / 4
    assert shown["rows"] <= 3 * ITEMS
