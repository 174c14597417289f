"""The page about the database: its commands make one, back it up and restore it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests.support.documents.markdown import blocks
from tests.support.paths import REPOSITORY
from tests.support.service.client import Client, Json, fill, running
from tests.support.service.cluster import ClusterClient
from tests.support.service.postgres import Postgres, programs, running_server
from tests.support.service.shards import KEY

PAGE: Final = REPOSITORY / "docs" / "database.md"
URL: Final = "/v1/collections/plants"


@pytest.fixture
def server() -> Iterator[Postgres]:
    with running_server() as server:
        server.execute("CREATE ROLE root SUPERUSER LOGIN")  # the role "gcws" is the page's to make
        yield server


def run(server: Postgres, folder: Path, *, where: str) -> None:
    """Run the block of the page that has a word in it, as a superuser; roles have names of ours."""
    [block] = [text for _, text in blocks(PAGE.read_text()) if where in text]
    environment = {
        "PATH": f"{programs()}:{os.environ['PATH']}",
        "PGHOST": server.host,
        "PGPORT": str(server.port),
        "PGUSER": "root",
    }
    script = block.replace("ROLE gcws", "ROLE owner").replace("OWNER gcws", "OWNER owner")
    script = script.replace("--role=gcws", "--role=owner")
    done = subprocess.run(
        ["sh", "-ec", script], env=environment, cwd=folder, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def url_of(server: Postgres, database: str) -> str:
    return f"postgresql://owner:password@{server.host}:{server.port}/{database}"


def cluster(server: Postgres, database: str, folder: Path) -> AbstractContextManager[ClusterClient]:
    return running(ClusterClient(url_of(server, database), folder))


def everything(client: Client) -> Json:
    """Return all items as the database has them, and as shards do."""
    page = client.get(f"{URL}/items", params={"with_vector": "true"}).json()["items"]
    query = {"vector": [1, 2, 3, 4], "limit": 100, "recall": 1, "consistency": "strict"}
    hits = client.post(f"{URL}/query", json=query).json()["hits"]
    return page, hits, client.get(URL).json()["metadata"]


def test_a_backup_is_what_there_was_and_replicas_follow_it(
    server: Postgres, tmp_path: Path
) -> None:
    run(server, tmp_path, where="CREATE ROLE")
    with cluster(server, "gcws", tmp_path / "files") as client:
        fill(client)
        metadata = {"metadata": {"of": "garden"}}
        assert client.request("PATCH", URL, json=metadata).status_code == 200
        before = everything(client)
        run(server, tmp_path, where="pg_dump")
        items = [{"id": name, "vector": [4, 3, 2, 1]} for name in ("a", "new")]
        assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
        assert client.delete(f"{URL}/items/b").status_code == 204
        after = everything(client)
        assert after != before
    run(server, tmp_path, where="pg_restore")
    [words] = [text.split() for _, text in blocks(PAGE.read_text()) if "adopt" in text]
    assert words[0] == "gcws-search"
    settings = {"GCWS_DATABASE_URL": url_of(server, "restored"), "GCWS_CLUSTER_KEY": KEY}
    environment = {**os.environ, **settings}
    subprocess.run([sys.executable, "-m", "gcws_search", *words[1:]], env=environment, check=True)
    with cluster(server, "restored", tmp_path / "files") as client:
        assert everything(client) == before
        assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
        assert client.delete(f"{URL}/items/b").status_code == 204
        again = everything(client)
        assert again[1:] == after[1:]
        assert {item["id"] for item in again[0]} == {item["id"] for item in after[0]}
        # A collection has as many tables as the page says.
        with psycopg.connect(url_of(server, "restored")) as connection:
            counted = "SELECT count(*) FROM pg_class WHERE relkind IN ('r', 'p') AND relname ~ %s"
            [(tables,)] = connection.execute(counted, ["^items_"]).fetchall()
        assert tables == 1
