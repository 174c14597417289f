"""A body takes at most a few times its bytes to be read, whatever is in it."""

import json
import subprocess
import sys

import pytest

BODY_BYTES = 1_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="the most memory is told by Linux")
def test_no_body_takes_more_than_eight_times_its_bytes() -> None:
    command = [sys.executable, "-m", "tests.support.service.body_memory", str(BODY_BYTES)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    taken = [json.loads(line) for line in told.splitlines()]
    assert len(taken) > 150
    assert not [each for each in taken if each[2] > each[3]]
