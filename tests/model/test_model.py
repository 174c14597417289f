"""A short run of random operations; the long one is ``python -m tests.model``."""

from contextlib import closing
from pathlib import Path

import pytest

from tests.model.run import Life

OPERATIONS = 400


@pytest.mark.parametrize("seed", [0, 1])
def test_random_operations_are_answered_as_a_model_says(tmp_path: Path, seed: int) -> None:
    with closing(Life(tmp_path, seed)) as lived:
        lived.run(OPERATIONS)
        assert lived.restarts + lived.copies
        assert lived.operations.counts.total() == OPERATIONS
