"""Names that others give coordinates to, and free."""

import tracemalloc
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


def free_new_names(names: CoordinateNames, turns: range) -> None:
    """Reserve 1,000 new names in each turn, in one write, and free all names."""
    for turn in turns:
        with names.reading():
            names.reserve([f"{turn}.{n}" for n in range(1000)])
        names.follow([], turn)


def test_memory_does_not_grow_with_names_that_were_freed() -> None:
    names, given = CoordinateNames(None), 0

    def allocate(new: Sequence[str], _: Mapping[str, int]) -> list[NamedCoordinate]:
        nonlocal given
        given += len(new)
        return [NamedCoordinate(given - 1 - n, name) for n, name in enumerate(new)]

    names.allocate = allocate
    tracemalloc.start()
    try:
        free_new_names(names, range(1, 6))
        few, _ = tracemalloc.get_traced_memory()
        free_new_names(names, range(6, 60))
        many, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert many < 2 * few


def test_a_vector_has_its_names_while_its_write_lasts_whatever_is_freed() -> None:
    names, given = CoordinateNames(None), list[str]()

    def allocate(new: Sequence[str], _: Mapping[str, int]) -> list[NamedCoordinate]:
        given.extend(new)
        first = len(given) - len(new)
        return [NamedCoordinate(first + n, name) for n, name in enumerate(new)]

    names.allocate = allocate
    free_new_names(names, range(1, 4))
    with names.reading():
        raw = RawBatch(
            "sparse",
            indptr=np.array([0, 2]),
            indices=np.array(names.reserve(["x", "y"]), np.int32),
            values=np.array([1, 2], np.float32),
        )
        for turn in range(4, 40):
            free_new_names(names, range(turn, turn + 1))
            renewed = names.renew(raw)
            assert [given[each] for each in renewed.indices.tolist()] == ["x", "y"]
            assert names.reserve(["x", "y"]) == renewed.indices.tolist()
