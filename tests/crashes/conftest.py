"""The process that servers of the test build come from."""

from collections.abc import Iterator

import pytest

from tests.crashes.servers import Nursery, nursery


@pytest.fixture(scope="session")
def servers() -> Iterator[Nursery]:
    with nursery() as opened:
        yield opened
