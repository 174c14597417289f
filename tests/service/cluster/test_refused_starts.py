"""What ends the start of a router: it is said in a line, and nothing is served."""

import gc
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from gcws_search.service.cli import cli
from gcws_search.service.cluster.catalog import open_router
from gcws_search.service.cluster.command import cli as command_line
from gcws_search.service.cluster.contract import ClusterMismatch, Replica
from gcws_search.service.cluster.database import Database
from gcws_search.service.settings import Settings
from tests.support.service.ports import free_port
from tests.support.service.shards import KEY

pytestmark = pytest.mark.usefixtures("root_log")
KEYED = {"GCWS_CLUSTER_KEY": KEY}


def start(tmp_path: Path, variables: dict[str, str]) -> str:
    """Start a router that is refused; return what it says."""
    words = ["serve", "--data-dir", str(tmp_path), "--port", str(free_port())]
    shown = CliRunner(env=variables).invoke(cli, words)
    gc.collect()  # a connection that was left open is told of, which fails the test
    assert shown.exit_code == 1, shown.output
    [line] = shown.output.splitlines()
    assert line.startswith("gcws-search: ")
    assert not [*tmp_path.iterdir()]
    return line


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, ["GCWS_CLUSTER_KEY"]),
        ({"GCWS_CLUSTER_KEY": 31 * "k"}, ["GCWS_CLUSTER_KEY: expected at least 32", "got 31"]),
        (KEYED | {"GCWS_SHARDS": "9", "GCWS_BUCKETS": "8"}, ["shards", "1 to 8", "got 9"]),
        (KEYED | {"GCWS_BUCKETS": "4"}, ["buckets", "expected 4", "got 8"]),
    ],
)
def test_a_router_says_what_it_expected(
    tmp_path: Path, database_url: str, variables: dict[str, str], words: list[str]
) -> None:
    Database.open(database_url, buckets=8).close()
    line = start(tmp_path, {"GCWS_DATABASE_URL": database_url} | variables)
    for word in words:
        assert word in line


def test_another_key_than_the_database_knows_is_refused_until_it_is_replaced(
    tmp_path: Path, database_url: str
) -> None:
    Database.open(database_url, buckets=8, key="of before").close()
    variables = KEYED | {"GCWS_DATABASE_URL": database_url, "GCWS_BUCKETS": "8"}
    line = start(tmp_path, variables)
    assert "GCWS_CLUSTER_KEY: expected" in line
    assert "rekey" in line
    assert KEY not in line
    replaced = CliRunner(env=variables).invoke(command_line, ["cluster", "rekey"])
    assert replaced.exit_code == 0, replaced.output
    Database.open(database_url, buckets=8, key=KEY).close()
    with pytest.raises(ClusterMismatch):
        Database.open(database_url, buckets=8, key="of before")


def test_another_number_of_shards_than_that_of_all_replicas_is_refused(
    tmp_path: Path, database_url: str
) -> None:
    with closing(Database.open(database_url, buckets=8)) as database:
        database.announce(Replica("main", 0, 0, "host:1", {}, 0, 0.0, 0.0, 3))
        variables = {"GCWS_DATABASE_URL": database_url, "GCWS_BUCKETS": "8"}
        line = start(tmp_path, KEYED | variables | {"GCWS_SHARDS": "2"})
        assert "GCWS_SHARDS of cell 'main': expected 3, got 2" in line
        database.require_shards("main", 3)
        database.require_shards("other", 2)
        database.set_shards("main", 3)
        database.require_shards("main", 2)


@pytest.mark.parametrize("url", ["postgres//me:secret@host/name", "https://me:secret@host", "x"])
def test_a_url_that_is_none_is_not_told(tmp_path: Path, url: str) -> None:
    line = start(tmp_path, KEYED | {"GCWS_DATABASE_URL": url})
    assert "GCWS_DATABASE_URL: expected" in line
    assert "secret" not in line


def test_a_router_without_its_database_does_not_start(tmp_path: Path) -> None:
    url = f"postgresql://nobody@127.0.0.1:{free_port()}/none?connect_timeout=2"
    assert "database" in start(tmp_path, KEYED | {"GCWS_DATABASE_URL": url})


def test_a_router_that_cannot_be_opened_leaves_no_connection(database_url: str) -> None:
    url, key = SecretStr(database_url), SecretStr(KEY)
    settings = Settings(database_url=url, cluster_key=key, buckets=8)
    metrics = Mock(register=Mock(side_effect=ValueError("there are such metrics")))
    with pytest.raises(ValueError, match="such metrics"):
        open_router(settings, Mock(), metrics)
    gc.collect()  # see `start`
