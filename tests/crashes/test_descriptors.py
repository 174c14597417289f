"""No free file descriptor: what needs one is refused with 503, and works when there are some."""

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.crashes.servers import Asking, Running, serving
from tests.support.service.ports import HOST

URL = "/v1/collections/things"
BELOW_ALL = 3
ROOM = 16
ITEMS = {"items": [{"id": "a", "vector": [1, 2, 3, 4]}]}
QUERY = {"vector": [1, 2, 3, 4], "limit": 1}


@contextmanager
def limited(server: Running, count: int) -> Iterator[None]:
    """Let a server open no descriptor from this number on, until the block ends."""
    before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, before)


def asked(
    asking: Asking, method: str, path: str, document: object = None
) -> tuple[int, str | None, str | None]:
    """Return an answer's status, its Retry-After and its code."""
    answer = asking.http.request(method, path, json=document)
    is_json = "json" in answer.headers.get("Content-Type", "")
    code = answer.json().get("code") if is_json else None
    return answer.status_code, answer.headers.get("Retry-After"), code


def test_without_a_descriptor_each_route_answers_and_the_server_recovers(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server, Asking(server.port) as asking:
        asking.success("PUT", URL, {"dim": 4})
        asking.success("PUT", f"{URL}/items", ITEMS)
        name = asking.success("POST", f"{URL}/snapshots")["name"]
        snapshot = f"{URL}/snapshots/{name}"
        needing = [
            ("GET", f"{URL}/snapshots"), ("POST", f"{URL}/snapshots"), ("GET", snapshot),
            ("DELETE", snapshot), ("PUT", f"{URL}/snapshots/other"),
            ("POST", f"{snapshot}/restore?replace=true"),
        ]  # fmt: skip
        with Asking(server.port) as connection:
            assert asked(connection, "GET", "/livez")[0] == 200
            with limited(server, BELOW_ALL):
                for method, path in needing:
                    refused = asked(connection, method, path, {} if method == "PUT" else None)
                    assert refused in (OUT, (415, None, "unsupported_media_type")), (method, path)
                assert asked(connection, "PUT", "/v1/collections/new", {"dim": 4}) == OUT
                for method, path, body in (
                    ("GET", "/v1/collections", None),
                    ("GET", URL, None),
                    ("GET", "/livez", None),
                    ("GET", f"{URL}/items/a", None),
                    ("POST", f"{URL}/query", QUERY),
                    ("PUT", f"{URL}/items", ITEMS),
                    ("GET", "/metrics", None),
                ):
                    status, retry, code = asked(connection, method, path, body)
                    assert status == 200 or (status, retry, code) == OUT, (method, path)
                assert asked(connection, "DELETE", URL) == OUT
                assert asked(connection, "POST", f"{URL}/query", QUERY) == OUT
            while asked(connection, "POST", f"{URL}/query", QUERY)[0] == 503:
                pass  # it is being read again
            assert asked(connection, "POST", f"{URL}/query", QUERY)[0] == 200
        assert [each["name"] for each in asking.success("GET", f"{URL}/snapshots")["snapshots"]]
        asking.success("PUT", "/v1/collections/new", {"dim": 4})
        asking.success("POST", f"{snapshot}/restore?replace=true")
        asking.success("DELETE", URL)
        assert "Traceback" not in server.log.read_text()


OUT = (503, "1", "out_of_descriptors")


def test_the_last_descriptors_are_for_files_and_a_request_is_told_so(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server, Asking(server.port) as asking:
        asking.success("PUT", URL, {"dim": 4})
        highest = max(int(each) for each in os.listdir(f"/proc/{server.pid}/fd"))
        with limited(server, highest + ROOM), ExitStack() as stack:
            answers = []
            while OUT not in answers:
                connection = stack.enter_context(Asking(server.port))
                answers.append(asked(connection, "GET", "/v1/collections"))
                assert len(answers) < highest + ROOM
            assert set(answers[:-1]) == {(200, None, None)}
            with Asking(server.port) as another:
                assert asked(another, "GET", "/livez") == (200, None, None)
            asking.success("POST", f"{URL}/snapshots")
        with Asking(server.port) as another:
            another.success("GET", "/v1/collections")


def test_connections_beyond_the_last_descriptor_neither_end_nor_stop_the_server(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "data") as server, Asking(server.port) as asking:
        asking.success("GET", "/v1/collections")
        with limited(server, BELOW_ALL), ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(socket.create_connection((HOST, server.port), timeout=60))
                asking.success("GET", "/v1/collections")
        with Asking(server.port) as another:
            another.success("GET", "/v1/collections")
        assert "Traceback" not in server.log.read_text()
