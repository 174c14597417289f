"""A short run of ``python -m tests.crashes --cluster``."""

import pytest

from tests.crashes.checking import Lost
from tests.crashes.cluster import KINDS, ClusterTrial

SHORT = ("database", "replica", "promotion", "router", "point")


def killed(trial: ClusterTrial, kind: str) -> None:
    before = trial.clients.acknowledged, trial.clients.searches
    trial.kill(kind)
    assert trial.clients.acknowledged > before[0]
    assert trial.clients.searches > before[1]


def test_kills_lose_nothing_acknowledged_and_no_answer_is_partial(trial: ClusterTrial) -> None:
    for kind in SHORT:
        killed(trial, kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", [each for each in KINDS if each not in SHORT])
def test_other_kills_lose_nothing_either(trial: ClusterTrial, kind: str) -> None:
    killed(trial, kind)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DELETE FROM items_{0} WHERE substring(id FOR 3) = 'w1-'", "not as acknowledged"),
        ("DELETE FROM items_{0} WHERE id = '5'", "items that nobody changed are missing"),
    ],
)
def test_what_is_lost_is_told(trial: ClusterTrial, change: str, said: str) -> None:
    with trial.changed(change), pytest.raises(Lost, match=said):
        trial.check()


def test_a_replica_that_differs_is_told(trial: ClusterTrial) -> None:
    change = "UPDATE items_{0} SET key = key + 1000000 WHERE id = '5'"
    with trial.changed(change), pytest.raises(Lost, match="a replica differs"):
        trial.check()


def test_a_write_that_is_on_one_machine_alone_is_told(trial: ClusterTrial) -> None:
    with trial.servers.asynchronous(), pytest.raises(Lost, match="on one machine alone"):
        trial.kill("standby")
