"""The command line, and the process it starts."""

import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import typer
from pydantic import SecretStr
from typer.testing import CliRunner

from gcws_search.service.cli import cli
from gcws_search.service.server import require_address
from gcws_search.service.settings import Settings, settings_from, unread
from tests.support.paths import REPOSITORY
from tests.support.processes import run_python
from tests.support.service.client import ITEMS, START_SECONDS
from tests.support.service.ports import free_port
from tests.support.service.programs import Program


def test_help_fits_80_columns_cuts_no_name_and_shows_defaults() -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(cli, ["serve", "--help"]).output
    assert max(map(len, shown.splitlines())) <= 80
    words = " ".join(shown.replace("│", " ").split())
    for name, field in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')} " in words
        assert f"GCWS_{name.upper()}]" in words
        default = str(field.default).lower() if field.annotation is bool else field.default
        assert default is None or f"[default: {default}]" in words, name


def test_flags_go_before_variables_and_variables_before_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("GCWS_PORT", "1234"), ("GCWS_MAX_LIMIT", "7"), ("GCWS_API_KEY", "")):
        monkeypatch.setenv(name, value)
    settings = settings_from({"port": "4321", "host": None})
    assert (settings.port, settings.max_limit, settings.host) == (4321, 7, "127.0.0.1")
    assert settings.api_key is None
    assert "hidden-key" not in repr(Settings(api_key=SecretStr("hidden-key")))
    for flags in ({"port": "x"}, {"durability": "none"}, {"max_limit": "0"}):
        with pytest.raises(typer.BadParameter, match=next(iter(flags)).replace("_", "-")):
            settings_from(flags)


@pytest.mark.parametrize("text", ["8000.0", "8e3", "8_000", "+8000", "0x10", "true", "٣", "inf"])
def test_an_integer_is_refused_unless_it_is_written_as_one(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    for name in ("port", "threads", "max_line_bytes", "max_load_bytes"):
        refused = f"--{name.replace('_', '-')}: expected an integer, got '{re.escape(text)}'"
        with pytest.raises(typer.BadParameter, match=refused):
            settings_from({name: text})
        with monkeypatch.context() as patch:
            patch.setenv(f"GCWS_{name.upper()}", text)
            with pytest.raises(typer.BadParameter, match=refused):
                settings_from({})


def test_numbers_may_have_spaces_around_them_and_seconds_are_finite() -> None:
    assert settings_from({"port": " 8001\n"}).port == 8001
    assert settings_from({"body_seconds": "5e-1"}).body_seconds == 0.5
    for text in ("1_0", "nan", "inf", "1e400", "true"):
        with pytest.raises(typer.BadParameter):
            settings_from({"body_seconds": text})


def test_a_variable_that_nothing_reads_is_told() -> None:
    settings = [f"GCWS_{name.upper()}" for name in Settings.model_fields]
    read = [*settings, "PATH", "gcws_port", "GCWS_URL", "GCWS_CHROMIUM"]
    nearest = {"GCWS_API_KYE": "GCWS_API_KEY", "gcws_prot": "GCWS_PORT", "GCWS_QQQQQQQQQQQQ": ""}
    for name, setting in nearest.items():
        told = f"; the nearest setting is {setting}" if setting else ""
        assert unread([name, *read]) == [f"nothing reads the variable {name}{told}"]


@pytest.mark.usefixtures("root_log")
def test_what_cannot_be_served_is_told_before_the_folder_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        for words, told in (
            (["--port", port], f"cannot listen on 127.0.0.1, port {port}"),
            (["--host", "0.0.0.0"], "GCWS_API_KEY"),
        ):
            command = ["serve", "--data-dir", str(tmp_path / "data"), *words]
            shown = CliRunner().invoke(cli, command)
            assert shown.exit_code == 1
            assert told in shown.output
            assert not (tmp_path / "data").exists()


def test_any_free_port_of_any_family_that_there_is_can_be_listened_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_address(Settings(port=0))
    require_address(Settings(port=free_port(), host="localhost"))
    with pytest.raises(OSError, match=r"cannot listen on nowhere\.invalid"):
        require_address(Settings(port=0, host="nowhere.invalid"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
        found = [(family, socket.SOCK_STREAM, 6, "", address) for family in (999, socket.AF_INET)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with pytest.raises(OSError, match="in use"):
            require_address(Settings())


_SHOW_THREADS = """
import sys, threadpoolctl, uvicorn
from starlette.testclient import TestClient
def shown(server):
    server.started = True
    with TestClient(server.config.app) as client:
        client.get("/readyz")
        libraries = threadpoolctl.threadpool_info()
        print({each["num_threads"] for each in libraries if each["user_api"] == "blas"})
uvicorn.Server.run = shown
from gcws_search.service.cli import cli
cli(["serve", "--data-dir", sys.argv[1]])
"""


def test_products_are_on_one_thread_while_it_serves(tmp_path: Path) -> None:
    done = run_python("-c", _SHOW_THREADS, tmp_path, OPENBLAS_NUM_THREADS="2")
    assert done.stdout.strip() == "{1}"


@contextmanager
def process(folder: Path) -> Iterator[httpx.Client]:
    """Lend a client of a process that serves a folder's ``data``, and that is then told to stop."""
    program = Program("data", ["serve"], folder, {})
    try:
        program.wait_until_ready()
        with httpx.Client(base_url=program.url, timeout=60) as client:
            yield client
        program.end()
        assert program.process.returncode == 0, program.said()
        assert "Traceback" not in program.said()
    finally:
        program.kill()


@pytest.mark.usefixtures("root_log")
def test_a_process_serves_stops_and_comes_back_with_the_same_answers(tmp_path: Path) -> None:
    """A load that is refused is answered while its body is still being sent."""

    def lines() -> Iterator[bytes]:
        yield b'{"id": "x", "vector": [1, 2, 3]}\n' + b"\n" * 100_000
        for _ in range(200):
            yield b"\n" * 65_536

    url = "/v1/collections/plants"
    query = {"vector": [0.1, -2, 0, 3], "limit": 3}
    with process(tmp_path) as client:
        assert client.put(url, json={"dim": 4}).status_code == 201
        assert client.put(f"{url}/items", json={"items": ITEMS}).json()["inserted"] == 4
        before = client.post(f"{url}/query", json=query)
        assert [hit["id"] for hit in before.json()["hits"]][:2] == ["a", "c"]
        assert before.headers["x-request-id"]
        words = ["serve", "--port=0", f"--data-dir={tmp_path / 'data'}"]
        second = CliRunner().invoke(cli, words)
        assert second.exit_code == 1
        assert "in use by" in second.output
        assert "Traceback" not in second.output
    with process(tmp_path) as client:
        assert client.post(f"{url}/query", json=query).json() == before.json()
        headers = {"Content-Type": "application/x-ndjson"}
        answer = client.post(f"{url}/load", content=lines(), headers=headers)
        assert answer.status_code == 422
        assert json.loads(answer.text)["row"] == 0
        assert client.get(url).json()["items"] == 4


_FEW_DESCRIPTORS = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
sys.argv[0] = "gcws-search"
runpy.run_module("gcws_search.service", run_name="__main__")
"""


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 1024, reason="few descriptors are permitted"
)
def test_connections_that_wait_for_the_application_leave_it_descriptors(tmp_path: Path) -> None:
    port = free_port()
    environment = os.environ | {"GCWS_DATA_DIR": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", _FEW_DESCRIPTORS, "--port", str(port)]
    with subprocess.Popen(command, env=environment) as running, ExitStack() as connections:
        deadline = time.monotonic() + START_SECONDS
        waiting: list[socket.socket] = []
        while len(waiting) < 100 and time.monotonic() < deadline:
            try:
                one = socket.create_connection(("127.0.0.1", port), timeout=60)
            except ConnectionRefusedError:
                time.sleep(0.001)
                continue
            waiting.append(connections.enter_context(one))
            one.sendall(b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answers = [one.recv(12) for one in waiting]
        running.terminate()
        assert running.wait(60) == 0
    assert answers == [b"HTTP/1.1 200"] * 100
