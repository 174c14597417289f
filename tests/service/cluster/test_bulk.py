"""Bulk loads: what they make is what a load through a router makes, or nothing is seen."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from gcws_search import index as ix
from gcws_search.commands.app import app
from gcws_search.formats.files import BadFile, input_files
from gcws_search.formats.sources import COLLECTION, Choices, source_of
from gcws_search.formats.stores import StoreFailed
from gcws_search.service.cluster.bases import Bases
from gcws_search.service.cluster.bulk import BulkLoad, BulkLoaded, bulk_drop, bulk_load
from gcws_search.service.cluster.committer import Committer
from gcws_search.service.cluster.contract import ClusterMismatch, Replica
from gcws_search.service.cluster.database import Database
from gcws_search.service.errors import Refused
from gcws_search.service.settings import Settings
from gcws_search.tasks import process_pool
from tests.support.object_store import ObjectStore, object_store
from tests.support.service.bodies import ndjson
from tests.support.service.client import Json, running
from tests.support.service.cluster import BUCKETS, ClusterClient
from tests.support.service.shards import KEY
from tests.support.waiting import wait_until

DIM = 6
ROWS = 50
PARTS = {"part_rows": 16}
"""Several parts a file, whose borders are not those of row groups."""


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(
        database_url=SecretStr(database_url),
        cluster_key=SecretStr(KEY),
        buckets=BUCKETS,
        load_chunk_rows=7,
        data_dir=tmp_path / "bulk",
    )


@pytest.fixture
def client(database_url: str, tmp_path: Path) -> Iterator[ClusterClient]:
    with running(ClusterClient(database_url, tmp_path / "cluster")) as client:
        yield client


@pytest.fixture
def items(rng: np.random.Generator) -> list[Json]:
    """Return items of small whole numbers, so that many scores are equal; some ids come twice."""
    vectors = rng.integers(-3, 4, (ROWS, DIM)) + np.eye(DIM)[rng.integers(DIM, size=ROWS)] * 9
    return [
        {"id": f"i{row % 45}", "vector": vector, "payload": {"label": row % 3}}
        for row, vector in enumerate(vectors.tolist())
    ]


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


def write_parquet(path: Path, items: Sequence[Json], group: int = 10) -> Path:
    path.parent.mkdir(exist_ok=True)
    table = pa.table(
        {
            "id": [each["id"] for each in items],
            **{f"x{i}": [each["vector"][i] for each in items] for i in range(DIM)},
            "label": [each["payload"]["label"] for each in items],
        }
    )
    pq.write_table(table, path, row_group_size=group)
    return path


def bulk(
    settings: Settings, *paths: Path | str, name: str = "bulk", jobs: int = 1, **more: Json
) -> BulkLoaded:
    """Load files of vectors; ``more`` are choices of columns, and fields of a `BulkLoad`."""
    own = {key: more.pop(key) for key in [*more] if key in BulkLoad.__dataclass_fields__}
    dim = more.pop("dim", DIM)
    with ExitStack() as stack:
        files = [
            stack.enter_context(closing(each))
            for path in paths
            for each in input_files(str(path), None)
        ]
        first = source_of(files[0], Choices(**more))
        text = ix.TextParams() if first.is_text else None
        asked = {"config": ix.CollectionConfig(dim=dim, text=text), **PARTS, **own}
        load = BulkLoad(name=name, given=files, first=first, **asked)
        return bulk_load(load, settings, stack.enter_context(process_pool(jobs)))


def put(client: ClusterClient, name: str, items: Sequence[Json], **config: Json) -> None:
    assert client.put(f"/v1/collections/{name}", json=config or {"dim": DIM}).status_code == 201
    kind = {"Content-Type": "application/x-ndjson"}
    url = f"/v1/collections/{name}/load"
    assert client.post(url, content=ndjson(*items), headers=kind).status_code == 200


def everything(client: ClusterClient, name: str, queries: Sequence[Json]) -> Json:
    """Return all that a collection answers: items in their order, counts, hits, names."""
    url = f"/v1/collections/{name}"
    page = client.get(f"{url}/items?limit=1000&with_vector=true").json()
    assert page["next_cursor"] is None
    hits = [
        client.post(
            f"{url}/query",
            json={**query, "limit": 20, "recall": 1, "consistency": "strict", "with_payload": True},
        ).json()["hits"]
        for query in queries
    ]
    described = client.get(url).json()
    wanted = {"must": [{"key": "label", "match": {"value": 1}}]}
    return {
        "items": page["items"],
        "hits": hits,
        "config": {key: described[key] for key in ("dim", "transform", "backend", "items")},
        "count": client.post(f"{url}/count", json={"filter": wanted}).json()["count"],
        "names": client.get(f"{url}/names?limit=100").json()["names"],
    }


def names_of(client: ClusterClient) -> list[str]:
    return [each["name"] for each in client.get("/v1/collections").json()["collections"]]


@pytest.mark.parametrize("jobs", [1, 2])
def test_it_makes_what_a_load_through_a_router_makes(
    client: ClusterClient, settings: Settings, items: list[Json], tmp_path: Path, jobs: int
) -> None:
    folder = tmp_path / "corpus"
    write_parquet(folder / "a.parquet", items[:20], 7)
    write_parquet(folder / "b.parquet", items[20:], 9)
    found = bulk(settings, folder, jobs=jobs, vector=("x*",))
    assert (found.items, found.repeated, found.parts) == (45, ROWS - 45, 4)
    put(client, "routed", items)
    client.put("/v1/collections/routed/names", json={"names": [f"x{i}" for i in range(DIM)]})
    queries = [{"vector": each["vector"]} for each in items[:5]]
    assert everything(client, "bulk", queries) == everything(client, "routed", queries)
    # Later operations find it as any other.
    for name in ("bulk", "routed"):
        url = f"/v1/collections/{name}"
        new = client.put(f"{url}/items", json={"items": [items[0], {"vector": [1] * DIM}]}).json()
        assert (new["updated"], new["ids"]) == (1, {"first": "0", "last": "0"})
        assert client.delete(f"{url}/items/i1").status_code == 204
        copy = {"items": [{"id": "copy", "vector": items[9]["vector"]}]}
        how = {"mode": "unless_similar", "min_score": 1}
        kept = client.put(f"{url}/items", json=copy | how).json()
        assert [each["id"] for each in kept["similar"]] == ["copy"], kept
    assert everything(client, "bulk", queries) == everything(client, "routed", queries)


def test_rows_without_ids_have_the_numbers_that_a_load_gives_them(
    client: ClusterClient, settings: Settings, items: list[Json], tmp_path: Path
) -> None:
    vectors = np.array([each["vector"] for each in items], np.float32)
    np.save(tmp_path / "a.npy", vectors[:30])
    np.save(tmp_path / "b.npy", vectors[30:])
    bulk(settings, tmp_path / "a.npy", tmp_path / "b.npy")
    put(client, "routed", [{"vector": each["vector"]} for each in items])
    queries = [{"id": "3"}]
    assert everything(client, "bulk", queries) == everything(client, "routed", queries)
    for name in ("bulk", "routed"):
        more = client.put(f"/v1/collections/{name}/items", json={"items": [{"vector": [1] * DIM}]})
        assert more.json()["ids"]["first"] == str(ROWS)


def test_numbers_follow_the_highest_id_whatever_characters_others_have(
    client: ClusterClient, settings: Settings, items: list[Json], tmp_path: Path
) -> None:
    named = [{**item, "id": own} for item, own in zip(items, ("a\0b", "é", "7"), strict=False)]
    assert bulk(settings, write_parquet(tmp_path / "a.parquet", named), vector=("x*",)).items == 3
    more = client.put("/v1/collections/bulk/items", json={"items": [{"vector": [1] * DIM}]})
    assert more.json()["ids"]["first"] == "8"


def test_names_of_an_open_space_and_times_are_those_of_a_load(
    client: ClusterClient, settings: Settings, tmp_path: Path
) -> None:
    lines = [
        {
            "id": str(row),
            "vector": {"names": [f"n{row % 7}", f"m{row % 5}"], "values": [1, 2 + row % 3]},
            "expires": 1e9 if row % 2 else None,
            "payload": {"label": row % 3},
        }
        for row in range(30)
    ]
    (tmp_path / "a.ndjson").write_bytes(ndjson(*lines))
    bulk(settings, tmp_path / "a.ndjson", dim=None)
    put(client, "routed", lines, dim=None)
    found, wanted = (
        everything(client, name, [{"vector": lines[4]["vector"]}]) for name in ("bulk", "routed")
    )
    for each in (*found["items"], *wanted["items"]):
        assert (each.pop("expires", None) is None) == (int(each["id"]) % 2 == 0)
    assert found == wanted


def test_an_export_keeps_the_names_of_its_coordinates(
    client: ClusterClient, settings: Settings, items: list[Json], tmp_path: Path
) -> None:
    lines = [{COLLECTION: {"dim": DIM, "names": ["a", "b"]}}, *items]
    (tmp_path / "a.ndjson").write_bytes(ndjson(*lines))
    bulk(settings, tmp_path / "a.ndjson")
    found = client.get("/v1/collections/bulk/names").json()["names"]
    assert [each["name"] for each in found] == ["a", "b"]


def rejected_in(found: BulkLoaded) -> list[Json]:
    [path] = found.rejected_files
    return [json.loads(line) for line in Path(path).read_bytes().splitlines()]


def test_bad_rows_are_named_and_left_out_where_that_is_asked_for(
    client: ClusterClient, settings: Settings, items: list[Json], tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "a.parquet", items)
    table = pq.read_table(path).to_pydict()
    table["x2"][37] = float("inf")
    pq.write_table(pa.table(table), path, row_group_size=10)
    choice: Json = {"vector": ("x*",)}
    with pytest.raises(BadFile, match=r"a\.parquet: row 37: column 'x2': expected"):
        bulk(settings, path, **choice)
    assert names_of(client) == []
    found = bulk(settings, path, lenient=True, **choice)
    assert (found.items, found.rejected, found.parts_before) == (44, 1, 2)
    [(place, _, words)] = found.rejected_rows
    assert place == f"{path}: row 37"
    assert words.startswith("column 'x2': ")
    [line] = rejected_in(found)
    assert (line["row"], line["item"]["id"]) == (37, items[37]["id"])
    (tmp_path / "b.ndjson").write_bytes(ndjson(*items) + b'{"id": "x"}\n' + b"{]\n")
    with pytest.raises(BadFile, match=r"b\.ndjson: row 50"):
        bulk(settings, tmp_path / "b.ndjson", name="b")
    found = bulk(settings, tmp_path / "b.ndjson", name="b", lenient=True)
    assert (found.items, found.rejected) == (45, 2)
    assert [place for place, *_ in found.rejected_rows] == [
        f"{tmp_path / 'b.ndjson'}: row {row}" for row in (50, 51)
    ]
    assert [(each["row"], each["item"]) for each in rejected_in(found)] == [
        (50, {"id": "x"}), (51, "{]"),
    ]  # fmt: skip
    (tmp_path / "c.ndjson").write_bytes(ndjson(*items))
    with pytest.raises(BadFile, match=r"c\.ndjson: expected each file once"):
        bulk(settings, *[tmp_path / "c.ndjson"] * 2, name="c")
    (tmp_path / "c.ndjson.rejected.ndjson").mkdir()
    with pytest.raises(IsADirectoryError):  # before anything is stored
        bulk(settings, tmp_path / "c.ndjson", name="c", lenient=True)
    assert not bulk_drop("c", settings)


def test_what_was_begun_is_dropped_or_taken_up_by_the_same_call_alone(
    client: ClusterClient, settings: Settings, items: list[Json], tmp_path: Path
) -> None:
    rows = [*items[:40], {**items[40], "vector": [float("nan")] * DIM}, *items[41:]]
    path = write_parquet(tmp_path / "a.parquet", rows)
    choice: Json = {"vector": ("x*",)}
    with pytest.raises(BadFile, match="row 40"):
        bulk(settings, path, **choice)
    with pytest.raises(ix.CollectionExists, match="bulk drop bulk"):
        bulk(settings, path, expires="100", **choice)
    tables = "SELECT relname FROM pg_class WHERE starts_with(relname, 'items_') AND relkind = 'r'"
    database = client.app.state.service.catalog.database
    with database.connections.use() as connection:
        assert connection.column(tables) != []
    assert bulk_drop("bulk", settings)
    assert not bulk_drop("bulk", settings)
    with database.connections.use() as connection:
        assert connection.column(tables) == []
        for table in ("collections", "heads", "loads", "names", "expiries", "dropped"):
            assert connection.column(f"SELECT count(*) FROM {table}") == [0], table
    assert bulk(settings, path, lenient=True, **choice).parts_before == 0


def test_a_collection_is_replaced_in_one_step_and_only_where_that_is_asked_for(
    client: ClusterClient, settings: Settings, items: list[Json], tmp_path: Path
) -> None:
    put(client, "bulk", items[:3])
    path = write_parquet(tmp_path / "a.parquet", items[3:9])
    choice: Json = {"vector": ("x*",)}
    with pytest.raises(ix.CollectionExists, match="--replace"):
        bulk(settings, path, **choice)
    bulk(settings, path, replace=True, **choice)
    queries = [{"vector": items[0]["vector"]}]
    wait_until(lambda: client.get("/v1/collections/bulk").json().get("items") == 6)
    assert {hit["id"] for hit in everything(client, "bulk", queries)["hits"][0]} == {
        each["id"] for each in items[3:9]
    }


@pytest.mark.parametrize("replaces", [False, True])
def test_a_collection_that_is_made_while_it_is_loaded_is_replaced_where_that_is_asked_for(
    client: ClusterClient,
    settings: Settings,
    items: list[Json],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    replaces: bool,
) -> None:
    path = write_parquet(tmp_path / "a.parquet", items[3:9])
    append = Committer.append

    def make(*given: Json) -> ix.WriteResult:
        put(client, "bulk", items[:3])
        return append(*given)

    with monkeypatch.context() as patched:
        patched.setattr(Committer, "append", make)
        if replaces:
            bulk(settings, path, vector=("x*",), replace=True)
        else:
            with pytest.raises(ix.CollectionExists, match="replace is false"):
                bulk(settings, path, vector=("x*",))
    if not replaces:
        assert client.get("/v1/collections/bulk").json()["items"] == 3
        client.delete("/v1/collections/bulk")
        bulk(settings, path, vector=("x*",))
    wait_until(lambda: client.get("/v1/collections/bulk").json().get("items") == 6)


def test_the_same_load_says_that_it_was_done(
    client: ClusterClient, settings: Settings, items: list[Json], tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "a.parquet", items)
    choice: Json = {"vector": ("x*",)}
    found = bulk(settings, path, **choice)
    again = bulk(settings, path, **choice)
    assert (again.loaded_before, again.parts_before) == (True, found.parts)
    assert (again.items, again.repeated) == (found.items, found.repeated)
    [told] = client.get("/v1/collections/bulk/loads").json()["loads"]
    assert (told["state"], told["rows"]) == ("done", ROWS)
    assert bulk(settings, path, replace=True, **choice).loaded_before
    client.delete("/v1/collections/bulk/items/i1")
    assert bulk(settings, path, **choice).loaded_before
    found = bulk(settings, path, replace=True, **choice)
    assert (found.loaded_before, found.items) == (False, 45)


def test_there_are_no_more_collections_than_a_router_makes(
    client: ClusterClient, settings: Settings, items: list[Json], tmp_path: Path
) -> None:
    put(client, "routed", items[:3])
    path = write_parquet(tmp_path / "a.parquet", items[3:9])
    told = settings.model_copy(update={"max_collections": 1})
    with pytest.raises(Refused, match="expected at most 1 collections"):
        bulk(told, path, vector=("x*",))
    assert bulk(told, path, name="routed", replace=True, vector=("x*",)).items == 6


def test_weights_are_learned_as_those_of_a_collection_that_is_fitted(
    client: ClusterClient, settings: Settings, items: list[Json], tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "a.parquet", items)
    config = ix.CollectionConfig(dim=DIM, transform=ix.Transform(weights="standard"))
    bulk(settings, path, vector=("x*",), config=config)
    put(client, "routed", items, dim=DIM, transform={"weights": "standard"})
    client.put("/v1/collections/routed/names", json={"names": [f"x{i}" for i in range(DIM)]})
    assert client.post("/v1/collections/routed/transform/fit", json={}).status_code == 200
    queries = [{"vector": each["vector"]} for each in items[:5]]
    assert everything(client, "bulk", queries) == everything(client, "routed", queries)


def test_shards_begin_with_the_files_that_were_built_with_it(
    settings: Settings,
    database_url: str,
    items: list[Json],
    store: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is interrupted once one of two is built; the other one is built then."""
    store.system.create_dir(store.bucket)
    bases = store.address("bases")
    told = settings.model_copy(update={"base": bases, "shards": 2})
    path = store.put("in/a.parquet", write_parquet(tmp_path / "a.parquet", items).read_bytes())
    wrong = settings.model_copy(update={"base": "s3://none/bases"})
    with pytest.raises(StoreFailed, match="none"):  # before anything is stored
        bulk(wrong, path, vector=("x*",), base_rows=1)
    assert not bulk_drop("bulk", settings)
    write, written = Bases.write, list[bool]()

    def interrupted(*given: Json) -> bool:
        if len(written) == 1:
            written.append(False)
            raise KeyboardInterrupt
        written.append(write(*given))
        return written[-1]

    monkeypatch.setattr(Bases, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bulk(told, path, vector=("x*",), base_rows=1)
    with closing(Database.open(database_url, buckets=BUCKETS)) as database:
        assert database.collections() == []
    found = bulk(told, path, vector=("x*",), base_rows=1)
    assert (found.bases, found.parts_before, written) == (2, 4, [True, False, True])
    assert [*(settings.data_dir / "bulk").rglob("*.sqlite*")] == []
    with running(ClusterClient(database_url, tmp_path / "cluster", base=bases)) as client:
        put(client, "routed", items)
        client.put("/v1/collections/routed/names", json={"names": [f"x{i}" for i in range(DIM)]})
        queries = [{"vector": each["vector"]} for each in items[:5]]
        assert everything(client, "bulk", queries) == everything(client, "routed", queries)
        hosts = [each.host for replicas in client.shards.replicas for each in replicas]
        number = client.app.state.service.collection("bulk").number
        assert [
            each.base_reads for host in hosts for each in host.followers if each.number == number
        ] == [1, 1]
        client.put("/v1/collections/bulk/items", json={"items": [{**items[9], "id": "new"}]})
        new = client.post("/v1/collections/bulk/query", json={"id": "new", "limit": 1}).json()
        assert new["hits"][0]["id"] == "i9"


def test_a_file_that_changes_while_it_is_loaded_is_told(
    client: ClusterClient,
    settings: Settings,
    items: list[Json],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, append = write_parquet(tmp_path / "a.parquet", items), Committer.append

    def change(*given: Json) -> ix.WriteResult:
        os.utime(path)
        return append(*given)

    monkeypatch.setattr(Committer, "append", change)
    with pytest.raises(BadFile, match=r"a\.parquet: expected the same file until the end"):
        bulk(settings, path, vector=("x*",), part_rows=ROWS)
    assert names_of(client) == []
    with pytest.raises(ix.CollectionExists, match="bulk drop bulk"):
        bulk(settings, path, vector=("x*",))


def test_ctrl_c_ends_it_while_a_base_is_built(
    settings: Settings, items: list[Json], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Json) -> None:
        raise KeyboardInterrupt

    def written(*given: Json) -> None:
        write(*given)
        raise KeyboardInterrupt

    told = settings.model_copy(update={"base": str(tmp_path / "bases"), "shards": 2})
    path, write = write_parquet(tmp_path / "a.parquet", items), Bases.write
    for owner, name, stop in ((Database, "changes", interrupted), (Bases, "write", written)):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, stop)
            with pytest.raises(KeyboardInterrupt):
                bulk(told, path, vector=("x*",), base_rows=1)
    assert bulk(told, path, vector=("x*",), base_rows=1).bases == 2
    assert [*(settings.data_dir / "bulk").rglob("*.sqlite*")] == []


@pytest.mark.parametrize(("shards", "expected"), [(1, "2"), (BUCKETS + 1, f"1 to {BUCKETS}")])
def test_bases_are_not_built_for_another_number_of_shards(
    settings: Settings,
    database_url: str,
    items: list[Json],
    tmp_path: Path,
    shards: int,
    expected: str,
) -> None:
    with closing(Database.open(database_url, buckets=BUCKETS)) as database:
        database.announce(Replica("main", 0, 0, "10.0.0.1:1", {}, 1, 0.5, 0.0, 2))
    told = settings.model_copy(update={"base": str(tmp_path / "bases"), "shards": shards})
    path = write_parquet(tmp_path / "a.parquet", items)
    with pytest.raises(ClusterMismatch, match=f"expected {expected}"):
        bulk(told, path, vector=("x*",), base_rows=1)
    assert not bulk_drop("bulk", settings)


def test_a_full_disk_where_bases_are_built_is_named_and_the_same_call_goes_on(
    settings: Settings, items: list[Json], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = settings.model_copy(update={"base": str(tmp_path / "bases"), "shards": 2})
    path = write_parquet(tmp_path / "a.parquet", items)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(BadFile, match=f"{settings.data_dir}.*: no space left on the disk"):
        bulk(told, path, vector=("x*",), base_rows=1)
    monkeypatch.undo()
    lost = settings.data_dir / "bulk" / f"{next((tmp_path / 'bases').iterdir()).name}-c999"
    lost.mkdir()  # of a load whose end another node has done
    assert bulk(told, path, vector=("x*",), base_rows=1).bases == 2
    assert [*(settings.data_dir / "bulk").rglob("*-of-*")] == []
    assert not lost.exists()


KILLED = """
import os, signal, sys
from gcws_search.commands.app import main
import gcws_search.service.cluster.committer as committer
import gcws_search.service.cluster.database as database

method, count = sys.argv.pop(1), int(sys.argv.pop(1))
owner = committer.Committer if method == "append" else database.Database
ask = getattr(owner, method)

def killed(*given, **named):
    global count
    count -= 1
    if count < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return ask(*given, **named)

setattr(owner, method, killed)
main()
"""


@pytest.mark.parametrize(("method", "count"), [("append", 4), ("rename", 0)], ids=str)
def test_after_a_kill_nothing_is_seen_and_the_same_command_goes_on(
    client: ClusterClient,
    database_url: str,
    items: list[Json],
    tmp_path: Path,
    method: str,
    count: int,
) -> None:
    write_parquet(tmp_path / "in" / "a.parquet", items[:20])
    write_parquet(tmp_path / "in" / "b.parquet", items[20:])
    variables = {
        "GCWS_DATABASE_URL": database_url, "GCWS_CLUSTER_KEY": KEY, "GCWS_BUCKETS": str(BUCKETS),
        "GCWS_LOAD_CHUNK_ROWS": "7",
    }  # fmt: skip
    words = ["bulk", "load", str(tmp_path / "in"), "--into", "bulk", "--vector", "x*", "--json"]
    program = [sys.executable, "-c", KILLED, method, str(count), *words]
    assert (
        subprocess.run(program, env=os.environ | variables, check=False).returncode
        == -signal.SIGKILL
    )
    assert names_of(client) == []
    assert client.get("/v1/collections/bulk").status_code == 404
    assert all(not host.host.followers for shard in client.shards.replicas for host in shard)
    done = CliRunner(env=variables).invoke(app, words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["items"], found["repeated"]) == (45, ROWS - 45)
    put(client, "routed", items)
    client.put("/v1/collections/routed/names", json={"names": [f"x{i}" for i in range(DIM)]})
    queries = [{"vector": each["vector"]} for each in items[:3]]
    assert everything(client, "bulk", queries) == everything(client, "routed", queries)
