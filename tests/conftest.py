"""Fixtures and settings every test shares."""

import hashlib
import os
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).parents[1]


def _kernel_cache() -> Path:
    """Return a folder for compiled kernels that is another one after any of them has changed.

    numba compiles a function anew when its own file has changed, but not when one it calls has:
    tests would go on judging the old kernel.
    """
    digest = hashlib.sha256()
    for path in sorted((REPOSITORY / "index" / "kernels").glob("*.py")):
        digest.update(path.read_bytes())
    return REPOSITORY / ".pytest_cache" / "kernels" / digest.hexdigest()[:16]


# Before anything imports numba, which reads it once; processes that tests start inherit it.
os.environ.setdefault("NUMBA_CACHE_DIR", str(_kernel_cache()))

settings.register_profile(
    "suite",
    deadline=None,  # the first example may compile a kernel
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Return a generator seeded by the name of the test: the same draws in any order of tests."""
    name: str = request.node.name
    return np.random.default_rng(zlib.crc32(name.encode()))
