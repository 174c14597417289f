"""Vectors and streams: stored and found as they were sent, or refused; never a 500."""

import gzip
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from tests.fuzz import filters
from tests.support.service.bodies import TYPES, arrow, bodies, fixed, rows
from tests.support.service.client import Client, count, fill

NAME: Final = "tried"
URL: Final = f"/v1/collections/{NAME}"
JSONS: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
NUMBERS: Final = st.floats(width=32) | st.floats() | st.integers() | st.just(0)
VECTORS: Final = st.one_of(
    st.lists(NUMBERS, min_size=4, max_size=4),
    st.lists(NUMBERS, max_size=6),
    st.fixed_dictionaries(
        {
            "indices": st.lists(st.integers(0, 3) | st.integers(), max_size=5, unique=True),
            "values": st.lists(NUMBERS, max_size=5),
        }
    ),
    JSONS,
)


def try_vector(client: Client, vector: Any) -> None:  # noqa: ANN401
    """Store a vector: it is found again as float32 holds it, or nothing was stored."""
    before = count(client, NAME)
    client.delete(f"{URL}/items/tried")
    answer = filters.send(
        client, "PUT", f"{URL}/items", {"items": [{"id": "tried", "vector": vector}]}
    )
    if answer.status_code != 200:
        assert answer.status_code == 422, answer.text
        assert count(client, NAME) <= before
        assert client.get(f"{URL}/items/tried").status_code == 404
        assert filters.send(client, "POST", f"{URL}/query", {"vector": vector}).status_code == 422
        return
    held = np.array(client.get(f"{URL}/items/tried").json()["vector"], np.float32)
    assert np.array_equal(held, _as_dense(vector))
    hits = filters.send(
        client, "POST", f"{URL}/query", {"vector": vector, "recall": 1, "limit": 1000}
    ).json()["hits"]
    [score] = [hit["score"] for hit in hits if hit["id"] == "tried"]
    assert math.isclose(score, 1.0, abs_tol=1e-6)
    assert all(0 <= hit["score"] <= 1 + 1e-9 for hit in hits)


def _as_dense(vector: Any) -> Any:  # noqa: ANN401
    if isinstance(vector, list):
        return np.array(vector, np.float64).astype(np.float32)
    dense = np.zeros(4, np.float32)
    dense[vector["indices"]] = np.array(vector["values"], np.float64)
    return dense


STREAMS: Final = {TYPES[kind]: body for kind, body in bodies(3).items()} | {
    TYPES["arrow"]: arrow(
        {"id": ["p", "q"], "vector": fixed(rows(2)), "payload": ['{"n": 1}', None]}
    )
}
"""A sound body of each content type."""
EDITS: Final = st.lists(
    st.tuples(st.floats(0, 1), st.binary(max_size=6), st.integers(0, 6)), max_size=4
)
BODIES: Final = st.tuples(
    st.sampled_from(sorted(STREAMS)),
    EDITS,
    st.sampled_from(["plain", "gzip", "cut"]),
    EDITS,
    st.sampled_from(["stop", "skip"]),
)


def edited(data: bytes, edits: list[tuple[float, bytes, int]]) -> bytes:
    """Return bytes with stretches replaced: each at a share of the length, so many bytes."""
    for share, new, removed in edits:
        at = int(share * len(data))
        data = data[:at] + new + data[at + removed :]
    return data


def try_load(client: Client, body: Any) -> None:  # noqa: ANN401
    """Load a body that is sound but for a few bytes: what is refused is a 4xx that says why."""
    kind, edits, form, later, on_error = body
    data = edited(STREAMS[kind], edits)
    if form == "gzip":
        data = edited(gzip.compress(data, mtime=0), later)
    if form == "cut":
        data = data[: len(data) // 2]
    url = f"{URL}/load?on_error={on_error}"
    answer = client.post(url, content=data, headers={"Content-Type": kind})
    assert answer.status_code < 500, answer.text
    assert "Traceback" not in answer.text
    if answer.status_code >= 400:
        assert answer.json()["detail"]
    assert client.get(f"{URL}/items?limit=1").status_code == 200


TRIALS: Final[dict[str, tuple[st.SearchStrategy[Any], Callable[[Client, Any], None]]]] = {
    "vectors": (VECTORS, try_vector),
    "filters": (filters.TRIALS, filters.try_filter),
    "streams": (BODIES, try_load),
}


def prepare(client: Client) -> None:
    """Make the collection that all this is about."""
    fill(client, NAME)
