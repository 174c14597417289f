"""The fixtures of the service's tests, their applications asked through a front."""

import pytest


@pytest.fixture
def way() -> str:
    return "front"
