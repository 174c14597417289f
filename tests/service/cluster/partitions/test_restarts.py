"""All replicas stopped and started again, one after the other, as for a new version."""

import pytest

from tests.service.cluster.partitions.clients import Load
from tests.support.service.machines import MachineCluster


@pytest.mark.long
def test_a_rolling_restart_of_all_replicas_fails_no_request(
    cluster: MachineCluster, load: Load
) -> None:
    with load.running() as history:
        for each in [replica for shard in cluster.replicas for replica in shard]:
            each.end()
            each.start()
            each.wait_until_ready()
            cluster.wait_until_whole()
            load.go_on()
        assert history.failures == {}, history.refusals
