"""TLS within a cluster: certificates of an authority of its own, or nothing is said."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.server import ShardServer
from gcws_search.service.cluster.shards import TLS_NAME
from gcws_search.service.errors import StoreUnavailable
from gcws_search.service.keys import shard_authority, shard_certificate
from gcws_search.service.settings import Settings
from tests.support.documents.markdown import blocks
from tests.support.paths import REPOSITORY
from tests.support.service.client import assert_problem, fill
from tests.support.service.http_shards import router
from tests.support.service.ports import HOST
from tests.support.service.postgres import postgres
from tests.support.service.shards import BUCKETS, KEY, SECONDS
from tests.support.waiting import wait_until

QUERY = {"id": "a", "recall": 1}


class Authority:
    """What the page's commands make: an authority, and a certificate for one name."""

    def __init__(self, folder: Path, name: str = f"DNS:{TLS_NAME}") -> None:
        folder.mkdir()
        page = (REPOSITORY / "docs" / "cluster.md").read_text()
        [script] = [text for _, text in blocks(page) if "openssl req" in text]
        script = script.replace(f"DNS:{TLS_NAME}", name)
        subprocess.run(["sh", "-ec", script], cwd=folder, check=True, capture_output=True)
        self.ca_file = folder / "ca.crt"
        self.pair = folder / "tls.crt", folder / "tls.key"

    @property
    def settings(self) -> dict[str, Any]:
        """Those of a shard, and of all routers."""
        return {
            "tls_ca_file": self.ca_file,
            "tls_certificate_file": self.pair[0],
            "tls_key_file": self.pair[1],
        }


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@contextmanager
def shard(url: str, folder: Path, authority: Authority) -> Iterator[ShardServer]:
    more: dict[str, Any] = {"database_url": SecretStr(url), "cluster_key": SecretStr(KEY)}
    more |= {"buckets": BUCKETS, "threads": 1, "read_only_api_key": "reader", "port": 0}
    server = ShardServer(Settings(data_dir=folder, **more, **authority.settings), 0, 0)
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(server.run)
        try:
            wait_until(lambda: server.host.is_listed or running.done())
            yield server
        finally:
            server.stop()
        running.result()


def test_routers_ask_shards_by_tls_and_trust_their_own_authority_alone(
    database_url: str, tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    other = Authority(tmp_path / "other")
    with shard(database_url, tmp_path / "shard", authority) as server:
        with router(database_url, tmp_path / "router", 1, 1, **authority.settings) as client:
            fill(client)
            hits = client.post("/v1/collections/plants/query", json=QUERY).json()["hits"]
            assert len(hits) == 3
            assert client.get("/metrics/targets").json() == [
                {
                    "targets": [server.address],
                    "labels": {"__scheme__": "https", "shard": "0", "replica": "0"},
                }
            ]
        folder = tmp_path / "mistaken"
        with router(database_url, folder, 1, None, tls_ca_file=other.ca_file) as client:
            answer = client.get("/v1/collections/plants")
            assert_problem(answer, 503, "store_unavailable")
            assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
        ask_for_metrics(server.address, authority)


def ask_for_metrics(address: str, authority: Authority) -> None:
    """Fail unless a shard tells its metrics to those who have a key, by TLS."""
    context = ssl.create_default_context(cafile=authority.ca_file)
    with httpx.Client(base_url=f"https://{address}", verify=context, timeout=SECONDS) as client:
        sni = {"sni_hostname": TLS_NAME}
        statuses = {
            key: client.get(
                "/metrics", headers={"Authorization": f"Bearer {key}"}, extensions=sni
            ).status_code
            for key in ("reader", KEY, "readers")
        }
        assert statuses == {"reader": 200, KEY: 200, "readers": 401}
        assert client.get("/metrics", extensions=sni).status_code == 401
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"http://{address}/livez")


def test_a_shard_with_a_name_of_another_is_not_trusted(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    named = Authority(tmp_path / "named", "DNS:another")
    with (
        shard(database_url, tmp_path / "shard", named),
        router(database_url, tmp_path / "router", 1, None, tls_ca_file=named.ca_file) as client,
    ):
        assert_problem(client.get("/v1/collections/plants"), 503, "store_unavailable")
        assert "Hostname mismatch" in caplog.text


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        (["tls_ca_file"], "expected GCWS_TLS_CA_FILE"),
        (["tls_key_file"], "expected GCWS_TLS_CERTIFICATE_FILE and GCWS_TLS_KEY_FILE"),
        ([], "expected a certificate in"),
    ],
)
def test_half_of_the_settings_is_refused(
    tmp_path: Path, authority: Authority, left_out: list[str], said: str
) -> None:
    given = authority.settings | {"tls_key_file": Authority(tmp_path / "other").pair[1]}
    given |= dict.fromkeys(left_out)
    with pytest.raises(ValueError, match=said):
        shard_certificate(Settings(**given))
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(ValueError, match="GCWS_TLS_CA_FILE: expected certificates"):
        shard_authority(Settings(tls_ca_file=empty))


@contextmanager
def tls_before(port: int, authority: Authority) -> Iterator[int]:
    """Lend a port that speaks PostgreSQL's TLS, and hands on to a server that has none."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.pair)
    threads = list[threading.Thread]()

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def serve(plain: socket.socket) -> None:
        with plain, suppress(OSError):
            assert plain.recv(8) == bytes.fromhex("0000000804d2162f")  # SSLRequest
            plain.sendall(b"S")
            with (
                context.wrap_socket(plain, server_side=True) as secure,
                socket.create_connection((HOST, port)) as server,
            ):
                back = threading.Thread(target=copy, args=(server, secure))
                back.start()
                copy(secure, server)
                back.join()

    def accept() -> None:
        with suppress(OSError):
            while True:
                threads.append(threading.Thread(target=serve, args=(bound.accept()[0],)))
                threads[-1].start()

    with socket.create_server((HOST, 0)) as bound:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield bound.getsockname()[1]
        finally:
            bound.shutdown(socket.SHUT_RDWR)
            for each in (accepting, *threads):
                each.join()


def test_the_database_is_asked_by_tls_as_its_url_says(database_url: str, tmp_path: Path) -> None:
    name = database_url.rpartition("/")[2]
    authority = Authority(tmp_path / "authority", f"IP:{HOST}")
    other = Authority(tmp_path / "other", f"IP:{HOST}")
    with tls_before(postgres().port, authority) as port:

        def url(trusted: Authority, host: str = HOST) -> str:
            query = f"sslmode=verify-full&sslrootcert={trusted.ca_file}"
            return f"postgresql://gcws@{host}:{port}/{name}?{query}"

        with closing(Database.open(url(authority), buckets=BUCKETS)) as database:
            assert [*database.collections()] == []
        for wrong in (url(other), url(authority, "localhost")):
            with pytest.raises(StoreUnavailable, match="certificate"):
                Database.open(wrong, buckets=BUCKETS)
