"""Servers killed at every named point, and at some random instants, while clients write.

Hundreds of kills: ``python -m tests.crashes --kills 500``.
"""

from collections.abc import Iterator

import pytest

from tests.crashes.checking import Lost
from tests.crashes.points import POINTS
from tests.crashes.servers import Nursery
from tests.crashes.states import SHARED
from tests.crashes.trial import Trial

RANDOM_KILLS = 4


@pytest.fixture(scope="module")
def trial(servers: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """Yield one directory for all kills: what is left of one is there at the next.

    A kill at a point begins with a check of what the kill before it has left.
    """
    made = Trial(servers, tmp_path_factory.mktemp("trial"), seed=0)
    made.kill_at("in a transaction", times=20)
    yield made
    made.check()


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_a_named_point_loses_nothing_acknowledged(trial: Trial, point: str) -> None:
    trial.kill_at(point)


def test_kills_at_random_instants_lose_nothing_acknowledged(trial: Trial) -> None:
    before = trial.acknowledged
    for _ in range(RANDOM_KILLS):
        trial.kill_at_random()
    trial.check()
    assert trial.acknowledged > before


def test_what_is_lost_is_told(trial: Trial) -> None:
    trial.check()
    writer = trial.writers[0]
    [state] = known = writer.possible
    items = dict(state.items[SHARED])
    items["w0-never"] = ((0, 1.0),), {}
    writer.possible = [state.having(SHARED, items)]
    with pytest.raises(Lost, match="w0-never"):
        trial.check()
    writer.possible = known
