"""Short runs of all that is tried with made inputs; the long one is ``python -m tests.fuzz``."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from schemathesis import GenerationMode

from gcws_search.service.app import create_app
from gcws_search.service.settings import Settings
from tests.fuzz import inputs, values
from tests.fuzz.operations import MODES, PAGE, operations, try_operation
from tests.fuzz.trying import tried
from tests.support.service.client import Client, started

REQUESTS = 2
INPUTS = 30
VALUES = 60


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    client = started(tmp_path_factory.mktemp("fuzz") / "data")
    client.wait_until_ready()
    yield client
    client.stop()


def test_the_committed_page_is_the_one_that_is_served() -> None:
    """Made anew by ``python -m tests.fuzz --write-page``."""
    assert json.loads(json.dumps(create_app(Settings()).openapi())) == PAGE


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("method", "path"), [*operations()])
def test_requests_made_from_the_page_get_answers_it_declares(
    client: Client, method: str, path: str, mode: GenerationMode
) -> None:
    try_operation(client, method, path, mode, examples=REQUESTS, number=0)


@pytest.mark.parametrize("what", inputs.TRIALS)
def test_inputs_are_taken_as_they_are_or_refused(client: Client, what: str) -> None:
    made, trial = inputs.TRIALS[what]
    inputs.prepare(client)
    assert tried(made, partial(trial, client), examples=INPUTS, number=0) >= INPUTS / 2


def test_files_with_other_values_or_bytes_are_refused_or_served(tmp_path: Path) -> None:
    sound = values.Sound.made(tmp_path / "sound")
    with values.Bench.opened(sound, tmp_path / "data") as bench:
        count = tried(values.TRIALS, bench.try_values, examples=VALUES, number=0)
    assert count >= VALUES / 2
