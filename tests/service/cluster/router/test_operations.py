"""Operations of a cluster: every shard is asked, and what all say is one result."""

from dataclasses import asdict
from typing import cast

import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.collection import ClusterCollection
from gcws_search.service.messages import Message
from tests.support.service.client import Json


def cluster(*heads: Json) -> ClusterCollection:
    """Return a collection whose shards answer so to any question."""
    found: Json = object.__new__(ClusterCollection)
    found.ask = lambda _name, **_arguments: [Message(head) for head in heads]
    return cast("ClusterCollection", found)


def curve(scale: float, rows: int) -> Json:
    points = tuple(ix.CurvePoint(recall, scale * recall, 2 * scale) for recall in (0.5, 0.7, 0.9))
    return asdict(ix.CostCurve(10, points, rows)) | {"points": [[*each] for each in points]}


def test_what_recall_costs_is_the_sum_over_all_shards() -> None:
    found = cluster(curve(100, 7), curve(10, 5), curve(1, 3)).curve(10)
    assert found.rows == 15
    assert [point.recall for point in found.points] == [0.5, 0.7, 0.9]
    assert [point.candidates for point in found.points] == pytest.approx([55.5, 77.7, 99.9])
    assert [point.microseconds for point in found.points] == pytest.approx([222.0] * 3)


def test_queries_that_wait_for_their_audit_are_counted_on_all_shards() -> None:
    shards = [
        {"results": [], "allowance": [[10, share]], "waiting": waiting}
        for share, waiting in ((0.5, 2), (1.0, 3))
    ]
    found = cluster(*shards).audited()
    assert found.waiting == 5
    assert found.allowance == [(10, 1.0)]
