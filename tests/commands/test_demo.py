"""``demo``: the three collections, and the commands that are printed."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import gcws_search
from gcws_search.commands.demo import COFFEES, TASTES, TRY, VIEWS, fill
from tests.commands.conftest import Call
from tests.support.service.ports import free_port


def test_the_collections_are_there_and_the_commands_answer(
    server: gcws_search.Server, url: str, call: Call
) -> None:
    counts = fill(url)
    assert counts["coffees"] == len(COFFEES)
    assert counts["digits"] == 1797
    assert counts["functions"] > 500
    shown = [server.collection(name).describe()["metadata"]["view"] for name in VIEWS]
    assert shown == [*VIEWS.values()]
    assert server.collection("coffees").names()[0] == TASTES[0]
    around = server.collection("functions").query(id="shutil.copyfile", limit=5)
    assert "shutil.copy" in around.ids
    eight = server.collection("digits").query(id="8", limit=5)
    assert {hit.payload["label"] for hit in eight if hit.payload} == {8}
    for command in TRY.format(url="").strip().splitlines():
        program, *words = shlex.split(command)
        assert program == "gcws-search"
        if words[0] != "export":
            done = call(*words)
            assert done.exit_code == 0, done.output


def test_a_key_in_the_environment_is_given_too(tmp_path: Path) -> None:
    """The server reads keys there, so what fills it needs one of them."""
    words = [sys.executable, "-m", "gcws_search", "demo", "--port", str(free_port())]
    key = {"GCWS_API_KEY": "a-key-of-some-length,another-key"}
    with subprocess.Popen(
        words, env=os.environ | key, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
    assert re.match("Open http://127.0.0.1:[0-9]+/ in a browser", lines[0])
    assert "coffees (4), digits (1797)" in lines[2]
