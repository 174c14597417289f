"""A file that is removed under a running service: no write is acknowledged, searches go on."""

from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.service.bodies import NDJSON
from tests.support.service.client import ITEMS, Serve, assert_problem, count, fill

URL: Final = "/v1/collections/plants"
ITEM: Final = {"id": "new", "vector": [1, 2, 3, 4]}
LINE: Final = b'{"id": "x", "vector": [1, 2, 3, 4]}'
WRITES: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "an item": ("PUT", f"{URL}/items", {"json": {"items": [ITEM]}}),
    "items": ("PUT", f"{URL}/items", {"json": {"items": [ITEM, {**ITEM, "id": "other"}]}}),
    "a deletion": ("DELETE", f"{URL}/items/a", {}),
    "deletions": ("POST", f"{URL}/items/delete", {"json": {"ids": ["a"]}}),
    "a load": ("POST", f"{URL}/load", {"content": LINE, "headers": NDJSON}),
    "a load under a key": (
        "POST", f"{URL}/load", {"content": LINE, "headers": {**NDJSON, "Idempotency-Key": "k"}}
    ),
    "metadata": ("PATCH", URL, {"json": {"metadata": {"a": 1}}}),
    "names": ("PUT", f"{URL}/names", {"json": {"names": ["a", "b", "c", "d"]}}),
    "a backend": ("POST", f"{URL}/backends", {"json": {"kind": "exact"}}),
    "a snapshot": ("POST", f"{URL}/snapshots", {}),
}  # fmt: skip


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_no_route_acknowledges_a_write_to_a_file_that_was_removed(
    suffix: str, serve: Serve, data_dir: Path
) -> None:
    client = serve()
    fill(client)
    (data_dir / f"plants.sqlite{suffix}").unlink()
    for method, url, more in WRITES.values():
        answer = client.request(method, url, **more)
        assert_problem(answer, 500, "damaged_file", f"plants.sqlite{suffix} was removed")
    query = client.post(f"{URL}/query", json={"vector": [0.1, -2, 0, 3], "limit": 4})
    assert len(query.json()["hits"]) == len(ITEMS)
    again = serve()
    if suffix:
        assert count(again) == len(ITEMS)
    else:
        assert_problem(again.get(URL), 500, "damaged_file", "plants.sqlite was removed")
