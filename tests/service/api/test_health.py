"""Starting, being ready, stopping, restarting, and what is counted."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.service import startup
from tests.support.service.bodies import npy
from tests.support.service.client import (
    URL,
    VECTOR,
    Client,
    Json,
    Serve,
    assert_problem,
    count,
    fill,
    metric,
    started,
)

pytestmark = pytest.mark.served(front="one", cluster="one")


def test_a_ready_service_says_so_and_what_it_is(client: Client) -> None:
    assert client.get("/livez").json() == {"status": "ok", "phase": "ready"}
    assert client.get("/healthz").json() == {"status": "ok", "phase": "ready"}
    assert client.get("/readyz").json()["phase"] == "ready"
    told = {"phase": "ready", "permits": "write", "keys": False}
    named = {"name": "gcws-search", "version": version("gcws-search")}
    assert client.get("/v1").json() == told | named
    assert_problem(client.get("/v1?verbose=1"), 422, "invalid_parameter", "verbose")


@pytest.mark.one_process
@pytest.mark.parametrize("cached", [False, True])
def test_only_the_first_start_on_a_machine_tells_of_compiling(
    cached: bool, data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def compile_all(progress: Json, **_: Json) -> float:
        progress(1, 2, "first")
        progress(2, 2, "second")
        return 0.0

    monkeypatch.setattr(startup, "kernels_are_cached", lambda: cached)
    monkeypatch.setattr(startup, "compile_kernels", compile_all)
    caplog.set_level("INFO")
    client = started(data_dir)
    assert client.app.state.service.startup.wait(60)
    client.stop()
    told = [line for line in caplog.messages if "compil" in line and "reading" not in line]
    assert len(told) == (0 if cached else 3)


@contextmanager
def starting(data_dir: Path, owner: Json, step: str, work: Json) -> Iterator[Client]:
    """Lend a client of a start whose step stands still after some work; then it is ready."""
    seen, go_on = threading.Event(), threading.Event()
    inner = getattr(owner, step)

    def stand_still(*given: Json, **more: Json) -> Json:
        work(*given, **more)
        seen.set()
        assert go_on.wait(60)
        return inner(*given, **more) if step == "load" else 0.0

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, step, stand_still)
        client = started(data_dir)
        assert seen.wait(60)
        yield client
        go_on.set()
        client.wait_until_ready()
        assert client.get("/readyz").status_code == 200
        assert client.get("/v1").json()["phase"] == "ready"


@pytest.mark.one_process
def test_while_kernels_compile_it_lives_and_is_not_ready(data_dir: Path) -> None:
    def work(progress: Json, **_: Json) -> None:
        progress(1, 3, "first")

    with starting(data_dir, startup, "compile_kernels", work) as client:
        assert client.get("/livez").status_code == 200
        ready = client.get("/readyz")
        assert ready.status_code == 503
        told = ready.json()
        left = told.pop("seconds_left")
        assert told == {"phase": "compiling", "loaded": 1, "total": 3}
        assert 0 <= left < 120, "two steps more at the pace of the first"
        assert_problem(client.get(URL), 503, "loading", f"'compiling', about {left:.0f} s more")
        assert client.get(URL).headers["retry-after"]
        assert client.get("/metrics").status_code == 200
        assert client.get("/v1").json()["phase"] == "compiling"
    client.stop()


@pytest.mark.one_process
def test_while_kernels_compile_items_of_a_form_can_be_stored_and_searched_exactly(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recalls: list[float] = []
    search = ix.StoredCollection.search

    def search_noting(
        self: ix.StoredCollection, rows: Json, params: ix.SearchParams, **more: Json
    ) -> Json:
        recalls.append(params.recall)
        return search(self, rows, params, **more)

    monkeypatch.setattr(ix.StoredCollection, "search", search_noting)
    monkeypatch.setattr(startup, "kernels_are_cached", lambda: False)
    asked = {"vector": [1, 0, 0, 1], "recall": 0.5}

    def work(_progress: Json, *, basics_ready: Json, **_: Json) -> None:
        basics_ready("dense")

    with starting(data_dir, startup, "compile_kernels", work) as client:
        assert client.get("/readyz").json()["phase"] == "compiling"
        fill(client)
        assert client.post(f"{URL}/query", json=asked).status_code == 200
        assert client.post(f"{URL}/query/batch", json={"queries": [asked]}).status_code == 200
        matrix = npy(np.ones((1, 4), np.float32))
        assert client.post(f"{URL}/query/batch?recall=0.5", content=matrix).status_code == 200
        assert recalls == [1.0] * 3
        sparse = client.put("/v1/collections/sparse", json={"dim": None})
        assert_problem(sparse, 503, "loading", "compiling")
        assert_problem(client.post(f"{URL}/pairs", json={"min_score": 0.9}), 503, "loading")
        assert_problem(client.post(f"{URL}/compare", json={}), 503, "loading")
    assert client.put("/v1/collections/sparse", json={"dim": None}).status_code == 201
    assert client.post(f"{URL}/pairs", json={"min_score": 0.9}).status_code == 200
    assert client.post(f"{URL}/query", json=asked).status_code == 200
    assert recalls[3:] == [0.5]
    client.stop()


@pytest.mark.one_process
def test_while_collections_load_it_says_how_far_it_is(data_dir: Path) -> None:
    def work(_self: ix.Catalog, progress: Json) -> None:
        progress("plants", 2, 4)

    with starting(data_dir, ix.Catalog, "load", work) as client:
        ready = client.get("/readyz")
        assert ready.status_code == 503
        told = ready.json()
        assert told.pop("seconds_left") >= 0
        assert told == {"phase": "loading", "loaded": 2, "total": 4}
    client.stop()


@pytest.mark.one_process
def test_a_stop_interrupts_the_start(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()
    steps: list[int] = []

    def compile_forever(progress: Json, **_: Json) -> float:
        while True:
            steps.append(len(steps))
            progress(0, 1, "again")
            begun.set()

    monkeypatch.setattr(startup, "compile_kernels", compile_forever)
    client = started(data_dir)
    assert begun.wait(60)
    client.stop()
    assert steps


@pytest.mark.one_process
def test_a_failed_start_stays_alive_and_unready(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_progress: Json, **_: Json) -> float:
        raise ZeroDivisionError

    monkeypatch.setattr(startup, "compile_kernels", fail)
    client = started(data_dir)
    assert not client.app.state.service.startup.wait(60)
    assert client.get("/livez").status_code == 200
    assert client.get("/readyz").json()["phase"] == "failed"
    assert_problem(client.get(URL), 503, "loading", "failed")
    client.stop()


@pytest.mark.one_process
def test_a_restart_gives_the_same_answers(serve: Serve) -> None:
    client = serve()
    fill(client)
    client.delete(f"{URL}/items/b")
    assert client.post(f"{URL}/backends", json={"kind": "rff"}).status_code == 201
    query = {"vector": VECTOR, "with_vector": True, "explain": True}

    def answers(client: Client) -> list[Json]:
        found = client.post(f"{URL}/query", json=query).json()
        found["explain"].pop("seconds")
        items = client.get(f"{URL}/items?with_vector=true").json()
        sketch = client.post(f"{URL}/sketch", json={"vectors": [[1, 2, 3, 4]]}).json()
        return [found, items, sketch, count(client)]

    before = answers(client)
    again = serve()
    assert answers(again) == before
    assert again.get("/readyz").json() == {"phase": "ready", "loaded": 6, "total": 6}


@pytest.mark.one_process
def test_a_damaged_file_does_not_stop_the_others(serve: Serve, data_dir: Path) -> None:
    client = serve()
    fill(client)
    fill(client, "stones")
    client.stop()
    for path in data_dir.glob("stones*"):
        path.write_bytes(b"rubbish" * 1000)
    client = serve()
    assert count(client) == 4
    answer = client.get("/v1/collections/stones")
    assert_problem(answer, 500, "damaged_file", "stones")


@pytest.mark.served(cluster="one")  # a front's HTTP itself refuses its method
def test_metrics_count_requests_searches_and_items(client: Client) -> None:
    client.post(f"{URL}/query", json={"id": "a"})
    client.post(f"{URL}/query", json={"id": "nobody"})
    client.request("BREW", "/nowhere")
    text = client.get("/metrics").text
    query = 'route="/v1/collections/{name}/query"'
    assert f'gcws_request_seconds_count{{method="POST",{query},status="200"}} 1.0' in text
    assert f'gcws_request_seconds_count{{method="POST",{query},status="404"}} 1.0' in text
    assert 'gcws_request_seconds_count{method="other",route="unmatched",status="404"} 1.0' in text
    assert "gcws_searches_total{" in text
    assert 'gcws_items{collection="plants"} 4.0' in text
    assert "gcws_ready 1.0" in text
    assert f'gcws_build_info{{version="{client.app.version}"}} 1.0' in text
    for standard in ("process_cpu_seconds_total", "process_open_fds", "python_info"):
        assert f"\n{standard}" in text
    assert client.get("/metrics").headers["content-type"].startswith("text/plain")


def test_metrics_tell_of_commits_recall_queues_and_bytes(client: Client) -> None:
    commits = 'gcws_commit_seconds_count{collection="plants"}'
    before = metric(client, commits)
    client.put(f"{URL}/items", json={"items": [{"id": "z", "vector": [1, 2, 3, 4]}]})
    assert metric(client, commits) == before + 1
    assert metric(client, 'gcws_commit_seconds_sum{collection="plants"}') > 0
    buckets = [
        metric(client, f'gcws_commit_seconds_bucket{{collection="plants",le="{bound}"}}')
        for bound in (*ix.COMMIT_BOUNDS, "+Inf")
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == before + 1
    for _ in range(3):
        client.post(f"{URL}/query", json={"id": "a", "recall": 1})
    client.post(f"{URL}/query/batch", json={"queries": [{"id": "a", "recall": 1}] * 2})
    assert metric(client, 'gcws_expected_recall_total{method="scan"}') == 5
    assert metric(client, 'gcws_searches_total{method="scan"}') == 5
    pools = ("searches", "writes", "loads", "joins", "builds", "bodies", "files", "analyses")
    for pool in pools:
        assert metric(client, f'gcws_queue{{pool="{pool}"}}') == 0
        assert metric(client, f'gcws_queue_limit{{pool="{pool}"}}') >= 1
    assert metric(client, 'gcws_queue_limit{pool="searches"}') == 256
    assert 0 < metric(client, "gcws_disk_used_ratio") <= 1
    assert metric(client, "gcws_memory_limit_bytes") > metric(client, "gcws_resident_bytes")
    assert metric(client, "gcws_requests_under_way") == 1
    assert metric(client, "gcws_held_bytes") == 0
    assert metric(client, "gcws_resident_bytes") > 1e6
    for name in ("gcws_disk_bytes", "gcws_memory_bytes", "gcws_items"):
        assert metric(client, f'{name}{{collection="plants"}}') > 0
    assert metric(client, "gcws_ready") == 1


@pytest.mark.one_process
def test_recall_asked_and_found_are_shown(serve: Serve) -> None:
    client = serve(audit_share=1.0)
    fill(client)
    shown = client.get(f"{URL}/recall").json()
    assert shown["audited"] == []
    assert {(each["limit"], each["share"]) for each in shown["allowance"]} >= {
        (1, 1.0),
        (None, 1.0),
    }
    asked = {"id": "a", "limit": 2, "recall": 0.8, "explain": True}
    assert "measured_recall" not in client.post(f"{URL}/query", json=asked).json()["explain"]
    client.finish_background_work("plants")
    shown = client.get(f"{URL}/recall").json()
    [audited] = shown["audited"]
    assert (audited["recall"], audited["limit"], audited["queries"]) == (0.8, 2, 1)
    assert (audited["found"], audited["high"], shown["waiting"]) == (1.0, 1.0, 0)
    labels = 'collection="plants",limit="2",recall="0.8"'
    assert metric(client, f"gcws_recall_measured{{{labels}}}") == 1
    assert metric(client, f"gcws_audited_queries{{{labels}}}") == 1
    assert metric(client, f"gcws_recall_asked{{{labels}}}") == 0.8
    assert metric(client, f"gcws_recall_upper{{{labels}}}") == 1
    explained = client.post(f"{URL}/query", json=asked).json()["explain"]
    assert explained["measured_recall"] == 1.0
    assert client.get("/v1/collections/nowhere/recall").status_code == 404
