"""What is logged: whose request it was, and nothing of what was sent."""

import json
import logging
from collections.abc import Iterator

import pytest

from gcws_search import index as ix
from gcws_search.service.server import JsonLines, configure_logs
from tests.support.service.client import Json, Serve, assert_problem, fill

URL = "/v1/collections/plants"
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
