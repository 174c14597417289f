"""Programs in Python, each in a process of its own."""

import os
import subprocess
import sys
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
