"""The order to stop, SIGTERM, while clients write."""

import http.client
import json
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.crashes.checking import held
from tests.crashes.servers import Asking, Ended, Nursery, Running
from tests.crashes.states import SHARED, config_of
from tests.crashes.trial import Trial
from tests.support.service.ports import HOST

URL = f"/v1/collections/{SHARED}"
CHUNK = 4
ENDS = (http.client.IncompleteRead, ConnectionError, json.JSONDecodeError)
"""What a client sees of an answer that breaks off."""


class Sending:
    """A load whose lines are sent one by one."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=60)
        self._connection.putrequest("POST", f"{URL}/load")
        for name, value in (
            ("Content-Type", "application/x-ndjson"),
            ("Accept", "application/x-ndjson"),
            ("Transfer-Encoding", "chunked"),
        ):
            self._connection.putheader(name, value)
        self._connection.endheaders()
        self._answer: http.client.HTTPResponse | None = None

    def send(self, rows: Sequence[int]) -> None:
        lines = [json.dumps({"id": f"load-{row}", "vector": [row + 1] * 8}) + "\n" for row in rows]
        body = "".join(lines).encode()
        self._connection.send(b"%x\r\n%s\r\n" % (len(body), body))

    def end(self) -> None:
        self._connection.send(b"0\r\n\r\n")

    def line(self) -> dict[str, object]:
        if self._answer is None:
            self._answer = self._connection.getresponse()
        found: dict[str, object] = json.loads(self._answer.readline())
        return found

    def close(self) -> None:
        self._connection.close()


def is_ready(server: Running) -> bool:
    with Asking(server.port) as once:
        try:
            return once.ask("GET", "/readyz")[0] == 200
        except Ended:
            return False


def loading(server: Running) -> Sending:
    """Return a load of which one chunk is committed."""
    with Asking(server.port) as asking:
        asking.success("PUT", URL, config_of(0))
    sending = Sending(server.port)
    sending.send(range(CHUNK))
    assert sending.line() == {"committed": CHUNK, "rejected": 0}
    return sending


def test_after_the_order_to_stop_nobody_is_let_in_and_requests_in_flight_finish(
    servers: Nursery, tmp_path: Path
) -> None:
    settings = {"GCWS_LOAD_CHUNK_ROWS": str(CHUNK), "GCWS_SHUTDOWN_SECONDS": "60"}
    with servers.serving(tmp_path / "data", **settings) as server:
        sending = loading(server)
        server.signal(signal.SIGTERM)
        while is_ready(server):
            assert not server.ended()
        sending.send(range(CHUNK, 2 * CHUNK))
        assert sending.line() == {"committed": 2 * CHUNK, "rejected": 0}
        sending.end()
        assert sending.line()["inserted"] == 2 * CHUNK
        sending.close()
        assert server.status() == 0, server.log.read_text()
        assert "Traceback" not in server.log.read_text()
    with servers.serving(tmp_path / "data") as server, Asking(server.port) as asking:
        assert set(held(asking, SHARED)) == {f"load-{row}" for row in range(2 * CHUNK)}


def test_a_request_that_does_not_end_is_ended_with_the_grace_period(
    servers: Nursery, tmp_path: Path
) -> None:
    settings = {"GCWS_LOAD_CHUNK_ROWS": str(CHUNK), "GCWS_SHUTDOWN_SECONDS": "1"}
    with servers.serving(tmp_path / "data", **settings) as server:
        sending = loading(server)
        server.signal(signal.SIGTERM)
        assert server.status() == 0, server.log.read_text()
        sending.close()
    with servers.serving(tmp_path / "data") as server, Asking(server.port) as asking:
        assert set(held(asking, SHARED)) == {f"load-{row}" for row in range(CHUNK)}


class Unanswered:
    """A request of which half the body is sent."""

    def __init__(self, port: int, path: str, kind: str, body: bytes) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=60)
        self._connection.putrequest("POST", path)
        self._connection.putheader("Content-Type", kind)
        self._connection.putheader("Content-Length", str(2 * len(body)))
        self._connection.endheaders(body)

    def answer(self) -> tuple[int, str | None, str | None, dict[str, object]]:
        found = self._connection.getresponse()
        kind, retry = found.getheader("Content-Type"), found.getheader("Retry-After")
        content: dict[str, object] = json.loads(found.read())
        self._connection.close()
        return found.status, kind, retry, content


def test_requests_that_do_not_end_in_time_are_told_that_the_server_stops(
    servers: Nursery, tmp_path: Path
) -> None:
    settings = {"GCWS_SHUTDOWN_SECONDS": "1", "GCWS_LOAD_CHUNK_ROWS": str(CHUNK)}
    with servers.serving(tmp_path / "data", **settings) as server:
        streaming = loading(server)
        unanswered = [
            Unanswered(server.port, f"{URL}/query", "application/json", b'{"vector": ['),
            Unanswered(server.port, f"{URL}/query/batch", "application/json", b'{"queries": ['),
            Unanswered(server.port, f"{URL}/load", "application/x-ndjson", b'{"id": "a"'),
        ]
        while under_way(server) < len(unanswered) + 2:  # the load that streams, and this look
            assert not server.ended()
        server.signal(signal.SIGTERM)
        for request in unanswered:
            status, kind, retry, problem = request.answer()
            assert (status, kind, retry) == (503, "application/problem+json", "1")
            assert problem["code"] == "stopping"
        with pytest.raises(ENDS):  # an answer that has begun is not made to look complete
            streaming.line()
        streaming.close()
        assert server.status() == 0, server.log.read_text()
        log = server.log.read_text()
        assert "Traceback" not in log
        # Whoever runs it sees one line about all of them.
        assert [line for line in log.splitlines() if "ERROR" in line or "task" in line] == [
            line for line in log.splitlines() if "Cancel 4 running task(s)" in line
        ]
        assert log.count("Cancel 4 running task(s)") == 1


def under_way(server: Running) -> int:
    """Return how many requests the server works on, the one that asks for it included."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    [line] = [line for line in text.splitlines() if line.startswith("gcws_requests_under_way ")]
    return int(float(line.split()[1]))


@pytest.mark.parametrize("seconds", [0.3, 0.6])
def test_a_server_stopped_while_many_write_ends_well_and_keeps_all(
    servers: Nursery, tmp_path: Path, seconds: float
) -> None:
    trial = Trial(servers, tmp_path, seed=1)
    log, status = trial.stop_after(seconds)
    assert status == 0, log
    assert "Traceback" not in log
    assert trial.acknowledged
    trial.check()
