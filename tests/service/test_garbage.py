"""What an answered request leaves: nothing of ours that only the collector frees.

The collector counts objects. A few of them may hold the body of a load, or the arrays of a
collection: a hundred refused bodies of 25 MB held 2.5 GB.
"""

import gc
import json
from collections.abc import Iterator
from types import FrameType
from typing import Final

import httpx
import numpy as np
import pytest

from gcws_search.service.responses import ARROW, CSV, NDJSON, NPY
from tests.support.service.bodies import arrow, ndjson, npy
from tests.support.service.client import Json
from tests.support.service.live_server import URL, listening

_OURS: Final = ("gcws_search.", "uvicorn.")
GOOD: Final = [{"id": f"n{row}", "vector": [row, 1, 2, 3]} for row in range(40)]
BAD: Final = {"id": "bad", "vector": [1]}
BAD_LINE: Final = json.dumps(BAD)
OTHER_VERSION: Final = {**GOOD[0], "if_version": 10**9}
QUERY, BAD_QUERY = {"vector": [1, 2, 3, 4]}, {"vector": [1]}


def lines(last: str = "", **headers: str) -> Json:
    return {
        "content": ndjson(*GOOD) + last.encode(),
        "headers": {"content-type": NDJSON, **headers},
    }


def table(more: str = "") -> Json:
    rows = "id,w,x,y,z\na,1,2,3,4\nc,2,3,4,5\nd,3,4,5,6\n"
    return {"content": rows + more, "headers": {"content-type": CSV}}


ARROW_BODY: Final = {
    "content": arrow({"id": ["a", "b"], "vector": [[1, 2, 3, 4], [1]]}),
    "headers": {"content-type": ARROW},
}
CUT_BODY: Final = {"content": npy(np.ones((50, 4)))[:-3], "headers": {"content-type": NPY}}
REQUESTS: Final[dict[str, tuple[int, str, str, Json]]] = {
    "put": (200, "PUT", "items", {"json": {"items": GOOD}}),
    "put what is bad": (422, "PUT", "items", {"json": {"items": [*GOOD, BAD]}}),
    "put what is there": (409, "PUT", "items", {"json": {"items": GOOD, "mode": "insert"}}),
    "put no JSON": (400, "PUT", "items", {"content": '{"items": [{'}),
    "put another version": (409, "PUT", "items", {"json": {"items": [OTHER_VERSION]}}),
    "load": (200, "POST", "load", lines()),
    "load under a key": (200, "POST", "load", lines(**{"idempotency-key": "a"})),
    "load what is bad": (422, "POST", "load", lines(BAD_LINE)),
    "load what is no JSON": (400, "POST", "load", lines("{")),
    "load what is bad, and be told meanwhile": (
        422,
        "POST",
        "load",
        lines(BAD_LINE, accept=NDJSON),
    ),
    "load Arrow of which a row is bad": (200, "POST", "load?on_error=skip", ARROW_BODY),
    "load CSV": (200, "POST", "load", table()),
    "load CSV of which a row is bad": (200, "POST", "load?on_error=skip", table("b,,1,1,1\n")),
    "load CSV, and stop at a bad row": (422, "POST", "load", table("b,,1,1,1\n")),
    "load what is no CSV": (400, "POST", "load", {**table(), "content": "a,a\n1,2\n"}),
    "load what is there": (409, "POST", "load?mode=insert", lines()),
    "load what is cut short": (400, "POST", "load", CUT_BODY),
    "show": (200, "GET", "", {}),
    "query": (200, "POST", "query", {"json": QUERY}),
    "query by what is bad": (422, "POST", "query", {"json": BAD_QUERY}),
    "query a batch": (200, "POST", "query/batch", {"json": {"queries": [QUERY] * 9}}),
    "query a bad batch": (422, "POST", "query/batch", {"json": {"queries": [QUERY, BAD_QUERY]}}),
    "pairs": (200, "POST", "pairs", {"json": {"min_score": 0.9}}),
    "groups": (200, "POST", "groups", {"json": {"min_score": 0.9}}),
    "join": (200, "POST", "join?min_score=0.5", lines()),
    "join what is bad": (422, "POST", "join?min_score=0.5", lines(BAD_LINE)),
    "join what is no JSON": (400, "POST", "join?min_score=0.5", lines("{")),
    "change a payload": (200, "PATCH", "items/n1", {"json": {"payload": {"a": 1}}}),
    "change what is not there": (404, "PATCH", "items/none", {"json": {"payload": {"a": 1}}}),
}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with listening(tmp_path_factory.mktemp("garbage")) as found:
        gc.collect()
        gc.freeze()  # servers of other tests may end from here on
        yield found
        gc.unfreeze()


def ask(port: int, method: str, path: str, options: Json) -> int:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        return client.request(method, f"{URL}/{path}" if path else URL, **options).status_code


def left() -> list[str]:
    """Collect, and return what of ours there was."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        names = []
        for each in gc.garbage:
            is_frame = type(each) is FrameType  # proxies of what is gone raise errors
            name = str(each.f_globals.get("__name__")) if is_frame else type(each).__module__
            if name.startswith(_OURS):
                names.append(f"{name}: {type(each).__qualname__}")
        return names
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_leaves_nothing_of_ours_to_the_collector(port: int, name: str) -> None:
    status, *request = REQUESTS[name]
    ask(port, "PUT", "items", {"json": {"items": GOOD}})
    left()
    gc.disable()
    try:
        assert [ask(port, *request) for _ in range(3)] == [status] * 3
        assert left() == []
    finally:
        gc.enable()
