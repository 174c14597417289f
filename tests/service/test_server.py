"""What stands between a socket and the application: dawdling clients, the start, and logs."""

import asyncio
import json
import logging
import re
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.types import Message

from gcws_search import index as ix
from gcws_search.service.server import (
    HttpServer,
    JsonLines,
    StartingApplication,
    configure_logs,
    server_options,
)
from gcws_search.service.settings import Settings
from tests.support.service.client import Json, Serve, assert_problem, fill
from tests.support.service.live_server import URL, listening, serving
from tests.support.waiting import wait_until

HEAD: Final = b"PUT /v1/collections/plants/items HTTP/1.1\r\nHost: localhost\r\n"


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def answer(connection: socket.socket) -> bytes:
    """Return one answer, which says how long it is."""
    found, length = b"", 0
    while b"\r\n\r\n" not in found or len(found) < length:
        piece = connection.recv(65_536)
        assert piece
        found += piece
        head, end, _ = found.partition(b"\r\n\r\n")
        length = len(head + end) + int(*re.findall(rb"content-length: (\d+)", head))
    return found


def ended(connection: socket.socket) -> bytes:
    """Return what still comes until the server ends the connection."""
    found = b""
    try:
        while piece := connection.recv(65_536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def serves(port: int) -> bool:
    return httpx.get(f"http://127.0.0.1:{port}{URL}", timeout=60).status_code == 200


def test_a_head_that_does_not_end_ends_the_connection_the_first_or_a_second(tmp_path: Path) -> None:
    begun = b"", b"GET / HT", HEAD, HEAD + b"X: " + b"a" * 100
    with listening(tmp_path, header_seconds=1) as port, ExitStack() as stack:
        kept, *others = (stack.enter_context(connected(port)) for _ in range(1 + len(begun)))
        kept.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert kept.recv(100).startswith(b"HTTP/1.1 200")
        kept.sendall(b"GET ")  # ends the wait of a connection that is kept alive
        for connection, part in zip(others, begun, strict=True):
            connection.sendall(part)
        assert serves(port)
        assert [*map(ended, others)] == [b""] * len(begun)
        ended(kept)


def problem_of(answer: bytes) -> tuple[int, str, str]:
    """Return the status, the code and the detail of a problem, the last of these answers."""
    head, _, body = answer.rpartition(b"\r\n\r\n")
    head = head[head.rindex(b"HTTP/1.1 ") :]
    assert b"content-type: application/problem+json" in head
    assert b"x-request-id" in head
    found = json.loads(body)
    assert head.startswith(b"HTTP/1.1 %d " % found["status"])
    return found["status"], found["code"], found["detail"]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((HEAD, b"X: aaaa\r\n", b"\r\n"), "headers_too_large"),
        ((HEAD + b"X: ", b"a" * 10, b""), "headers_too_large"),
        ((b"GET /v1?", b"ids=a&", b" HTTP/1.1\r\n\r\n"), "uri_too_long"),
        ((b"GET /", b"a" * 10, b""), "uri_too_long"),
    ],
)
@pytest.mark.parametrize(("most", "times"), [(2000, 500), (2000, 5_000_000), (100_000, 25_000)])
def test_a_head_that_is_too_long_gets_a_problem(
    tmp_path: Path, parts: tuple[bytes, bytes, bytes], expected: str, most: int, times: int
) -> None:
    """Also one that comes whole, and one that is still sent when its answer has come."""
    with listening(tmp_path, max_header_bytes=most) as port, connected(port) as connection:
        start, piece, end = parts
        connection.sendall(start + piece * times + end)
        status, code, detail = problem_of(ended(connection))
        assert (status, code) == (
            {"headers_too_large": 431, "uri_too_long": 414}[expected],
            expected,
        )
        assert str(most if status == 431 else min(most, 65_535)) in detail
        assert serves(port)


def test_a_long_body_is_no_long_head(tmp_path: Path) -> None:
    item = {"id": "a", "vector": [1, 2, 3, 4], "payload": {"text": "x" * 5000}}
    with (
        listening(tmp_path, max_header_bytes=2000) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        for _ in range(3):
            assert client.put(f"{URL}/items", json={"items": [item]}).status_code == 200


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"garbage\r\n\r\n", "method"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "method"),  # TLS
        (b"GET / HTTP/1.1\r\nno header\r\n\r\n", "header"),
        (b"GET /\xff HTTP/1.1\r\n\r\n", "url"),
        (HEAD + b"Content-Length: -1\r\n\r\n", "Content-Length"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nno size\r\n", "chunk"),
    ],
)
def test_what_is_no_request_gets_a_problem_behind_earlier_answers(
    tmp_path: Path, sent: bytes, reason: str
) -> None:
    item = json.dumps({"items": [{"id": "a", "vector": [1, 2, 3, 4]}]}).encode()
    head = HEAD + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with listening(tmp_path) as port:
        for before in (b"", head % len(item) + item):
            with connected(port) as connection:
                connection.sendall(before + sent)
                found = ended(connection)
                status, code, detail = problem_of(found)
                assert (status, code) == (400, "malformed_request")
                assert reason in detail
                assert found.startswith(b"HTTP/1.1 200" if before else b"HTTP/1.1 400")
        assert serves(port)


def test_headers_behind_a_body_are_dropped_and_bounded(tmp_path: Path) -> None:
    item = json.dumps({"items": [{"id": "a", "vector": [1, 2, 3, 4]}]}).encode()
    head = HEAD + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    size = b"%x" % len(item)
    whole = head + size + b"\r\n" + item + b"\r\n0\r\n"
    with listening(tmp_path) as port, connected(port) as connection:
        connection.sendall(whole + b"X-Request-Id: behind\r\n\r\n")
        found = answer(connection)
        assert found.startswith(b"HTTP/1.1 200")
        assert b"behind" not in found
        more = b"a" * 10_000_000
        for endless in (
            whole + b"X: " + more,
            whole + b"X: a\r\n" * 10**6,
            head + size + b";" + more,
        ):
            with connected(port) as other:
                other.sendall(endless)
                status, code, _ = problem_of(ended(other))
                assert (status, code) == (431, "headers_too_large")


@pytest.mark.parametrize("size", [10, 200, 10**6])
def test_an_offer_to_upgrade_is_ignored(tmp_path: Path, size: int) -> None:
    """As curl and the client of Java make it; ``size`` is that of the pieces sent."""
    item = json.dumps({"items": [{"id": "a", "vector": [1, 2, 3, 4]}]}).encode()
    offer = HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n"
    offer += b"Content-Type: application/json\r\n"
    sized = offer + b"Content-Length: %d\r\n\r\n" % len(item) + item
    chunked = offer + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(item), item)
    get = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    with listening(tmp_path) as port, connected(port) as connection:
        for sent, word in ((sized, b"inserted"), (chunked, b"updated"), (get, b""), (sized, b"")):
            for first in range(0, len(sent), size):
                connection.sendall(sent[first : first + size])
            found = answer(connection)
            assert found.startswith(b"HTTP/1.1 200" if sent != get else b"HTTP/1.1 ")
            assert word in found
        connection.sendall((sized + get.replace(b"GET /", b"GET " + URL.encode())) * 2)
        connection.shutdown(socket.SHUT_WR)
        assert ended(connection).count(b"HTTP/1.1 200") == 4


def test_a_client_that_stops_sending_is_answered(tmp_path: Path) -> None:
    item = json.dumps({"items": [{"id": "a", "vector": [1, 2, 3, 4]}]}).encode()
    line = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(item)
    put, get = HEAD + line + item, b"GET " + URL.encode() + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with listening(tmp_path) as port:
        for sent, statuses in (
            (put, [200]),
            (get, [200]),
            (put + get + put, [200] * 3),
            (put + HEAD[:9], [200]),
            (put[:-1], []),
        ):
            with connected(port) as connection:
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                found = ended(connection)
                assert [*map(int, re.findall(rb"HTTP/1.1 (\d+)", found))] == statuses


def test_a_client_that_stopped_sending_is_given_up_in_the_end(tmp_path: Path) -> None:
    told: list[str] = []

    async def app(scope: Json, receive: Json, send: Json) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
        while scope["type"] == "http" and told[-1:] != ["http.disconnect"]:
            told.append((await receive())["type"])

    http = server_options(Settings(data_dir=tmp_path, shutdown_seconds=0))["http"]
    bound = socket.create_server(("127.0.0.1", 0))
    with serving(app, bound, http=http), connected(bound.getsockname()[1]) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        assert ended(connection) == b""
    assert told == ["http.request", "http.disconnect"]


def test_a_body_that_stops_is_408_and_the_connection_ends(tmp_path: Path) -> None:
    line = b'{"vector": [1, 2, 3, 4]}\n'
    routes = (
        (b"PUT", b"/items", b"json"),
        *((b"POST", path, b"x-ndjson") for path in (b"/load", b"/join?limit=1")),
    )
    with listening(tmp_path, body_seconds=1) as port, ExitStack() as stack:
        connections = [stack.enter_context(connected(port)) for _ in routes]
        for connection, (method, path, kind) in zip(connections, routes, strict=True):
            head = HEAD.replace(b"PUT", method).replace(b"/items", path)
            head += b"Content-Type: application/" + kind + b"\r\nContent-Length: 100\r\n\r\n"
            connection.sendall(head + line)
        assert serves(port)
        for answer in map(ended, connections):
            assert answer.startswith(b"HTTP/1.1 408")
            assert b"request_timeout" in answer


def test_a_json_answer_is_one_packet_and_a_connection_ends_behind_its_last(tmp_path: Path) -> None:
    asked = f"GET {URL} HTTP/1.1\r\nHost: localhost\r\n".encode()
    with listening(tmp_path) as port, connected(port) as connection:
        connection.sendall(asked + b"\r\n")
        head, _, body = connection.recv(65_536).partition(b"\r\n\r\n")
        assert f"content-length: {len(body)}".encode() in head.split(b"\r\n")
        assert json.loads(body)["items"] == 0
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"\r\nx-request-id: " in answer(connection)  # of a route that the framework calls
        connection.sendall(asked.replace(b"GET", b"HEAD") + b"\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        connection.sendall(asked + b"Connection: close\r\n\r\n")
        assert ended(connection).endswith(body)


def test_an_answer_that_is_not_taken_ends_the_connection(tmp_path: Path) -> None:
    seen: list[uvicorn.Server] = []
    with listening(tmp_path, seen=seen, send_seconds=1) as port:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            items = [
                {"id": str(n), "vector": [1, 2, 3, 4], "payload": {"text": "x" * 500_000}}
                for n in range(40)
            ]
            assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(60)
            connection.connect(("127.0.0.1", port))
            connection.sendall(b"GET /v1/collections/plants/items HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            assert serves(port)
            wait_until(lambda: not seen[0].server_state.connections)
            assert len(ended(connection)) < 20_000_000
        assert serves(port)


def test_too_many_connections_are_closed_and_those_there_are_go_on(tmp_path: Path) -> None:
    with listening(tmp_path, max_connections=2) as port, connected(port) as first:
        first.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert first.recv(100).startswith(b"HTTP/1.1 200")
        with connected(port) as second, connected(port) as third:
            second.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert second.recv(100).startswith(b"HTTP/1.1 200")
            assert ended(third) == b""


def test_queries_sent_at_once_are_answered_in_their_order(tmp_path: Path) -> None:
    item = {"id": "a", "vector": [1, 2, 3, 4]}
    with listening(tmp_path) as port, connected(port) as connection:
        httpx.put(f"http://127.0.0.1:{port}{URL}/items", json={"items": [item]}, timeout=60)
        whole = b""
        for limit in range(1, 9):
            body = b'{"vector": [1, 2, 3, 4], "limit": %d, "offset": %d}' % (limit, limit % 2)
            whole += b"POST %s/query HTTP/1.1\r\nHost: localhost\r\n" % URL.encode()
            whole += b"X-Request-Id: q%d\r\nContent-Length: %d\r\n\r\n" % (limit, len(body)) + body
        connection.sendall(whole + b"GET / HTTP/1.0\r\n\r\n")
        answers = ended(connection).split(b"HTTP/1.1 ")[1:-1]
    assert [answer.startswith(b"200 OK") for answer in answers] == [True] * 8
    assert [answer.count(b"x-request-id: q%d\r\n" % n) for n, answer in enumerate(answers, 1)] == [
        1
    ] * 8
    assert [answer.count(b'"id"') for answer in answers] == [0, 1] * 4


def test_a_client_that_waits_is_told_to_go_on_and_gets_answers_without_a_body(
    tmp_path: Path,
) -> None:
    body = b'{"items": [{"id": "a", "vector": [1, 2, 3, 4]}]}'
    more = b"Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with listening(tmp_path) as port, connected(port) as connection:
        connection.sendall(HEAD + more % len(body))
        assert connection.recv(1000).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert answer(connection).startswith(b"HTTP/1.1 200")
        head = f"DELETE {URL} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        assert ended(connection).startswith(b"HTTP/1.1 204")


# What answers while the application is imported


class _Scene:
    """A server's life around a `StartingApplication`, whose application opens when told to."""

    def __init__(self, why_not: Exception | None = None) -> None:
        self.may_open, self.lives = threading.Event(), False
        self.why_not = why_not
        self.starting = StartingApplication(self._opened)
        self.server = uvicorn.Server(uvicorn.Config(self.starting))
        self.starting.stop_on_failure(self.server)

    def _opened(self) -> FastAPI:
        assert self.may_open.wait(60)
        if self.why_not is not None:
            raise self.why_not

        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            self.lives = True
            yield
            self.lives = False

        application = FastAPI(lifespan=lifespan)
        application.get("/livez")(lambda: "opened")
        application.get("/other")(lambda: "other")
        return application

    async def run(self, asks: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
        """Ask while the server lives."""
        stops, started = asyncio.Event(), asyncio.Event()
        messages = iter([None, stops])

        async def receive() -> Message:
            waited = next(messages)
            if waited is not None:
                await waited.wait()
            return {"type": "lifespan"}

        async def send(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                started.set()

        living = asyncio.create_task(self.starting({"type": "lifespan"}, receive, send))
        await started.wait()
        transport = httpx.ASGITransport(self.starting)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            await asks(client)
        stops.set()
        await living


def test_while_the_application_opens_it_is_alive_and_other_requests_wait() -> None:
    scene = _Scene()

    async def ask(client: httpx.AsyncClient) -> None:
        waiting = asyncio.create_task(client.get("/other"))
        for path in ("/livez", "/healthz"):
            answer = await client.get(path)
            assert answer.status_code == 200
            assert answer.json() == {"status": "ok", "phase": "starting"}
        assert not waiting.done()
        scene.may_open.set()
        assert (await waiting).json() == "other"
        assert scene.lives
        assert (await client.get("/livez")).json() == "opened"

    asyncio.run(scene.run(ask))
    assert not scene.lives
    assert scene.starting.error is None
    assert not scene.server.should_exit


def test_where_no_application_can_be_opened_the_server_ends() -> None:
    scene = _Scene(OSError("the folder is locked"))

    async def ask(client: httpx.AsyncClient) -> None:
        waiting = asyncio.create_task(client.get("/other"))
        scene.may_open.set()
        assert_problem(await waiting, 503, "not_ready")

    asyncio.run(scene.run(ask))
    assert scene.server.should_exit
    assert str(scene.starting.error) == "the folder is locked"


# What is logged: whose request it was, and nothing of what was sent


def test_a_server_alone_tells_of_its_start_and_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also which port it got, where it was any free one."""
    config = uvicorn.Config(FastAPI(), port=0, **server_options(Settings(data_dir=tmp_path)))
    server, ports = HttpServer(config), list[int]()

    async def run() -> None:
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        ports.append(server.servers[0].sockets[0].getsockname()[1])
        await server.shutdown()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert f"port {ports[0]}" in caplog.text
    assert {record.name for record in caplog.records} - {"asyncio"} == {HttpServer.__module__}


SECRET = "key-of-Kéys"
NUMBERS = [4711.125, 815.5, -77177.25, 1.0]


class Lines(logging.Handler):
    """Keeps every line as JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.lines: list[dict[str, Json]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line of the service; the tests' client logs its own."""
        if record.name.startswith(("gcws_search", "uvicorn")):
            self.lines.append(json.loads(self.format(record)))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[dict[str, Json]]]:
    caplog.set_level(logging.DEBUG)
    handler = Lines()
    logging.getLogger().addHandler(handler)
    yield handler.lines
    logging.getLogger().removeHandler(handler)


def test_a_line_is_json_and_names_its_request_also_from_threads(
    serve: Serve, lines: list[dict[str, Json]], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(access_log=True)
    fill(client)

    def get(_self: ix.StoredCollection, _item: str) -> None:
        logging.getLogger("gcws_search.service.test").warning("from a thread: %s", "ä\n")

    monkeypatch.setattr(ix.StoredCollection, "get", get)
    client.get(f"{URL}/items/a?x=y", headers={"X-Request-Id": "r-0"})
    client.get(f"{URL}/items/a", headers={"X-Request-Id": "r-1"})
    ours = [line for line in lines if line.get("request_id") == "r-1"]
    assert ours[0]["message"] == "from a thread: ä\n"
    assert ours[0]["level"] == "warning"
    access = [line["message"] for line in lines if line["logger"] == "gcws_search.service.access"]
    assert any(text.startswith(f"GET '{URL}/items/a' 500 in") for text in access)
    assert not any("x=y" in text for text in access)


def test_neither_log_nor_answer_holds_vectors_keys_or_tracebacks(
    serve: Serve, lines: list[dict[str, Json]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(serve())
    client = serve(api_key=SECRET, access_log=True)
    headers = {"X-API-Key": SECRET.encode()}
    monkeypatch.setattr(ix.Put, "plan", broken)
    texts = []
    for path, body in [
        ("items", {"items": [{"id": "z", "vector": NUMBERS}]}),
        ("items", {"items": [{"id": "z", "vector": [*NUMBERS, 1e39]}]}),
        ("items", {"items": [{"id": "z", "vektor": NUMBERS}]}),
    ]:
        texts.append(client.put(f"{URL}/{path}", json=body, headers=headers).text)
    load = client.post(
        f"{URL}/load",
        content=json.dumps({"id": "z", "vector": NUMBERS}).encode(),
        headers=headers | {"Content-Type": "application/x-ndjson"},
    )
    texts += [load.text, client.get(f"{URL}?key={SECRET}").text]
    assert_problem(load, 500, "internal_error", "its log says what")
    told = json.dumps(lines, ensure_ascii=False)
    assert "broken on purpose" in told
    for text in (*texts, told):
        assert SECRET not in text
        assert not any(str(number) in text for number in NUMBERS[:3])
    assert not any("Traceback" in text for text in texts)


def broken(*_: object) -> None:
    raise ZeroDivisionError("broken on purpose")


@pytest.mark.usefixtures("root_log")
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_form_of_lines_is_a_setting(form: Json, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("warning", form)
    logging.getLogger("a.b").warning("%d of %d", 1, 2)
    [line] = capsys.readouterr().err.splitlines()
    if form == "json":
        assert json.loads(line)["message"] == "1 of 2"
    else:
        assert line.endswith("WARNING a.b: 1 of 2")


def test_head_is_answered_as_get_without_the_body(tmp_path: Path) -> None:
    with (
        listening(tmp_path) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        items = [{"id": "a/b", "vector": [1, 2, 3, 4]}]
        assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
        snapshot = client.post(f"{URL}/snapshots").json()["name"]
        pages = ["/", "/docs", "/openapi.json", "/livez", "/v1", "/v1/collections", URL, f"{URL}/"]
        items_of = [f"{URL}/items", f"{URL}/items/a/b", f"{URL}/items/none", f"{URL}/items?x=1"]
        for path in (*pages, *items_of, f"{URL}/snapshots/{snapshot}", f"{URL}/query", "/none"):
            got, told = client.get(path), client.head(path)
            assert told.content == b""
            assert told.status_code == got.status_code
            others = {"date", "x-request-id"}
            assert {*told.headers.items()} - {*got.headers.items()} <= {
                (name, told.headers[name]) for name in others
            }, path
