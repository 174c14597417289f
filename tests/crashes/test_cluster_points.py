"""Points of a cluster's processes: each is there, and a process ends where it is told to."""

import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.crashes.cluster_points import POINTS, Trap

PROGRAM = """
import sys
from contextlib import closing
from pathlib import Path
from gcws_search import index as ix

with closing(ix.Catalog.open(Path(sys.argv[1]), threads=1)) as catalog:
    for number in range(3):
        catalog.create(f"c{number}", ix.CollectionConfig(dim=2))
        print(number, flush=True)
"""


@pytest.mark.parametrize("name", POINTS)
def test_a_point_is_at_a_function_of_the_program(name: str) -> None:
    module, function = POINTS[name].function
    found = import_module(module)
    for part in function.split("."):
        found = getattr(found, part)
    assert callable(found)


def run(trap: Trap, folder: Path) -> tuple[int, list[str], int]:
    """Return the exit code of a process, what it said, and its number."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        env=os.environ | trap.variables,
        stdout=subprocess.PIPE,
        text=True,
    )
    said = process.communicate()[0].split()
    return process.returncode, said, process.pid


def test_one_process_ends_at_its_point_at_that_time(tmp_path: Path) -> None:
    trap = Trap(tmp_path / "points")
    trap.arm("a file made, nothing in it", times=2)
    code, said, process = run(trap, tmp_path / "first")
    assert (code, said) == (-signal.SIGKILL, ["0"])
    code, said, _ = run(trap, tmp_path / "second")
    assert (code, said) == (0, ["0", "1", "2"])
    assert trap.victim() == process


@pytest.mark.parametrize("armed", ["all applied, nobody told", None])
def test_no_process_ends_that_is_not_told_to(tmp_path: Path, armed: str | None) -> None:
    trap = Trap(tmp_path / "points")
    trap.arm(armed or "a file made, nothing in it", times=1)
    if armed is None:
        trap.disarm()
    code, said, _ = run(trap, tmp_path / "data")
    assert (code, said) == (0, ["0", "1", "2"])
    assert trap.victim() is None
