"""A shard behind HTTP, in this process and as one of its own."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from gcws_search.commands.app import app
from gcws_search.service.cluster.contract import PLACE, bucket_of, buckets_of
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.host import ShardHost
from gcws_search.service.cluster.server import MAX_BODY_BYTES, ShardService
from gcws_search.service.messages import Message, decode, encode
from tests.support.service.http_shards import HttpShard
from tests.support.service.programs import Program
from tests.support.service.shards import KEY, SECONDS, Written
from tests.support.waiting import wait_until

HEADERS = {"Authorization": f"Bearer {KEY}"}
URL = "/v1/messages"


@pytest.fixture
def client(database: Database, tmp_path: Path) -> Iterator[httpx.Client]:
    shard = HttpShard(database, tmp_path, 0, 1, 0)
    shard.start()
    try:
        with httpx.Client(base_url=f"http://{shard.address}", timeout=SECONDS) as client:
            yield client
    finally:
        shard.stop()


def count_message(written: Written, **more: object) -> bytes:
    head = {"method": "count", "collection": written.number, "at": written.head}
    return encode(Message({**head, "seconds": SECONDS, **more}))


def test_a_message_is_answered_once_the_shard_is_as_far(
    client: httpx.Client, written: Written
) -> None:
    written.put_some(["a", "b", "c"])
    answer = client.post(URL, content=count_message(written), headers=HEADERS)
    assert answer.status_code == 200
    assert decode(answer.content).head["count"] == 3


def test_a_short_message_does_not_wait_for_long_ones(database: Database, tmp_path: Path) -> None:
    shard = HttpShard(database, tmp_path, 0, 1, 0)
    shard.start()
    written, released = Written(database), threading.Event()
    try:
        written.put_some(["a"])
        for _ in range(64):  # more than there are cores
            shard.service.batches.submit(released.wait)
        url = f"http://{shard.address}{URL}"
        answer = httpx.post(url, content=count_message(written), headers=HEADERS, timeout=SECONDS)
        assert decode(answer.content).head["count"] == 1
    finally:
        released.set()
        shard.stop()
        written.close()


def test_a_shard_that_is_not_as_far_says_so_in_time(client: httpx.Client, written: Written) -> None:
    written.put_some(["a"])
    start = time.monotonic()
    ahead = count_message(written, at=written.head + 1, seconds=0.2)
    answer = decode(client.post(URL, content=ahead, headers=HEADERS).content)
    assert (answer.head["error"], answer.head["key"]) == ("Behind", written.head + 1)
    assert time.monotonic() - start >= 0.2


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": KEY}, {"Authorization": f"Bearer {KEY}!"}]
)
def test_another_key_is_refused(
    client: httpx.Client, written: Written, headers: dict[str, str]
) -> None:
    answer = client.post(URL, content=count_message(written), headers=headers)
    assert answer.status_code == 401


def test_a_message_for_another_shard_is_refused(client: httpx.Client, written: Written) -> None:
    """A router may ask at an address that another shard has taken since."""
    content = count_message(written)
    statuses = {
        place: client.post(URL, content=content, headers=HEADERS | {PLACE: place}).status_code
        for place in ("0/1", "0/2", "1/1")
    }
    assert statuses == {"0/1": 200, "0/2": 421, "1/1": 421}


def test_no_key_is_refused_at_the_start(database: Database, tmp_path: Path) -> None:
    with (
        closing(ShardHost(database, tmp_path, 0, 1, threads=1)) as host,
        pytest.raises(ValueError, match="without a key"),
    ):
        ShardService(host, "")


def test_too_long_a_message_is_refused(client: httpx.Client) -> None:
    pieces = (bytes(1 << 24) for _ in range(MAX_BODY_BYTES // (1 << 24) + 1))
    answer = client.post(URL, content=pieces, headers=HEADERS)
    assert answer.status_code == 413


@pytest.mark.parametrize("nonsense", [b"", b"nonsense", bytes(100), encode(Message({}))])
def test_nonsense_is_answered_as_such(client: httpx.Client, nonsense: bytes) -> None:
    answer = client.post(URL, content=nonsense, headers=HEADERS)
    assert decode(answer.content).head["error"] == "Malformed"


def test_health_needs_no_key_and_metrics_that_of_the_cluster(
    client: httpx.Client, written: Written
) -> None:
    written.put_some(["a"])
    assert client.get("/livez").json() == {"status": "live"}
    client.post(URL, content=count_message(written), headers=HEADERS)
    wait_until(lambda: client.get("/readyz").status_code == 200)
    assert client.get("/readyz").json() == {"status": "ready", "database": "reachable"}
    assert client.get("/metrics").status_code == 401
    text = client.get("/metrics", headers=HEADERS).text
    assert f'gcws_shard_seconds_behind{{collection="{written.number}"}} 0.0' in text
    assert 'gcws_shard_messages_total{method="count"} 1.0' in text
    assert f'gcws_shard_changes_behind{{collection="{written.number}"}} 0.0' in text
    assert "gcws_shard_fills_total 0.0" in text


def test_changes_that_came_since_the_last_poll_are_not_behind(
    database: Database, written: Written, tmp_path: Path
) -> None:
    shard = HttpShard(database, tmp_path, 0, 1, 0, poll_seconds=600.0)
    shard.start()
    try:
        with httpx.Client(base_url=f"http://{shard.address}", timeout=SECONDS) as client:
            for item_id in "abc":
                written.put_some([item_id])
                answer = client.post(URL, content=count_message(written), headers=HEADERS)
                assert "count" in decode(answer.content).head
            text = client.get("/metrics", headers=HEADERS).text
    finally:
        shard.stop()
    assert f'gcws_shard_changes_behind{{collection="{written.number}"}} 0.0' in text


def variables(url: str) -> dict[str, str]:
    found = {"GCWS_DATABASE_URL": url, "GCWS_CLUSTER_KEY": KEY, "GCWS_BUCKETS": "4"}
    return found | {"GCWS_THREADS": "1"}


def test_a_process_announces_itself_and_answers(
    database_url: str, database: Database, written: Written, tmp_path: Path
) -> None:
    names = [f"i{number}" for number in range(20)]
    written.put_some(names)
    words = ["shard", "--shard=1", "--replica=2", "--shards=2"]
    program = Program("files", words, tmp_path, variables(database_url))
    try:
        program.wait_until_ready()
        found = wait_until(lambda: [each for each in database.replicas("main") if each.positions])
        assert [each[:4] for each in found] == [("main", 1, 2, program.address)]
        content = count_message(written)
        answer = httpx.post(program.url + URL, content=content, headers=HEADERS, timeout=SECONDS)
        mine = {*buckets_of(1, 2, 4)}
        expected = sum(bucket_of(name, 4) in mine for name in names)
        assert decode(answer.content).head["count"] == expected
        program.end()
        assert program.process.returncode == 0
    finally:
        program.kill()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shard", "2", "--shards", "2"], "shard: expected 0 to 1, got 2"),
        (["--shard", "0", "--shards", "5"], "shards: expected 1 to 4, the buckets, got 5"),
        (["--shard", "0", "--buckets", "8"], "bucket"),
        (["--shard", "0", "--cluster-key", " "], "GCWS_CLUSTER_KEY"),
        (["--shard", "0", "--cluster-key", 31 * "k"], "expected at least 32 characters, got 31"),
        (["--shard", "0", "--database-url", "postgresql://127.0.0.1:1/none"], "database"),
    ],
)
@pytest.mark.usefixtures("database", "root_log")  # the database has the tables
def test_a_wrong_start_is_refused(
    database_url: str, tmp_path: Path, words: list[str], said: str
) -> None:
    command = ["shard", "--data-dir", str(tmp_path / "files"), "--port", "0", *words]
    shown = CliRunner(env=variables(database_url)).invoke(app, command)
    assert shown.exit_code == 1
    assert said in shown.output


@pytest.mark.parametrize("method", ["pair_rows", "compare"])
def test_work_of_minutes_ends_once_nobody_waits_for_it(
    client: httpx.Client, written: Written, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    begun, stopped = threading.Event(), threading.Event()

    def join(_host: ShardHost, _asked: Message, stop: threading.Event) -> bytes:
        begun.set()
        if stop.wait(SECONDS):
            stopped.set()
        return encode(Message({}))

    monkeypatch.setattr(ShardHost, "answer_message", join)
    with closing(HTTPConnection(client.base_url.netloc.decode())) as leaving:
        leaving.request("POST", URL, count_message(written, method=method), HEADERS)
        assert begun.wait(SECONDS)
    assert stopped.wait(SECONDS)
