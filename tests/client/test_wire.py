"""Requests over plain sockets: what of HTTP/1.1 servers and proxies may do."""

import asyncio
import gc
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial

import pytest

import gcws_search
from gcws_search.client.remote import run
from gcws_search.client.wire import Answer, AsyncWire, Unreachable, Wire, is_plain
from tests.support.service.client import Json

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Some: a\r\n\r\nok"
Ask = Callable[..., Answer]
Asking = Callable[..., AbstractContextManager[Ask]]
Play = Callable[[socket.socket], object]


def head_of(connection: socket.socket) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got and (data := connection.recv(1)):
        got += data
    return got


@contextmanager
def played(*connections: Play) -> Iterator[str]:
    """Yield the address of a server whose connections go so, one after another."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for play in connections:
                connection, _ = server.accept()
                with connection:
                    play(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@contextmanager
def blocking(url: str, seconds: float | None) -> Iterator[Ask]:
    with closing(Wire(url, {"X-Key": "k"}, seconds)) as wire:
        yield lambda *words, **more: run(wire.request(*words, **more))


@contextmanager
def awaited(url: str, seconds: float | None) -> Iterator[Ask]:
    wire = AsyncWire(url, {"X-Key": "k"}, seconds)

    async def ask(*words: Json, **more: Json) -> Answer:
        await asyncio.sleep(0)  # the loop hears what came meanwhile, as one that never stands does
        return await wire.request(*words, **more)

    with asyncio.Runner() as runner:
        yield lambda *words, **more: runner.run(ask(*words, **more))
        runner.run(wire.aclose())


@pytest.fixture(params=[blocking, awaited])
def asking(request: pytest.FixtureRequest) -> Asking:
    return partial(request.param, seconds=30)


def answering(*answers: bytes, heads: list[bytes] | None = None) -> Play:
    def play(connection: socket.socket) -> None:
        for answer in answers:
            head = head_of(connection)
            if heads is not None:
                heads.append(head)
            connection.sendall(answer)

    return play


def test_requests_go_over_one_connection(asking: Asking) -> None:
    heads: list[bytes] = []
    with played(answering(OK, OK, OK, heads=heads)) as url, asking(f"{url}/below") as ask:
        for _ in range(2):
            assert ask("GET", "/v1") == Answer(200, {"content-length": "2", "x-some": "a"}, b"ok")
        assert ask("POST", "/v1", params={"q": "a b&c"}, headers={"X-One": "1"}).content == b"ok"
    first, _, last = (head.decode().split("\r\n") for head in heads)
    assert first[0] == "GET /below/v1 HTTP/1.1"
    assert {f"Host: {url[7:]}", "X-Key: k"} <= {*first}
    assert last[0] == "POST /below/v1?q=a%20b%26c HTTP/1.1"
    assert {"Content-Length: 0", "X-One: 1", "X-Key: k"} <= {*last}


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n",
            b"abcde",
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
def test_answers_come_in_pieces(asking: Asking, answer: bytes, content: bytes) -> None:
    def play(connection: socket.socket) -> None:
        for _ in range(2):
            head_of(connection)
            for byte in answer:
                connection.sendall(bytes([byte]))

    with played(play) as url, asking(url) as ask:
        assert [ask("GET", "/").content for _ in range(2)] == [content, content]


def test_a_connection_that_was_closed_is_not_used_again(asking: Asking) -> None:
    closed = threading.Event()

    def play(connection: socket.socket) -> None:
        answering(OK)(connection)
        connection.close()
        closed.set()

    with played(play, answering(OK)) as url, asking(url) as ask:
        ask("GET", "/")
        assert closed.wait(30)
        assert ask("GET", "/").content == b"ok"


def test_a_connection_that_is_to_be_closed_is_not_used_again(asking: Asking) -> None:
    """Its server may close it at any time."""

    def play(connection: socket.socket) -> None:
        answering(OK.replace(b"X-Some: a", b"Connection: close"))(connection)
        assert not connection.recv(1)

    with played(play, answering(OK)) as url, asking(url) as ask:
        assert [ask("GET", "/").content for _ in range(2)] == [b"ok", b"ok"]


def test_bodies_are_sent_whole(asking: Asking) -> None:
    got: list[bytes] = []

    def play(connection: socket.socket) -> None:
        for length in (0, 200_000, 5):
            head = head_of(connection)
            body = b""
            if length:
                assert b"\r\nContent-Length: %d\r\n" % length in head
                while len(body) < length:
                    body += connection.recv(1 << 16)
            else:
                assert b"\r\nTransfer-Encoding: chunked\r\n" in head
                while not body.endswith(b"0\r\n\r\n"):
                    body += connection.recv(1)
            got.append(body)
            connection.sendall(OK)

    with played(play) as url, asking(url) as ask:
        ask("PUT", "/", content=iter([b"abc", b"", memoryview(b"defg")]))
        ask("PUT", "/", content=bytes(200_000))
        ask("PUT", "/", content=iter([b"ab", b"cde"]), headers={"Content-Length": "5"})
    assert got == [b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n", bytes(200_000), b"abcde"]


TOO_LARGE = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"


def test_an_answer_that_comes_before_the_body_has_ended_is_read(asking: Asking) -> None:
    def play(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(TOO_LARGE)
        while connection.recv(1 << 16):
            pass

    with played(play) as url, asking(url) as ask:
        assert ask("PUT", "/", content=(bytes(1 << 16) for _ in range(500))).status_code == 413


def test_a_server_that_refuses_a_body_may_close_before_it_has_read_it() -> None:
    def play(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(TOO_LARGE)
        connection.shutdown(socket.SHUT_RDWR)

    with played(play) as url, blocking(url, 30) as ask:
        assert ask("PUT", "/", content=(bytes(1 << 16) for _ in range(500))).status_code == 413


@pytest.mark.parametrize("answer", [b"", OK[:20], OK[:-1], b"SMTP 220\r\n\r\n"])
def test_what_is_no_answer_is_told(asking: Asking, answer: bytes) -> None:
    with played(answering(answer)) as url, asking(url) as ask, pytest.raises(Unreachable) as odd:
        ask("GET", "/")
    assert odd.value.is_sent


def test_a_silent_server_is_waited_for_as_long_as_was_said(asking: Asking) -> None:
    done = threading.Event()
    with played(lambda _: done.wait(30)) as url, asking(url, seconds=0.05) as ask:
        with pytest.raises(Unreachable):
            ask("GET", "/")
        done.set()


def test_errors_of_a_body_are_its_own(asking: Asking) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"abc"
        raise FileNotFoundError("a.csv")

    def play(connection: socket.socket) -> None:
        while connection.recv(1 << 16):
            pass

    with played(play) as url, asking(url) as ask, pytest.raises(FileNotFoundError):
        ask("PUT", "/", content=pieces())


def test_nothing_is_sent_where_nobody_listens(asking: Asking) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for host in (f"127.0.0.1:{port}", "a..b"):  # which is no name
        with asking(f"http://{host}") as ask, pytest.raises(Unreachable) as refused:
            ask("GET", "/")
        assert not refused.value.is_sent


@pytest.mark.parametrize("key", ["a\r\nX-Other: b", "a\n", "\r"])
def test_a_header_of_two_lines_is_not_sent(asking: Asking, key: str) -> None:
    with asking("http://127.0.0.1:1") as ask, pytest.raises(Unreachable, match="line break"):
        ask("GET", "/", headers={"X-API-Key": key})


@pytest.mark.parametrize(
    ("url", "proxies", "is_so"),
    [
        ("http://localhost:8000", {}, True),
        ("http://[::1]:8000/below", {}, True),
        ("https://localhost", {}, False),
        ("http://user:word@localhost", {}, False),
        ("http://bücher.example", {}, False),
        ("http://localhost:99999", {}, False),
        ("http://there", {"http_proxy": "http://proxy:1"}, False),
        ("http://there", {"all_proxy": "socks5://proxy:1"}, False),
        ("http://there", {"https_proxy": "http://proxy:1"}, True),
        ("http://there", {"http_proxy": "http://proxy:1", "no_proxy": "there"}, True),
    ],
)
def test_what_needs_more_than_sockets_goes_through_httpx(
    url: str, proxies: dict[str, str], is_so: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        for spelt in (name, name.upper()):
            monkeypatch.delenv(spelt, raising=False)
    for name, value in proxies.items():
        monkeypatch.setenv(name, value)
    assert is_plain(url) == is_so


def test_a_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []
    health = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n" + b'{"status":"ok"}'
    with played(answering(health, heads=heads)) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        with gcws_search.connect("http://there:8000") as server:
            assert server.health() == {"status": "ok"}
    assert heads[0].startswith(b"GET http://there:8000/healthz HTTP/1.1\r\n")


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_one_awaited_client_serves_one_event_loop_after_another(url: str) -> None:
    server = gcws_search.connect_async(url)

    async def ask() -> str:
        return str((await server.health())["status"])

    async def ask_and_close() -> str:
        async with server:
            return await ask()

    assert [asyncio.run(asyncio.wait_for(ask(), 60)) for _ in range(3)] == ["ok"] * 3
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(asyncio.run, ask_and_close()) for _ in range(4)]
        assert [each.result(60) for each in found] == ["ok"] * 4
    assert asyncio.run(asyncio.wait_for(ask_and_close(), 60)) == "ok"
    gc.collect()
