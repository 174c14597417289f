"""Hits of shards, merged: by falling score, ties by id, as sorting all of them gives."""

from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gcws_search.index import SearchParams
from gcws_search.service.cluster.operations import ShardHits, merge_hits
from gcws_search.service.contract import QueryRequest
from gcws_search.service.messages import Message, decode_names, encode_names, encode_texts
from tests.support.service.client import Json

_IDS = st.text("abäß€𝄞", min_size=1, max_size=3)
_HIT = st.tuples(st.sampled_from([0.25, 0.5, 1.0]), _IDS)
_WIDEST = 5


def hits_of(lines: list[list[tuple[float, str]]]) -> ShardHits:
    """Return what a shard answers that found some hits for each query."""
    hits = [hit for line in lines for hit in line]
    blobs = [
        np.array([*map(len, lines)], np.int64).tobytes(),
        np.array([score for score, _ in hits], np.float64).tobytes(),
        *encode_names([item_id for _, item_id in hits]),
        *encode_texts([item_id.encode() for _, item_id in hits]),
        np.zeros((len(lines), 6), np.int64).tobytes(),
        *(np.zeros(len(lines)).tobytes() for _ in range(2)),
    ]
    return ShardHits.decode(Message({"payloads": True, "vectors": None}, blobs))


def shards_of(queries: int, width: int | None) -> st.SearchStrategy[Json]:
    """Return shards that find so many hits for each query; None for any number."""
    line = st.lists(
        _HIT,
        min_size=width or 0,
        max_size=_WIDEST if width is None else width,
        unique_by=itemgetter(1),
    )
    lines = st.lists(line, min_size=queries, max_size=queries)
    return st.lists(lines, min_size=1, max_size=3)


@given(
    st.tuples(st.integers(1, 3), st.none() | st.integers(1, _WIDEST)).flatmap(
        lambda sizes: shards_of(*sizes)
    ),
    st.integers(1, 6),
)
def test_merged_hits_are_the_best_of_all(
    shards: list[list[list[tuple[float, str]]]], limit: int
) -> None:
    params = SearchParams(limit=limit)
    asked = QueryRequest(None, (), params, None, b"", None, True, False, explain=False)
    found = merge_hits([hits_of(lines) for lines in shards], asked)
    assert len(found) == len(shards[0])
    for query, hits in enumerate(found):
        every = sorted((-score, item_id) for lines in shards for score, item_id in lines[query])
        assert [(-s, i) for s, i in zip(hits.scores, hits.ids, strict=True)] == every[:limit]
        assert hits.payloads == [item_id.encode() for item_id in hits.ids]


@pytest.mark.parametrize("names", [[], ["a", "bc", "d"], ["ä", "b", "", "€𝄞"]])
def test_names_come_back(names: list[str]) -> None:
    assert decode_names(*encode_names(names)) == names
