"""Joins: each vector with all items that score enough, or the best; as brute force finds them."""

import asyncio
import gzip
import json
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import quote

import httpx
import numpy as np
import pytest

from tests.support.reference.kernels import gmm_of_rows
from tests.support.service.bodies import NDJSON, NPY, ndjson, npy, sparse
from tests.support.service.client import Client, Json, Serve, assert_problem, chunked, metric

pytestmark = pytest.mark.served(cluster="one")

URL: Final = "/v1/collections/known"
DIM: Final = 24
Hit = tuple[int, str, float]


@pytest.fixture
def rows(rng: np.random.Generator) -> np.ndarray:
    """Return signed counts, many alike, some equal."""
    base = rng.poisson(1.2, (30, DIM)) * rng.choice([-1, 1], (30, DIM))
    base[:, 0] = 3
    made: np.ndarray = base[rng.integers(0, 30, 120)]
    made[::2, 1:4] += rng.integers(0, 2, (60, 3))
    return np.asarray(made, np.float64)


@pytest.fixture
def queries(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return vectors like the rows, the last like none of them."""
    made = rows[rng.integers(0, len(rows), 90)].copy()
    made[:, 5] += rng.integers(0, 2, 90)
    made[-1] = -50
    return made


def vector(row: np.ndarray, *, is_sparse: bool) -> Json:
    return sparse(row) if is_sparse else row.tolist()


def store(client: Client, url: str, rows: np.ndarray, *, is_sparse: bool = False) -> None:
    dim = None if is_sparse else DIM
    assert client.put(url, json={"dim": dim}).status_code == 201
    items = [
        {"id": f"i{n}", "vector": vector(row, is_sparse=is_sparse), "payload": {"odd": n % 2}}
        for n, row in enumerate(rows)
    ]
    assert client.put(f"{url}/items", json={"items": items}).status_code == 200


def lines_of(rows: np.ndarray, *, is_sparse: bool = False, with_ids: bool = False) -> bytes:
    items = [
        {"vector": vector(row, is_sparse=is_sparse)} | ({"id": f"q{n}"} if with_ids else {})
        for n, row in enumerate(rows)
    ]
    return ndjson(*items)


def gmm(a: np.ndarray, b: np.ndarray) -> float:
    return float(gmm_of_rows(a[None], b[None])[0])


def contained(a: np.ndarray, b: np.ndarray) -> float:
    a, b = (np.concatenate([np.maximum(x, 0), np.maximum(-x, 0)]) for x in (a, b))
    return float(np.minimum(a, b).sum() / a.sum())


def bray_curtis(a: np.ndarray, b: np.ndarray) -> float:
    return 2 * gmm(a, b) / (1 + gmm(a, b))


def truth(
    queries: np.ndarray,
    rows: np.ndarray,
    *,
    least: float = 0.0,
    limit: int | None = None,
    chosen: Iterable[int] | None = None,
    score: Callable[[np.ndarray, np.ndarray], float] = gmm,
) -> list[Hit]:
    found: list[Hit] = []
    for number, query in enumerate(queries):
        among = range(len(rows)) if chosen is None else chosen
        every = sorted((-score(query, rows[row]), f"i{row}") for row in among)
        found += [(number, name, -each) for each, name in every if -each >= least][:limit]
    return found


def hits_of(answer: httpx.Response) -> tuple[list[Hit], Json]:
    assert answer.status_code == 200, answer.text
    *lines, end = map(json.loads, answer.text.splitlines())
    return [(each["row"], each["to"], each["score"]) for each in lines], end


def assert_equal(found: list[Hit], expected: list[Hit]) -> None:
    assert [hit[:2] for hit in found] == [hit[:2] for hit in expected]
    scores = [hit[2] for hit in found]
    assert scores == pytest.approx([hit[2] for hit in expected], abs=1e-12)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_join_is_brute_force(
    client: Client, rows: np.ndarray, queries: np.ndarray, is_sparse: bool
) -> None:
    store(client, URL, rows, is_sparse=is_sparse)
    body = lines_of(queries, is_sparse=is_sparse)
    odd = quote(json.dumps({"must": [{"key": "odd", "match": {"value": 1}}]}))
    cases: list[tuple[str, Json]] = [
        ("min_score=0.8", {"least": 0.8}),
        ("min_score=0.35", {"least": 0.35}),
        ("limit=4", {"limit": 4}),
        ("limit=3&min_score=0.7", {"limit": 3, "least": 0.7}),
        (f"min_score=0.6&filter={odd}", {"least": 0.6, "chosen": range(1, 120, 2)}),
        ("min_score=0.35&score=bray_curtis", {"least": 0.35, "score": bray_curtis}),
        ("min_score=0.9&score=containment", {"least": 0.9, "score": contained}),
    ]
    for params, wanted in cases:
        answer = client.post(f"{URL}/join?recall=1&{params}", content=body, headers=NDJSON)
        found, end = hits_of(answer)
        expected = truth(queries, rows, **wanted)
        assert_equal(found, expected)
        assert (end["pairs"], end["rows"]) == (len(expected), len(queries))
        assert len(expected) > 90


def test_nothing_alike_is_an_empty_join(client: Client, rows: np.ndarray) -> None:
    store(client, URL, rows)
    far = np.full((3, DIM), -50.0)
    found, end = hits_of(client.post(f"{URL}/join?min_score=1", content=npy(far), headers=NPY))
    assert (found, end["pairs"], end["rows"]) == ([], 0, 3)
    none = np.empty((0, DIM), np.float32)
    _, end = hits_of(client.post(f"{URL}/join?min_score=1", content=npy(none), headers=NPY))
    assert end["rows"] == 0


def test_a_join_goes_on_after_the_last_whole_row(
    client: Client, rows: np.ndarray, queries: np.ndarray
) -> None:
    store(client, URL, rows)
    for body, headers in ((npy(queries), NPY), (lines_of(queries, with_ids=True), NDJSON)):
        url = f"{URL}/join?min_score=0.5&recall=1"
        whole = client.post(url, content=body, headers=headers).text.splitlines()[:-1]
        for last in (0, 40, 88):  # cut off in the row after this one
            before = [line for line in whole if json.loads(line)["row"] <= last]
            rest = client.post(f"{url}&after={last}", content=body, headers=headers)
            assert before + rest.text.splitlines()[:-1] == whole
        end = client.post(f"{url}&after=1000", content=body, headers=headers)
        assert hits_of(end)[0] == []
    named = client.post(
        f"{URL}/join?limit=1", content=lines_of(queries, with_ids=True), headers=NDJSON
    )
    first = json.loads(named.text.splitlines()[0])
    assert (first["row"], first["id"]) == (0, "q0")


@pytest.mark.parametrize("is_sparse", [False, True])
def test_another_collection_is_joined_item_by_item(
    client: Client, rows: np.ndarray, queries: np.ndarray, is_sparse: bool
) -> None:
    store(client, URL, rows, is_sparse=is_sparse)
    store(client, "/v1/collections/others", queries, is_sparse=is_sparse)
    asked: Json = {"collection": "others", "min_score": 0.6, "recall": 1}
    answer = client.post(f"{URL}/join", json=asked)
    *lines, end = map(json.loads, answer.text.splitlines())
    found = [(int(each["id"][1:]), each["to"], each["score"]) for each in lines]
    assert_equal(found, truth(queries, rows, least=0.6))
    assert end["rows"] == len(queries)
    rest = client.post(f"{URL}/join", json=asked | {"after": "i40"}).text.splitlines()[:-1]
    assert [json.loads(each) for each in rest] == [
        each for each in lines if int(each["id"][1:]) > 40
    ]
    itself = client.post(f"{URL}/join", json=asked | {"collection": "known", "limit": 1})
    assert all(json.loads(each)["score"] == 1 for each in itself.text.splitlines()[:-1])
    odd = {"must": [{"key": "odd", "match": {"value": 1}}]}
    some = client.post(f"{URL}/join", json=asked | {"filter": odd}).text.splitlines()[:-1]
    assert some
    assert all(int(json.loads(each)["to"][1:]) % 2 for each in some)


def test_names_of_an_open_space_are_joined_by_name(client: Client) -> None:
    for url, names in ((URL, ["x", "y", "z"]), ("/v1/collections/others", ["z", "y", "x"])):
        assert client.put(url, json={"dim": None}).status_code == 201
        for number, name in enumerate(names):
            item = {"id": name, "vector": {"names": [name], "values": [number + 1]}}
            client.put(f"{url}/items", json={"items": [item]})
    answer = client.post(f"{URL}/join", json={"collection": "others", "min_score": 0.1})
    lines = [json.loads(line) for line in answer.text.splitlines()[:-1]]
    assert {(each["id"], each["to"]) for each in lines} == {(name, name) for name in "xyz"}


def test_what_cannot_be_joined_is_refused_before_the_answer_begins(
    client: Client, rows: np.ndarray
) -> None:
    store(client, URL, rows)
    assert client.put("/v1/collections/small", json={"dim": 3}).status_code == 201
    body, cases = npy(rows[:2]), ["", "?min_score=0", "?min_score=2", "?limit=0", "?recall=1"]
    for query in [*cases, "?min_score=0.5&score=ruzicka", "?min_score=0.5&recall=0", "?lim=3"]:
        answer = client.post(f"{URL}/join{query}", content=body, headers=NPY)
        assert answer.status_code == 422, query
    for text in ("{", "[1]", '{"most": 1}', "NaN"):
        answer = client.post(f"{URL}/join?limit=1&filter={quote(text)}", content=body, headers=NPY)
        assert_problem(answer, 422, "invalid_filter", "filter")
    answer = client.post(f"{URL}/join?limit=1", content=b"junk", headers=NPY)
    assert_problem(answer, 400, "malformed_body", ".npy")
    wrong = npy(rows[:2, :5])
    answer = client.post(f"{URL}/join?limit=1", content=wrong, headers=NPY)
    assert_problem(answer, 422, "invalid_vector")
    for name, status in (("small", 422), ("missing", 404)):
        answer = client.post(f"{URL}/join", json={"collection": name, "limit": 1})
        assert answer.status_code == status
    for name, params in (("open", {"dim": None}), ("texts", {"text": {}})):
        assert client.put(f"/v1/collections/{name}", json=params).status_code == 201
    for name, other in (("open", "texts"), ("texts", "open"), ("small", "open")):
        answer = client.post(f"/v1/collections/{name}/join", json={"collection": other, "limit": 1})
        problem = assert_problem(answer, 422, "invalid_parameter", "collection")
        assert "None" not in problem["detail"]
        assert "TextParams" not in problem["detail"]
    gone = client.post(f"{URL}/join", json={"collection": "known", "limit": 1, "after": "no"})
    assert_problem(gone, 404, "item_not_found")
    both = client.post(f"{URL}/join?limit=1", json={"collection": "known", "limit": 1})
    assert both.status_code == 422


@pytest.fixture
def streaming(serve: Serve, rows: np.ndarray) -> Client:
    """Return a client of a service that reads four rows at a time."""
    client = serve(load_chunk_rows=4)
    store(client, URL, rows)
    return client


def test_a_stream_of_any_form_is_joined_a_chunk_at_a_time(
    streaming: Client, rows: np.ndarray, queries: np.ndarray
) -> None:
    url, expected = f"{URL}/join?min_score=0.6&recall=1", truth(queries, rows, least=0.6)
    body = lines_of(queries)
    for content, headers in (
        (chunked(npy(queries)), NPY),
        (chunked(body), NDJSON),
        (gzip.compress(body), NDJSON | {"Content-Encoding": "gzip"}),
    ):
        found, end = hits_of(streaming.post(url, content=content, headers=headers))
        assert_equal(found, expected)
        assert (end["pairs"], end["rows"]) == (len(expected), len(queries))
        assert "error" not in end


def test_lines_come_while_the_body_still_flows(streaming: Client, rows: np.ndarray) -> None:
    """The sender sends the second half only after it has heard the first line."""
    left = [lines_of(rows[:5]), lines_of(rows[5:8])]
    heard, lines = asyncio.Event(), list[Json]()

    async def receive() -> Json:
        if len(left) < 2:
            await asyncio.wait_for(heard.wait(), 60)
        if not left:
            return await asyncio.Event().wait()
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: Json) -> None:
        if found := message.get("body"):
            lines.extend(map(json.loads, found.splitlines()))
            heard.set()

    streaming.speak(
        "POST", f"{URL}/join?limit=1", receive, send, content_type=NDJSON["Content-Type"]
    )
    assert [line["row"] for line in lines[:-1]] == [*range(8)]
    assert lines[-1]["rows"] == 8


def test_a_client_that_takes_no_line_before_all_is_sent_gets_all(
    streaming: Client, rows: np.ndarray
) -> None:
    """Neither the body nor the answer fits into the memory that is there for them."""
    payload = {"text": "x" * 80_000}
    items = ({"vector": row.tolist(), "payload": payload} for row in np.concatenate([rows] * 3))
    left = [json.dumps(item).encode() + b"\n" for item in items]
    is_sent, answer = asyncio.Event(), list[bytes]()

    async def receive() -> Json:
        if left:
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}
        is_sent.set()
        return await asyncio.Event().wait()

    async def send(message: Json) -> None:
        if message["type"] == "http.response.body":
            await asyncio.wait_for(is_sent.wait(), 60)
            answer.append(message["body"])

    streaming.speak(
        "POST", f"{URL}/join?limit=120", receive, send, content_type=NDJSON["Content-Type"]
    )
    *lines, end = map(json.loads, b"".join(answer).splitlines())
    assert end["rows"] == 360
    assert len(lines) == end["pairs"] == 360 * 120


def test_a_bad_row_ends_a_join_with_its_number_after_the_lines_before(
    streaming: Client, rows: np.ndarray
) -> None:
    good, url = lines_of(rows[:10]), f"{URL}/join?limit=1"
    zero = b'{"vector": [' + b", ".join([b"0"] * DIM) + b"]}\n"
    for bad, code in ((zero, "invalid_vector"), (b"{\n", "malformed_body")):
        body = good + bad + lines_of(rows[:5])
        found, end = hits_of(streaming.post(url, content=body, headers=NDJSON))
        assert [row for row, *_ in found] == [*range(8)]  # of the chunks before
        assert (end["pairs"], end["rows"]) == (8, 8)
        assert end["error"]["code"] == code
        assert "row 10" in end["error"]["detail"].replace("rows 10", "row 10")
        mended = good + lines_of(rows[:6])
        rest, end = hits_of(streaming.post(f"{url}&after=7", content=mended, headers=NDJSON))
        assert [row for row, *_ in rest] == [*range(8, 16)]
        assert "error" not in end
    cut = npy(rows[:10])[:-50]
    found, end = hits_of(streaming.post(url, content=cut, headers=NPY))
    assert (len(found), end["error"]["code"]) == (8, "malformed_body")


def test_a_join_ends_once_its_client_has_gone(streaming: Client, rows: np.ndarray) -> None:
    body, left = lines_of(rows[:8]), asyncio.Event()

    async def receive() -> Json:
        if not left.is_set():
            left.set()
            return {"type": "http.request", "body": body, "more_body": True}
        return {"type": "http.disconnect"}

    async def send(message: Json) -> None:
        """Nobody hears it."""

    streaming.speak(
        "POST", f"{URL}/join?limit=1", receive, send, content_type=NDJSON["Content-Type"]
    )
    assert metric(streaming, 'gcws_queue{pool="loads"}') == 0
    assert metric(streaming, 'gcws_queue{pool="batches"}') == 0
