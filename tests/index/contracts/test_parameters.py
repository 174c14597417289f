"""Parameters of searches: what is out of range is refused under the name of its field."""

from typing import Any

import pytest

from gcws_search import index as ix


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", 0),
        ("limit", 1.5),
        ("recall", 0.0),
        ("recall", float("nan")),
        ("min_score", 1.1),
        ("guarantee", "sure"),
        ("rerank", "all"),
        ("candidates", 0),
        ("ranking", "bray_curtis"),
    ],
)
def test_a_search_refuses_a_value_out_of_range(name: str, value: object) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(ix.InvalidParameter) as caught:
        ix.SearchParams(**given)
    assert caught.value.loc == (name,)
