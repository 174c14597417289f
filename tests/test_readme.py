"""The README's session, executed."""

import asyncio
import doctest
import re
from pathlib import Path

import httpx
import pytest

from service.app import create_app
from service.settings import Settings
from tests import curl
from tests.paths import REPOSITORY
from tests.served import Json, started

BASE = "http://localhost:8000"


async def answers(requests: list[httpx.Request], data_dir: Path) -> list[str]:
    """Return what a service of its own answers to requests sent one after another."""
    app = create_app(Settings.model_validate({"data_dir": data_dir}))
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
        while (await client.get(f"{BASE}/readyz")).status_code != 200:  # noqa: ASYNC110  # told by HTTP alone
            await asyncio.sleep(0.01)
        return [(await client.send(request)).text for request in requests]


def test_the_session_answers_as_the_readme_says(tmp_path: Path) -> None:
    steps = list(curl.steps((REPOSITORY / "README.md").read_text()))
    assert len(steps) > 5
    found = asyncio.run(answers([curl.request(step.command) for step in steps], tmp_path))
    for step, answer in zip(steps, found, strict=True):
        assert step.matches(answer), f"{step.command}\nanswered\n{answer}"


def test_the_python_of_the_readme_loads_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [program] = re.findall(
        r"^```python\n(.*?)^```$", (REPOSITORY / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    client = started(tmp_path)
    client.wait_until_ready()
    client.put("/v1/collections/coffees", json={"dim": 4})

    class Through:
        """Stands for httpx's client: the same requests, without a network."""

        def __init__(self, base_url: str) -> None:
            self._base = base_url.removeprefix("http://localhost:8000")

        def post(self, path: str, **more: Json) -> httpx.Response:
            return client.post(f"{self._base}{path}", **more)

    monkeypatch.setattr(httpx, "Client", Through)
    try:
        exec(program, {})
        shown = client.get("/v1/collections/coffees/items").json()["items"]
    finally:
        client.stop()
    assert capsys.readouterr().out.count("inserted") == 2
    assert [item["id"] for item in shown] == ["100", "101", "santos", "sidamo"]


def test_the_interpreter_answers_as_the_readme_says() -> None:
    text = (REPOSITORY / "README.md").read_text()
    blocks = re.findall(r"^```pycon\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        example = doctest.DocTestParser().get_doctest(block, {}, "README.md", None, None)
        doctest.DebugRunner(verbose=False).run(example)  # raises where an answer is another


@pytest.mark.parametrize("package", ["index", "service"])
def test_every_module_is_in_a_layout_table(package: str) -> None:
    readme = (REPOSITORY / "README.md").read_text()
    head = rf"^\| `{package}/` \| what lives here \|\n"
    [table] = re.findall(head + r"((?:\|.*\n)+)", readme, re.MULTILINE)
    folder = REPOSITORY / package
    modules = {path.name for path in folder.glob("*.py") if not path.name.startswith("__")}
    folders = {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}
    assert set(re.findall(r"`([a-z_]+(?:\.py|/))`", table)) == modules | folders


def test_every_promise_names_tests_that_there_are() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    [table] = re.findall(r"^\| when \| then \| shown by \|\n((?:\|.*\n)+)", readme, re.MULTILINE)
    rows = table.splitlines()[1:]
    assert len(rows) >= 10
    for row in rows:
        files = re.findall(r"`(tests/[a-z_/]+\.py)`", row.split("|")[3])
        assert files, row
        for file in files:
            assert "def test_" in (REPOSITORY / file).read_text(), file


def test_every_source_is_among_the_references() -> None:
    texts = [path.read_text() for path in (REPOSITORY / "index").rglob("*.py")]
    docstrings = "".join(
        doc for text in texts for doc in re.findall(r'"""(.*?)"""', text, re.DOTALL)
    )
    named = set(re.findall(r"\[([A-Z]{3,})\]", docstrings))
    references = (REPOSITORY / "README.md").read_text().partition("## References")[2]
    assert named
    assert named == set(re.findall(r"\[([A-Z]+)\]", references))


def test_a_changed_answer_is_noticed() -> None:
    step = curl.Step("curl localhost:8000/x", ['{"a":1,"seconds":…}'])
    assert step.matches('{"a":1,"seconds":0.25}\n')
    assert not step.matches('{"a":2,"seconds":0.25}\n')


def test_a_piped_command_becomes_its_request() -> None:
    [step] = curl.steps(
        "```console\n"
        "$ printf '%s\\n' a b |\n"
        "> curl -s localhost:8000/load -H 'Content-Type: text/x' --data-binary @-\n"
        "done\n```\n"
    )
    request = curl.request(step.command)
    assert (request.method, request.url.path) == ("POST", "/load")
    assert request.read() == b"a\nb\n"
    assert request.headers["content-type"] == "text/x"
    assert step.output == ["done"]


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(ValueError, match="--magic"):
        curl.request("curl --magic localhost:8000/")
