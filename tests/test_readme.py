"""The README's session, executed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.settings import Settings
from tests import curl
from tests.dockerfile import REPOSITORY


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(create_app(Settings.model_validate({"data_dir": tmp_path}))) as client:
        while client.get("/readyz").status_code != 200:
            pass
        yield client


def test_the_session_answers_as_the_readme_says(client: TestClient) -> None:
    steps = list(curl.steps((REPOSITORY / "README.md").read_text()))
    assert len(steps) > 5
    for step in steps:
        answer = curl.run(step.command, client)
        assert step.matches(answer), f"{step.command}\nanswered\n{answer}"


def test_a_changed_answer_is_noticed() -> None:
    step = curl.Step("curl localhost:8000/x", ['{"a":1,"seconds":…}'])
    assert step.matches('{"a":1,"seconds":0.25}\n')
    assert not step.matches('{"a":2,"seconds":0.25}\n')
