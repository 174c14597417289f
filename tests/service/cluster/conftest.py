"""The fixtures of the service's tests, their applications over a cluster of two shards."""

import pytest


@pytest.fixture
def way() -> str:
    return "cluster"
