"""A short run of ``python -m tests.crashes --cluster``."""

import pytest

from tests.crashes.checking import Lost
from tests.crashes.cluster import KINDS, ClusterTrial
from tests.service.cluster.partitions.history import History

SHORT = ("database", "replica", "promotion", "router", "point")


def test_kills_lose_nothing_acknowledged_and_no_answer_is_partial(trial: ClusterTrial) -> None:
    for kind in SHORT:
        trial.kill(kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", [each for each in KINDS if each not in SHORT])
def test_other_kills_lose_nothing_either(trial: ClusterTrial, kind: str) -> None:
    trial.kill(kind)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DELETE FROM items_{0} WHERE substring(id FOR 6) = 'shared'", "not as it was noted"),
        ("DELETE FROM items_{0} WHERE id = 'base5'", "not the items that nobody changes"),
        ("UPDATE items_{0} SET key = key + 1000000 WHERE id = 'base5'", "a replica differs"),
    ],
)
def test_what_is_lost_is_told(trial: ClusterTrial, change: str, said: str) -> None:
    with trial.changed(change), pytest.raises(AssertionError, match=said):
        trial.things.check(History())


def test_a_write_that_is_on_one_machine_alone_is_told(trial: ClusterTrial) -> None:
    with trial.servers.asynchronous(), pytest.raises(Lost, match="on one machine alone"):
        trial.kill("standby")
