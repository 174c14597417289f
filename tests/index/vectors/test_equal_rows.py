"""Groups of equal rows."""

import numpy as np
import pytest

from gcws_search.index.contracts.parameters import CollectionConfig
from gcws_search.index.vectors.equal_rows import equal_groups
from gcws_search.index.vectors.space import VectorSpace


@pytest.mark.parametrize("count", [600, 9000])
@pytest.mark.parametrize("keys_differ", [False, True])
def test_groups_are_those_of_equal_rows(
    keys_differ: bool, count: int, rng: np.random.Generator
) -> None:
    """Whether or not rows that are not equal have equal keys."""
    kinds = rng.standard_normal((40, 16)).astype(np.float32)
    kinds[20:] = kinds[:20]
    kinds[20:, :2] = kinds[:20, 1::-1]  # the same norms
    kinds[:, 5] = 0.0
    which = rng.integers(0, 40, count)
    dense = kinds[which]
    dense[rng.random(count) < 0.5, 5] = -0.0
    space = VectorSpace.of(CollectionConfig(dim=16))
    rows = space.prepare(space.from_dense(dense))
    keys = np.stack([which if keys_differ else which % 2] * 3, axis=1).astype(np.uint64)
    found = equal_groups(rows, np.arange(count), keys, more_than=8)
    expected = [np.flatnonzero(which == kind).tolist() for kind in range(40)]
    assert sorted(each.tolist() for each in found) == sorted(
        each for each in expected if len(each) > 8
    )
