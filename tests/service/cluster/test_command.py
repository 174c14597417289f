"""`gcws-search cluster` where it cannot begin: what is missing is named."""

from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gcws_search.service.cluster.command import RAY_DEFAULTS, cli, node_variables
from gcws_search.service.cluster.contract import Replica
from gcws_search.service.cluster.database import Database
from gcws_search.service.settings import Settings
from tests.support.processes import run_python
from tests.support.service.shards import KEY

WITHOUT = """
import sys
sys.modules[{name!r}] = None
from gcws_search.commands.app import main
sys.argv = ["gcws-search", "cluster", *{words!r}]
main()
"""
STOPPED = """
import sys, types
from gcws_search.commands.app import main

class Server:
    def __init__(self, *_):
        pass

    def run(self):
        raise KeyboardInterrupt

sys.modules["gcws_search.service.cluster.server"] = types.SimpleNamespace(ShardServer=Server)
sys.argv = ["gcws-search", "shard", "--shard", "0", "--port", "0"]
main()
"""
WHOLE = {
    "GCWS_DATABASE_URL": "postgresql://127.0.0.1:1/none",
    "GCWS_CLUSTER_KEY": KEY,
    "RAY_AUTH_TOKEN": "a token",
}


@pytest.mark.parametrize(("name", "words"), [("psycopg", ["up"]), ("ray", ["node", "--head"])])
def test_without_the_extra_it_says_what_to_install(
    name: str, words: list[str], tmp_path: Path
) -> None:
    program = WITHOUT.format(name=name, words=words)
    done = run_python("-c", program, folder=tmp_path, status=1, **WHOLE)
    assert f"{name}" in done.stderr
    assert "pip install 'gcws-search[cluster]' adds it" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_shard_that_is_stopped_by_ctrl_c_has_not_failed(tmp_path: Path) -> None:
    done = run_python("-c", STOPPED, folder=tmp_path, status=0, **WHOLE)
    assert "interrupted" not in done.stderr


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (["up"], {"GCWS_CLUSTER_KEY": ""}, "set GCWS_CLUSTER_KEY"),
        (["status"], {"GCWS_DATABASE_URL": ""}, "set GCWS_DATABASE_URL"),
        (["down"], {}, "database"),
        (["node", "--head"], {"RAY_AUTH_TOKEN": ""}, "expected a token of the Ray cluster"),
        (["node", "--head"], {"RAY_AUTH_MODE": "disabled"}, "expected RAY_AUTH_MODE=token"),
        (["node", "--head"], {"GCWS_CLUSTER_KEY": ""}, "set GCWS_CLUSTER_KEY"),
        (["node", "--head"], {"GCWS_CLUSTER_KEY": 31 * "k"}, "expected at least 32 characters"),
        (["node"], {"RAY_ADDRESS": ""}, "expected --head, or --address of the head"),
        (["node", "--address=10.0.0.1"], {}, "expected HOST:PORT of Ray's head, got '10.0.0.1'"),
    ],
)
def test_what_is_missing_is_named(
    words: list[str], variables: dict[str, str], said: str, tmp_path: Path
) -> None:
    environment = {**WHOLE, "HOME": str(tmp_path), "RAY_ADDRESS": "", **variables}
    shown = CliRunner(env=environment).invoke(cli, ["cluster", *words])
    assert shown.exit_code == 1, shown.output
    assert said in shown.output


def test_replicas_that_run_without_ray_are_shown(database_url: str, tmp_path: Path) -> None:
    with closing(Database.open(database_url)) as database:
        database.announce(Replica("main", 0, 3, "10.0.0.1:1", {}, 1, 0.5, 0.0, 1))
    environment = {**WHOLE, "HOME": str(tmp_path), "RAY_AUTH_TOKEN": ""}
    environment["GCWS_DATABASE_URL"] = database_url
    shown = CliRunner(env=environment).invoke(cli, ["cluster", "status"])
    assert shown.exit_code == 0, shown.output
    assert "expected a token of the Ray cluster" in shown.stderr
    assert shown.stdout.splitlines()[1].startswith("0/3      filled  -     10.0.0.1:1")


def test_a_node_says_that_no_head_answers_before_ray_tries_for_minutes(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    words = "cluster", "node", "--address=127.0.0.1:1", "--", "--help"
    done = run_python("-m", "gcws_search", *words, folder=tmp_path, status=0, **WHOLE)
    assert "no head answers at 127.0.0.1:1 (Connection refused)" in done.stderr


@pytest.mark.parametrize("replica", ["1", "0/x", "0/1/2", "-1/0"])
def test_a_replica_that_is_no_shard_and_number_is_wrong_usage(replica: str) -> None:
    shown = CliRunner(env=WHOLE).invoke(cli, ["cluster", "move", "--", replica])
    assert shown.exit_code == 2, shown.output
    assert "SHARD/REPLICA" in shown.output


def test_a_node_has_the_variables_that_its_processes_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings(data_dir=Path("files"), cluster_key_file=Path("key"), base="bases")
    mine = {"RAY_health_check_period_ms": "7", "OTHER": "1"}
    head = node_variables(settings, {"threads": "3", "host": None}, mine, is_head=True)
    assert head == {
        **RAY_DEFAULTS,
        **mine,
        "GCWS_THREADS": "3",
        "GCWS_DATA_DIR": str(tmp_path / "files"),
        "GCWS_CLUSTER_KEY_FILE": str(tmp_path / "key"),
        "GCWS_BASE": str(tmp_path / "bases"),
        "RAY_gcs_storage_path": str(tmp_path / "files" / "ray-head"),
    }
    node = node_variables(settings, {}, mine, is_head=False)
    assert "RAY_gcs_storage" not in node
    assert node["RAY_AUTH_MODE"] == "token"
