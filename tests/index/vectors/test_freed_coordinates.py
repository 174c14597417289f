"""Names that others give coordinates to, and free."""

from collections.abc import Mapping, Sequence

import numpy as np

from gcws_search.index.contracts.batches import RawBatch
from gcws_search.index.vectors.names import CoordinateNames, NamedCoordinate


def test_a_coordinate_given_before_names_were_freed_is_asked_for_again() -> None:
    names = CoordinateNames(None)
    given = [7, 0]

    def allocate(new: Sequence[str], former: Mapping[str, int]) -> list[NamedCoordinate]:
        assert not former
        coordinate = given.pop()
        if coordinate == 0:
            names.follow([], 5)  # while the answer is under way
        return [NamedCoordinate(coordinate, *new)]

    names.allocate = allocate
    assert names.reserve(["x"]) == [7]
    names.follow([NamedCoordinate(0, "x")], 4)
    assert names.reserve(["x"]) == [7], "what is older than is known is ignored"


def test_a_vector_read_before_its_names_were_freed_gets_their_new_coordinates() -> None:
    names = CoordinateNames(None)
    names.follow([NamedCoordinate(0, "x"), NamedCoordinate(1, "y"), NamedCoordinate(2, "z")], 0)
    raw = RawBatch(
        "sparse",
        indptr=np.array([0, 3, 5]),
        indices=np.array([0, 1, 2, 1, 2], np.int32),
        values=np.array([1, 2, 3, 4, 5], np.float32),
    )
    names.allocate = lambda new, former: [
        NamedCoordinate({"x": 9, "y": former["y"]}[name], name) for name in new
    ]
    assert names.renew(raw) is raw
    names.follow([NamedCoordinate(2, "z")], 1)
    renewed = names.renew(raw)
    assert renewed.indices.tolist() == [1, 2, 9, 1, 2]
    assert renewed.values.tolist() == [2, 3, 1, 4, 5]
    assert names.renew(raw).indices.tolist() == [1, 2, 9, 1, 2]
