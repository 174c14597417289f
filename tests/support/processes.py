"""Programs in Python, each in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.paths import REPOSITORY


def run_python(
    *words: str | Path, folder: Path = REPOSITORY, status: int = 0, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run Python, and return what it says; it must end with a status."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


@contextmanager
def running_python(text: str, *words: str, says: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a program of Python; yield it once it has said a line. Its standard input stays open."""
    command, pipe = [sys.executable, "-c", text, *words], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{says}\n"
        yield process
