"""A load under a key, its server killed in the middle, sent again: the exact set and counts."""

import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from tests.crashes.servers import Ended, Nursery, Running
from tests.support.service.bodies import TYPES, bodies
from tests.support.service.ports import HOST

URL = "/v1/collections/things"
ROWS = 200
_POINTS = ["in a transaction", "after commit, before memory", "after the write, before the answer"]


def sent(server: Running, kind: str, body: bytes) -> Any:  # noqa: ANN401
    """Return the answer to a load."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=120)
    headers = {"Content-Type": TYPES[kind], "Idempotency-Key": "one load"}
    try:
        connection.request("POST", f"{URL}/load", body, headers)
        answer = connection.getresponse()
        return json.loads(answer.read())
    except (ConnectionError, http.client.BadStatusLine, http.client.IncompleteRead) as error:
        raise Ended(str(error)) from None
    finally:
        connection.close()


def asked(server: Running, method: str, path: str, document: Any = None) -> Any:  # noqa: ANN401
    connection = http.client.HTTPConnection(HOST, server.port, timeout=120)
    body = None if document is None else json.dumps(document)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    found = json.loads(connection.getresponse().read())
    connection.close()
    return found


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("point", _POINTS)
def test_a_load_whose_server_is_killed_goes_on_and_counts_every_row_once(
    servers: Nursery, tmp_path: Path, kind: str, point: str
) -> None:
    data, body = tmp_path / "data", bodies(ROWS)[kind]
    chunks = {"GCWS_LOAD_CHUNK_ROWS": "16"}
    with servers.serving(data, **chunks) as server:
        asked(server, "PUT", URL, {"dim": 4})
    before, kills = 0, 0
    for times in (2, 3, 4):  # each kill is after further chunks
        server = servers.start(data, point=point, times=times, **chunks)
        try:
            assert server.ready()
            with pytest.raises(Ended):
                sent(server, kind, body)
            assert server.ended(60)
            kills += 1
        finally:
            server.kill()
    with servers.serving(data, **chunks) as server:
        [entry] = asked(server, "GET", f"{URL}/loads")["loads"]
        before = asked(server, "GET", URL)["items"]
        assert (entry["state"], entry["rows"]) == ("interrupted", before)
        assert before >= 16 * kills
        answer = sent(server, kind, body)
        assert (answer["inserted"], answer["updated"], answer["rejected_count"]) == (ROWS, 0, 0)
        page = asked(server, "GET", f"{URL}/items?limit={ROWS + 1}&with_vector=true")["items"]
        assert [item["id"] for item in page] == [str(row) for row in range(ROWS)]
        assert [item["vector"][0] for item in page] == [row + 1 for row in range(ROWS)]
        assert sent(server, kind, body)["inserted"] == ROWS
        assert asked(server, "GET", URL)["items"] == ROWS
