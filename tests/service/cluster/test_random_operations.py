"""Random operations on a cluster, and requests made from the page: short runs.

The long ones are ``python -m tests.model --cluster`` and those of ``python -m tests.fuzz``.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from schemathesis import GenerationMode

from tests.fuzz.operations import operations, try_operation
from tests.fuzz.test_fuzz import (
    REQUESTS,
    test_inputs_are_taken_as_they_are_or_refused,  # noqa: F401
)
from tests.model.run import Life, over_cluster
from tests.support.service.client import Client, running
from tests.support.service.cluster import ClusterClient
from tests.support.service.postgres import postgres

OPERATIONS = 150


@pytest.mark.parametrize("seed", [0, 1])
def test_random_operations_are_answered_as_a_model_says(
    database_url: str, tmp_path: Path, seed: int
) -> None:
    with closing(Life(tmp_path, seed, over_cluster(database_url))) as lived:
        lived.run(OPERATIONS)
        assert lived.restarts + lived.copies
        assert sum(lived.operations.counts.values()) == OPERATIONS


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a cluster, for what is made from the page."""
    folder = tmp_path_factory.mktemp("fuzz") / "data"
    with postgres().database() as url, running(ClusterClient(url, folder)) as client:
        yield client


@pytest.mark.parametrize(("method", "path"), [*operations()])
def test_sound_requests_made_from_the_page_get_answers_it_declares(
    client: Client, method: str, path: str
) -> None:
    """What is no request is refused before a router sees it, as one node refuses it."""
    try_operation(client, method, path, GenerationMode.POSITIVE, examples=REQUESTS, number=0)
