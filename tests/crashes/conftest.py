"""The process that servers of the test build come from."""

import os
from collections.abc import Iterator

import pytest

from tests.crashes.servers import Nursery, nursery


@pytest.fixture(scope="session")
def servers() -> Iterator[Nursery]:
    if not hasattr(os, "pidfd_open"):
        pytest.skip("processes are watched by what Linux alone has")
    with nursery() as opened:
        yield opened
