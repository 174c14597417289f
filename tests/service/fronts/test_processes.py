"""A service of several processes, seen from outside: processes are killed, and it goes on."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.service.client import assert_problem
from tests.support.service.ports import free_port
from tests.support.service.programs import Program
from tests.support.waiting import wait_until

SECONDS = 240
URL = "/v1/collections/plants"


class Service(Program):
    """A parent, its owner and its fronts."""

    def __init__(self, folder: Path, workers: int = 2, **variables: str) -> None:
        words = ["serve", f"--workers={workers}", "--threads=1"]
        super().__init__("service", words, folder, variables)
        self.data_dir = folder / "service"
        self.port = int(self.address.rpartition(":")[2])

    @property
    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    @property
    def owner(self) -> psutil.Process:
        """The process that has the lock of the data directory open."""
        folder = f"{self.data_dir}/"
        files = ((each, file) for each in self.children for file in each.open_files())
        return next(each for each, file in files if file.path.startswith(folder))

    @property
    def fronts(self) -> set[int]:
        """The processes that listen at the port."""
        found = ((each.pid, one) for each in self.children for one in each.net_connections("tcp"))
        place = psutil.CONN_LISTEN, self.port
        return {pid for pid, one in found if (one.status, one.laddr and one.laddr[1]) == place}

    def client(self) -> httpx.Client:
        # Certificates, which plain HTTP needs not, take most of the time to make a client.
        return httpx.Client(base_url=self.url, timeout=60, verify=False)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something holds; no where a process or connection ends meanwhile."""

        def holds() -> bool:
            assert self.process.poll() is None, self.said()
            with suppress(httpx.TransportError, psutil.Error, StopIteration):
                return is_so()
            return False

        wait_until(holds, self.said, seconds=SECONDS)


@contextmanager
def running(folder: Path, workers: int = 2) -> Iterator[Service]:
    service = Service(folder, workers)
    try:
        yield service
    finally:
        service.end()
        assert service.process.returncode == 0, service.said()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("service")) as found:
        found.wait_until_ready()
        with found.client() as client:
            assert client.put(URL, json={"dim": 4}).status_code == 201
        found.wait_until(lambda: len(found.fronts) == 2)
        yield found


def item(number: int) -> dict[str, Any]:
    return {"id": str(number), "vector": [1, number % 7, 2, -1]}


class Writing:
    """Writes items one after another while the service is treated badly.

    As long as none is taken it tries less often: the processors are for those that start.
    """

    def __init__(self, service: Service, first: int) -> None:
        self.acknowledged: list[int] = []
        self.problems: list[httpx.Response] = []
        self._first = first
        self._service = service
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number, pause = self._first, 0.0
        while not self._stopping.wait(pause):
            number, pause = number + 1, 0.1
            try:
                with self._service.client() as client:
                    answer = client.put(f"{URL}/items", json={"items": [item(number)]})
            except httpx.TransportError:  # the front was killed with the connection
                continue
            if answer.status_code == 200:
                self.acknowledged.append(number)
                pause = 0.005
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
    assert acknowledged
    with service.client() as client:
        for number in acknowledged:
            assert client.get(f"{URL}/items/{number}").status_code == 200, number


def test_a_front_that_ends_is_started_again_and_takes_no_data_with_it(service: Service) -> None:
    before = service.fronts
    assert len(before) == 2
    owner = service.owner.pid
    with Writing(service, 10_000) as writing:
        writing.wait_for_more()
        for pid, number in zip(before, (signal.SIGKILL, signal.SIGINT), strict=True):
            os.kill(pid, number)
        service.wait_until(lambda: len(service.fronts - before) == 2)
        writing.wait_for_more()
    assert service.owner.pid == owner
    require_all(service, writing.acknowledged)


def test_a_killed_owner_is_started_again_with_all_that_was_acknowledged(service: Service) -> None:
    before = service.owner.pid
    fronts = service.fronts
    with Writing(service, 20_000) as writing:
        writing.wait_for_more()
        os.kill(before, signal.SIGKILL)
        service.wait_until(lambda: len(writing.problems) > 3)
        with service.client() as client:
            assert client.get("/livez").status_code == 200
        service.wait_until(lambda: service.owner.pid != before)
        service.wait_until_ready()
        writing.wait_for_more()
    assert service.fronts == fronts
    first = writing.problems[0]
    assert_problem(first, 503, "owner_unavailable", "starts again")
    assert first.headers["retry-after"] == "1"
    codes = {each.json()["code"] for each in writing.problems}
    assert codes <= {"owner_unavailable", "loading"}
    require_all(service, writing.acknowledged)


def test_the_metrics_are_of_all_processes(service: Service) -> None:
    def queries() -> float:
        name = 'gcws_request_seconds_count{method="POST",route="/v1/collections/{name}/query"'
        return sum(n for line, n in service.metrics().items() if line.startswith(name))

    with service.client() as client:
        assert client.put(f"{URL}/items", json={"items": [item(1)]}).status_code == 200
    before = queries()
    for _ in range(8):
        with service.client() as client:  # by a connection each, so that both fronts have some
            answer = client.post(f"{URL}/query", json={"vector": [1, 1, 2, -1]})
            assert answer.status_code == 200
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
    children = service.children
    with Writing(service, 30_000) as writing:
        writing.wait_for_more()
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(SECONDS) == 0
    _, alive = psutil.wait_procs(children, SECONDS)
    assert not alive
    assert not [each for each in writing.problems if each.json()["code"] != "stopping"]
    with running(service.data_dir.parent, 1) as again:
        again.wait_until_ready()
        require_all(again, writing.acknowledged)


def test_children_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    sockets = tempfile.mkdtemp()  # short: the names of sockets are
    service = Service(tmp_path, TMPDIR=sockets)
    service.wait_until_ready()
    children = service.children
    assert len(children) >= 3
    service.kill()
    _, alive = psutil.wait_procs(children, SECONDS)
    assert not alive
    os.rmdir(sockets)  # nothing is left in it
