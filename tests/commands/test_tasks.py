"""Processes that do parts of a work: kills, interrupts, their end."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import psutil
import pytest

from gcws_search.index.corpus import TaskPool, results
from gcws_search.tasks import process_pool
from tests.support.killed import die_once
from tests.support.waiting import wait_until

CALLER = """
import os, signal
from gcws_search.tasks import process_pool

with process_pool(2) as pool:
    print(pool.submit(os.getpid).result(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_calls_whose_process_is_killed_are_made_again(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    before = threading.active_count()
    with process_pool(2) as pool:
        calls = [(tmp_path / name,) for name in "ab"]
        assert [*results(pool, die_once, calls)] == ["a", "b"]
        assert [*results(pool, die_once, [])] == []
        with pytest.raises(ChildProcessError, match="was killed"):
            [*results(pool, os._exit, [(1,)])]
    assert threading.active_count() == before


def test_what_runs_is_not_waited_for_when_the_results_are_not_wanted() -> None:
    with process_pool(2) as pool:
        found = results(pool, time.sleep, [(0,), (3600,)])
        next(found)
        found.close()


def test_processes_end_with_one_that_is_killed() -> None:
    caller = subprocess.run(
        [sys.executable, "-c", CALLER], capture_output=True, text=True, check=False
    )
    assert caller.returncode == -signal.SIGKILL
    process = int(caller.stdout)

    def is_gone() -> bool:
        try:
            return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    wait_until(is_gone)


@pytest.mark.parametrize(("in_order", "expected"), [(True, [0, 1, 2]), (False, [1, 2, 0])])
def test_results_come_by_calls_or_as_they_end(in_order: bool, expected: list[int]) -> None:
    """The first call ends last."""
    first = Future[int]()

    def submit(_: object, number: int) -> Future[int]:
        if number == 0:
            return first
        done = Future[int]()
        done.set_result(number)
        return done

    pool, found = TaskPool(submit, 2), list[int]()
    calls = [(number,) for number in range(3)]
    for number in results(pool, int, calls, in_order=in_order, waiting=lambda: first.set_result(0)):
        found.append(number)
    assert found == expected
