"""Bodies of loads in every format, and stores that fail under them."""

import base64
import io
import json

import httpx
import numpy as np
import pyarrow as pa
import pytest

from gcws_search.index.contracts.errors import DiskFull
from tests.support.service.client import Client, Json

URL = "/v1/collections/plants/load"
TYPES = {
    "ndjson": "application/x-ndjson",
    "npy": "application/x-npy",
    "arrow": "application/vnd.apache.arrow.stream",
}
NDJSON, NPY, ARROW = ({"Content-Type": kind} for kind in TYPES.values())
"""Headers that say what a body is."""


def rows(n: int, first: int = 0) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Return (n, 4) vectors, all different."""
    counted = np.arange(first + 1, first + n + 1, dtype=np.float32)
    return np.stack([counted, -counted, np.ones(n, np.float32), np.zeros(n, np.float32)], axis=1)


def ndjson(*items: Json) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def npy(array: Json, version: tuple[int, int] | None = None) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def arrow(columns: dict[str, Json], batch_rows: int | None = None, times: int = 1) -> bytes:
    """Return a stream that has the rows of some columns so many times."""
    table = pa.table(columns)
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        for _ in range(times):
            writer.write_table(table, max_chunksize=batch_rows)
    return out.getvalue()


def sparse(row: np.ndarray) -> Json:
    """Return a vector as its coordinates other than 0."""
    some = np.flatnonzero(row)
    return {"indices": some.tolist(), "values": row[some].tolist()}


def packed(values: Json) -> Json:
    """Return a vector as base64 of its numbers."""
    return {"base64": base64.b64encode(np.array(values, "<f4").tobytes()).decode()}


def fixed(array: Json, kind: Json = None) -> Json:
    flat = pa.array(np.asarray(array).reshape(-1), type=kind)
    return pa.FixedSizeListArray.from_arrays(flat, np.asarray(array).shape[1])


def load(client: Client, kind: str, body: Json, query: str = "", **headers: str) -> httpx.Response:
    headers = {"Content-Type": TYPES[kind]} | {k.replace("_", "-"): v for k, v in headers.items()}
    return client.post(f"{URL}{query}", content=body, headers=headers)


def items(n: int, first: int = 0) -> list[dict[str, Json]]:
    return [
        {"id": str(first + i), "vector": row, "payload": {"row": first + i}}
        for i, row in enumerate(rows(n, first).tolist())
    ]


def bodies(n: int) -> dict[str, bytes]:
    """Return the same vectors in every format."""
    ids = [str(i) for i in range(n)]
    return {
        "ndjson": ndjson(*items(n)),
        "npy": npy(rows(n)),
        "arrow": arrow({"id": ids, "vector": fixed(rows(n))}, batch_rows=3),
    }


def vector_of(client: Client, item_id: str) -> list[float]:
    vector: list[float] = client.get(f"/v1/collections/plants/items/{item_id}").json()["vector"]
    return vector


def failing_at(store: type[Json], monkeypatch: pytest.MonkeyPatch, commits: int) -> None:
    """Let the commits of loads fail for want of space, but for the first ones."""
    commit, left = store.commit, [commits]

    def limited(collection: Json, write: Json) -> Json:
        if left[0] == 0:
            raise DiskFull(collection.name)
        left[0] -= 1
        return commit(collection, write)

    monkeypatch.setattr(store, "commit", limited)
