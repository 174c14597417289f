"""A service of several processes, seen from outside: processes are killed, and it goes on."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.paths import REPOSITORY
from tests.support.service.client import assert_problem
from tests.support.service.ports import free_port

SECONDS = 240
URL = "/v1/collections/plants"


@dataclass
class Service:
    """A parent, its owner and its fronts."""

    process: subprocess.Popen[bytes]
    port: int
    data_dir: Path
    log: Path

    @property
    def parent(self) -> psutil.Process:
        return psutil.Process(self.process.pid)

    @property
    def owner(self) -> psutil.Process:
        """The process that has the lock of the data directory open."""
        return next(each for each in self._children() if self._has_data(each))

    @property
    def fronts(self) -> list[psutil.Process]:
        """The processes that listen at the port."""
        return [
            each
            for each in self._children()
            if any(found.laddr and found.laddr[1] == self.port for found in connections(each))
        ]

    def _children(self) -> list[psutil.Process]:
        return self.parent.children()

    def _has_data(self, process: psutil.Process) -> bool:
        return any(file.path.startswith(str(self.data_dir)) for file in process.open_files())

    def client(self) -> httpx.Client:
        # Certificates, which plain HTTP needs not, take most of the time to make a client.
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60, verify=False)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something holds; fail when it takes far too long, or the service ends."""
        limit = time.monotonic() + SECONDS
        while not holds(is_so):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < limit, self.log.read_text()
            time.sleep(0.1)  # to look at processes takes a while itself

    def is_ready(self) -> bool:
        with self.client() as client:
            return client.get("/readyz").status_code == HTTPStatus.OK


def connections(process: psutil.Process) -> list[Any]:
    return [each for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]


def holds(is_so: Callable[[], bool]) -> bool:
    """Return whether something holds; no where a process or connection ends meanwhile."""
    try:
        return is_so()
    except (httpx.TransportError, psutil.Error, StopIteration):
        return False


@contextmanager
def running(folder: Path, **settings: str) -> Iterator[Service]:
    port, data_dir, log = free_port(), folder / "data", folder / "log"
    variables = {
        "GCWS_DATA_DIR": str(data_dir),
        "GCWS_PORT": str(port),
        "GCWS_WORKERS": "2",
        "GCWS_THREADS": "1",
        **settings,
    }
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "gcws_search.service", "serve"],
            env=os.environ | variables,
            cwd=REPOSITORY,
            stderr=errors,
        )
    service = Service(process, port, data_dir, log)
    try:
        yield service
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0, log.read_text()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service with an empty collection."""
    with running(tmp_path_factory.mktemp("service")) as found:
        found.wait_until(found.is_ready)
        with found.client() as client:
            assert client.put(URL, json={"dim": 4}).status_code == 201
        found.wait_until(lambda: len(found.fronts) == 2)
        yield found


def item(number: int) -> dict[str, Any]:
    return {"id": str(number), "vector": [1, number % 7, 2, -1]}


class Writing:
    """Writes items one after another while the service is treated badly."""

    def __init__(self, service: Service, first: int) -> None:
        self.acknowledged: list[int] = []
        self.problems: list[httpx.Response] = []
        self._first = first
        self._service = service
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = self._first
        while not self._stopping.wait(0.005):
            number += 1
            try:
                with self._service.client() as client:
                    answer = client.put(f"{URL}/items", json={"items": [item(number)]})
            except httpx.TransportError:  # the front was killed with the connection
                continue
            if answer.status_code == HTTPStatus.OK:
                self.acknowledged.append(number)
            else:
                self.problems.append(answer)

    def __enter__(self) -> "Writing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_for_more(self) -> None:
        count = len(self.acknowledged)
        self._service.wait_until(lambda: len(self.acknowledged) > count + 5)


def require_all(service: Service, acknowledged: list[int]) -> None:
    """Check that every acknowledged item is there."""
    assert acknowledged
    with service.client() as client:
        for number in acknowledged:
            assert client.get(f"{URL}/items/{number}").status_code == HTTPStatus.OK, number


def test_a_killed_front_is_started_again_and_takes_no_data_with_it(service: Service) -> None:
    before = {each.pid for each in service.fronts}
    assert len(before) == 2
    owner = service.owner.pid
    with Writing(service, 10_000) as writing:
        writing.wait_for_more()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        service.wait_until(lambda: len({each.pid for each in service.fronts} - before) == 2)
        writing.wait_for_more()
    assert service.owner.pid == owner
    require_all(service, writing.acknowledged)


def test_a_killed_owner_is_started_again_with_all_that_was_acknowledged(service: Service) -> None:
    before = service.owner.pid
    fronts = {each.pid for each in service.fronts}
    with Writing(service, 20_000) as writing:
        writing.wait_for_more()
        os.kill(before, signal.SIGKILL)
        service.wait_until(lambda: len(writing.problems) > 3)
        with service.client() as client:
            assert client.get("/livez").status_code == HTTPStatus.OK
        service.wait_until(lambda: service.owner.pid != before)
        service.wait_until(service.is_ready)
        writing.wait_for_more()
    assert {each.pid for each in service.fronts} == fronts
    first = writing.problems[0]
    assert_problem(first, 503, "owner_unavailable", "starts again")
    assert first.headers["retry-after"] == "1"
    codes = {each.json()["code"] for each in writing.problems}
    assert codes <= {"owner_unavailable", "loading"}
    require_all(service, writing.acknowledged)


def test_the_metrics_are_of_all_processes(service: Service) -> None:
    def queries() -> float:
        with service.client() as client:
            lines = client.get("/metrics").text.splitlines()
        name = 'gcws_request_seconds_count{method="POST",route="/v1/collections/{name}/query"'
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    with service.client() as client:
        assert client.put(f"{URL}/items", json={"items": [item(1)]}).status_code == HTTPStatus.OK
    before = queries()
    for _ in range(8):
        with service.client() as client:  # by a connection each, so that both fronts have some
            answer = client.post(f"{URL}/query", json={"vector": [1, 1, 2, -1]})
            assert answer.status_code == HTTPStatus.OK
            assert client.post(f"{URL}/query", json={"limit": 2}).status_code == 422
    service.wait_until(lambda: queries() == before + 16)


def test_a_second_service_says_why_it_does_not_start(service: Service, tmp_path: Path) -> None:
    for folder, port, told in (
        (service.data_dir, free_port(), b"is in use by"),
        (tmp_path / "other", service.port, b"cannot listen"),
    ):
        variables = {"GCWS_DATA_DIR": str(folder), "GCWS_PORT": str(port)}
        command = [sys.executable, "-m", "gcws_search.service", "serve", "--workers", "2"]
        done = subprocess.run(
            command, env=os.environ | variables, cwd=tmp_path, capture_output=True, check=False
        )
        assert done.returncode == 1
        assert told in done.stderr, done.stderr


def test_a_stop_under_load_answers_what_is_under_way_and_loses_nothing(service: Service) -> None:
    children = service.parent.children()
    with Writing(service, 30_000) as writing:
        writing.wait_for_more()
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(SECONDS) == 0
    _, alive = psutil.wait_procs(children, SECONDS)
    assert not alive
    assert not [each for each in writing.problems if each.json()["code"] != "stopping"]
    with running(service.data_dir.parent, GCWS_WORKERS="1") as again:
        again.wait_until(again.is_ready)
        require_all(again, writing.acknowledged)


def test_children_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    variables = {
        "GCWS_DATA_DIR": str(tmp_path / "data"),
        "GCWS_PORT": str(free_port()),
        "TMPDIR": tempfile.mkdtemp(),  # short: the names of sockets are
    }
    command = [sys.executable, "-m", "gcws_search.service", "serve", "--workers", "2"]
    parent = subprocess.Popen(command, env=os.environ | variables, cwd=REPOSITORY)
    limit = time.monotonic() + SECONDS
    port = int(variables["GCWS_PORT"])
    while not holds(lambda: Service(parent, port, tmp_path / "data", tmp_path).is_ready()):
        assert time.monotonic() < limit
        time.sleep(0.05)
    children = psutil.Process(parent.pid).children()
    assert len(children) >= 3
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(children, SECONDS)
    assert not alive
    os.rmdir(variables["TMPDIR"])  # nothing is left in it
