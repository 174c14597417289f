"""Groups of rows linked by pairs."""

import numpy as np
import pytest

from gcws_search.index.collection.groups import GroupedRows, join_groups
from gcws_search.index.contracts.analysis import GroupMode


@pytest.mark.parametrize(
    ("mode", "members"), [("leaders", ["i0", "i1"]), ("components", ["i0", "i1", "i2"])]
)
def test_of_a_chain_a_leader_takes_what_it_is_near_to(mode: GroupMode, members: list[str]) -> None:
    rows = GroupedRows(
        3,
        ids_of=lambda numbers: [f"i{number}" for number in numbers],
        rank=np.sort,
        score=lambda a, b: np.ones(len(a)),
    )
    chain = np.array([0, 1]), np.array([1, 2]), np.array([0.9, 0.8])
    [group] = join_groups(rows, [], chain, mode)
    assert [name for name, _ in group.members] == members
    assert group.weakest == (0.9 if mode == "leaders" else 0.8)
