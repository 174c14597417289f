"""The profile "cluster" of the compose file: what it says, its database and its standby."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from gcws_search.service.settings import Settings
from tests.support.documents.compose import (
    SECRETS,
    Rehearsal,
    cluster_services,
    filled_in,
    read_compose,
)
from tests.support.documents.dockerfile import instructions
from tests.support.documents.markdown import blocks
from tests.support.paths import REPOSITORY
from tests.support.service.ports import HOST
from tests.support.service.postgres import Postgres, programs
from tests.support.waiting import wait_until

SECONDS: Final = 120.0
NO_SECRETS: Final = {"GCWS_ALLOW_NO_KEY"}
OURS: Final = [name for name, each in cluster_services().items() if "build" in each]
"""Services that run our image."""


# What the file says


@pytest.mark.parametrize("name", cluster_services())
def test_a_service_is_confined_inside_and_not_started_unasked(name: str) -> None:
    services = read_compose()["services"].items()
    assert {name for name, each in services if not each.get("profiles")} == {"search"}
    service = cluster_services()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"].startswith("${GCWS_")
    assert service["restart"] == "unless-stopped"
    assert "inside" in service["networks"]
    assert read_compose()["networks"]["inside"] == {"internal": True}
    assert ("ports" in service) == (name == "router"), "only routers are reached from outside"


@pytest.mark.parametrize("name", cluster_services())
def test_secrets_are_files_and_only_those_that_are_needed(name: str) -> None:
    service, secrets = cluster_services()[name], read_compose()["secrets"]
    given = {key: str(value) for key, value in service["environment"].items()}
    read = {key: value for key, value in given.items() if SECRETS in value}
    files = {value.partition(SECRETS)[2].rstrip("}") for value in read.values()}
    assert files == {*service["secrets"]}
    assert {*service["secrets"]} <= secrets.keys()
    assert all(key.endswith(("_FILE", "_PATH")) for key in read)
    assert not {key for key in given if key.endswith(("_KEY", "_URL", "_PASSWORD"))} - NO_SECRETS


@pytest.mark.parametrize("name", OURS)
def test_settings_are_settings_of_the_service(name: str) -> None:
    service = cluster_services()[name]
    given = {key for key in service["environment"] if key.startswith("GCWS_")}
    assert {key.removeprefix("GCWS_").lower() for key in given} <= set(Settings.model_fields)
    assert service["build"]["args"] == {"EXTRA": "cluster"}
    grace_seconds = int(service["stop_grace_period"].removesuffix("s"))
    assert grace_seconds > Settings.model_fields["shutdown_seconds"].default


def test_each_process_has_files_of_its_own() -> None:
    """Those of routers and nodes are in the unnamed volume that the image declares.

    All share the bases.
    """
    services = cluster_services()
    based = {name for name, each in services.items() if "GCWS_BASE" in each["environment"]}
    assert based == {"head", "node", "router"}
    for name in based:
        services[name]["volumes"].remove(f"bases:{services[name]['environment']['GCWS_BASE']}")
    assert [
        each.text for each in instructions() if " /bases" in each.text and " 10001 " in each.text
    ]
    shared = [volume for each in services.values() for volume in each.get("volumes", [])]
    data = [volume for volume in shared if not volume.startswith("./")]
    assert len({*data}) == len(data)
    assert not [volume for volume in shared if volume not in data if not volume.endswith(":ro")]
    several = {name for name, each in services.items() if "deploy" in each}
    assert several == {"node", "router"}
    assert not [name for name in several if services[name].get("volumes")]
    assert "VOLUME /data" in [f"{each.keyword} {each.text}" for each in instructions()]


def test_each_router_has_a_port_and_there_are_nodes_for_all_replicas() -> None:
    services = cluster_services()
    for name in ("head", "node"):
        replicas = int(services[name]["environment"]["GCWS_REPLICAS"])
        assert services["node"]["deploy"]["replicas"] >= replicas
    router = services["router"]
    [port] = router["ports"]
    assert port.startswith("${GCWS_BIND:-127.0.0.1}:")
    host, ports, inner = filled_in(port, {}).split(":")
    first, last = map(int, ports.split("-"))
    assert (host, last - first + 1, inner) == ("127.0.0.1", router["deploy"]["replicas"], "8000")


# What the commands do


@pytest.fixture
def rehearsal(tmp_path: Path) -> Rehearsal:
    rehearsal = Rehearsal(tmp_path)
    rehearsal.make_secrets()
    return rehearsal


@pytest.fixture
def server(rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Postgres]:
    """Lend the service "database"."""
    server = Postgres(max_connections="100")  # the image's
    try:
        rehearsal.create_database(server, monkeypatch)
        yield server
    finally:
        server.remove()


def test_the_page_s_commands_make_the_secrets(rehearsal: Rehearsal) -> None:
    made = {each.name: each for each in rehearsal.secret("x").parent.iterdir()}
    files = {each["file"].rpartition("/")[2] for each in read_compose()["secrets"].values()}
    wanted = {name for each in cluster_services().values() for name in each["secrets"]}
    assert {*made} == wanted & files
    assert {each.stat().st_mode & 0o777 for each in made.values()} == {0o444}
    assert len({each.read_text() for each in made.values()}) == len(made)


def test_the_database_wants_the_password(
    server: Postgres, rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = rehearsal.secret("database_url").read_text().strip()
    assert "@database/" in url
    monkeypatch.delenv("PGPASSWORD")
    with psycopg.connect(url.replace("@database/", f"@{HOST}:{server.port}/")) as connection:
        assert connection.execute("SELECT current_user").fetchall() == [("gcws",)]
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(server.url("gcws"))


def test_a_standby_copies_the_primary_and_confirms_commits(
    rehearsal: Rehearsal, server: Postgres
) -> None:
    """The database is told once to wait for it, and keeps that over a restart."""
    assert server.execute("SHOW wal_keep_size") == [("1GB",)]  # for a standby that was away
    page = (REPOSITORY / "docs" / "database.md").read_text()
    lines = [line for _, text in blocks(page) for line in text.splitlines()]
    [line] = [line for line in lines if line.startswith("docker compose") and "ALTER SYS" in line]
    for statement in re.findall(r'-c "([^"]*)"', line):
        server.execute(statement)
    server.stop()
    server.start()
    standby = Postgres()
    shell, script, primary = rehearsal.command("standby")
    assert (shell, primary) == ("sh", "database")
    mounts = [volume.split(":") for volume in cluster_services()["standby"]["volumes"]]
    [mounted] = [source for source, target, *_ in mounts if target == script]
    environment = rehearsal.environment("standby")
    secret = standby.folder / "password"  # where that user may read it
    secret.write_bytes(Path(environment["POSTGRES_PASSWORD_FILE"]).read_bytes())
    own = {
        "PGDATA": str(standby.data),
        "PGPORT": str(standby.port),
        "PATH": f"{programs()}:{os.environ['PATH']}",
        "POSTGRES_PASSWORD_FILE": str(secret),
    }
    with (REPOSITORY / mounted).open() as text, (standby.folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["sh", "-s", f"{HOST} port={server.port}"],
            stdin=text,
            env=environment | own,
            user=standby.user,
            cwd=standby.folder,
            stdout=log,
            stderr=log,
        )
    try:
        asked = "SELECT application_name, sync_state FROM pg_stat_replication"
        said = (standby.folder / "log").read_text
        wait_until(lambda: process.poll() or server.execute(asked) == [("standby", "sync")], said)
        assert process.poll() is None, said()
        with psycopg.connect(server.url("gcws"), options="-c synchronous_commit=on") as connection:
            connection.execute("CREATE TABLE t AS SELECT 1 AS a")
        server.stop()
        with psycopg.connect(standby.url("gcws"), autocommit=True) as connection:
            assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
            connection.execute("SELECT pg_promote()")
            connection.execute("CREATE TABLE alone AS SELECT 1 AS a")
    finally:
        process.terminate()
        process.wait(SECONDS)
        standby.remove()
