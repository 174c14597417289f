"""A short run of operations that meet on one name; the long one is ``python -m tests.names``."""

from contextlib import closing
from pathlib import Path

import pytest

from tests.names.run import Differs, Rounds
from tests.names.states import Contents, Done, Operation, State, possible

ROUNDS = 40


@pytest.mark.parametrize(("seed", "rows"), [(0, 20), (1, 400)])
def test_what_meets_on_one_name_leaves_what_was_acknowledged(
    tmp_path: Path, seed: int, rows: int
) -> None:
    with closing(Rounds(tmp_path, seed, rows)) as made:
        made.run(ROUNDS)
        assert made.restarts
        assert made.counts.total() >= ROUNDS


def test_what_no_order_explains_is_told(tmp_path: Path) -> None:
    with closing(Rounds(tmp_path, 2, 20)) as made:
        made.state = State(Contents(frozenset([("never", 1.0)])))
        with pytest.raises(Differs, match="never"):
            made.run(ROUNDS)


def test_a_write_that_was_acknowledged_is_in_every_order() -> None:
    items = frozenset([("a", 1.0)])
    put = Done(Operation("put", puts=(items,)), "done", 1)
    drop, create = Done(Operation("drop"), "done"), Done(Operation("create"), "done")
    there, none = State(Contents()), State()
    full = State(Contents(items))
    assert possible(there, [[put], []]) == {full}
    assert possible(there, [[put], [drop]]) == {none}
    assert possible(there, [[put], [drop, create]]) == {full, there}
    assert possible(none, [[put], [drop]]) == set()
    refused = Done(Operation("drop"), "CollectionBusy")
    assert possible(there, [[refused], [put]]) == set()  # nothing is under way
    assert possible(there, [[refused], [Done(Operation("snapshot", "s"), "done")]])
