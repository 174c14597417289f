"""Names of coordinates."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.committer import Committer, PreparedPut
from gcws_search.service.cluster.database import Database


def put(names: dict[str, int], coordinates: int = 0, *, id_: str = "a") -> PreparedPut:
    """Return an item that has some names."""
    return PreparedPut(
        ids=[id_], vectors=[b""], payloads=[None], names=[*names.values()], coordinates=coordinates
    )


def test_a_reserved_name_is_listed_once_an_item_with_it_is_stored(
    database: Database, number: int, committer: Committer
) -> None:
    names = database.reserve_names(number, ["y", "x\0", "y"])
    assert names == {"y": 0, "x\0": 1}
    assert database.reserve_names(number, ["z", "y"]) == {"z": 2, "y": 0}
    assert database.names(number) == database.find_names(number, "", 9) == []
    committer.commit(put(names))
    assert database.names(number) == [(0, "y"), (1, "x\0")]
    refused = PreparedPut(ids=["a"], vectors=[b""], payloads=[None], mode="insert", names=[2])
    with pytest.raises(ix.ItemExists):
        committer.commit(refused)
    assert len(database.names(number)) == 2
    with pytest.raises(ix.CollectionNotFound):
        database.reserve_names(number + 1, ["x"])


def test_new_names_get_coordinates_above_all_that_items_use(
    database: Database, number: int, committer: Committer
) -> None:
    committer.commit(put({}, 500))
    assert database.reserve_names(number, ["x"]) == {"x": 500}
    committer.commit(put({}, 200))
    assert database.reserve_names(number, ["y"]) == {"y": 501}
    database.replace_names(number, [(7, "a"), (900, "b")])
    assert database.names(number) == [(7, "a"), (900, "b")]
    assert database.reserve_names(number, ["c", "b"]) == {"c": 901, "b": 900}


def test_no_name_is_reserved_where_coordinates_are_used_up(
    database: Database, number: int, committer: Committer
) -> None:
    committer.commit(put({}, ix.MAX_DIM))
    with pytest.raises(ix.InvalidVector) as caught:
        database.reserve_names(number, ["x", "y"])
    assert caught.value.loc == (1,)
    assert database.reserve_names(number, ["x"]) == {"x": ix.MAX_DIM}


def test_names_are_found_by_prefix(database: Database, number: int) -> None:
    names = [(0, "oak"), (1, "oaten"), (2, "ash"), (3, "o\U0010ffff"), (4, "p"), (5, "oa")]
    database.replace_names(number, names)
    assert database.find_names(number, "oa", 9) == [(5, "oa"), (0, "oak"), (1, "oaten")]
    assert database.find_names(number, "o", 9)[-1] == (3, "o\U0010ffff")
    assert database.find_names(number, "o", 1) == [(5, "oa")]
    assert database.find_names(number, "", 2) == names[:2]


def test_a_name_that_is_not_what_was_written_is_refused(database: Database, number: int) -> None:
    database.replace_names(number, [(0, "oak")])
    with database.connections.transaction() as connection:
        connection.run("UPDATE names SET name = 'ash'")
    with pytest.raises(ix.DamagedFile, match="coordinate 0"):
        database.names(number)


def test_two_routers_never_give_one_coordinate_twice(
    database_url: str, database: Database, number: int
) -> None:
    with closing(Database.open(database_url, buckets=4)) as other, ThreadPoolExecutor(4) as pool:
        wanted = [[f"{place % 40}", f"only {place}"] for place in range(200)]
        reserving = [
            pool.submit((database, other)[place % 2].reserve_names, number, names)
            for place, names in enumerate(wanted)
        ]
        found = [each.result() for each in reserving]
    together = {name: coordinate for names in found for name, coordinate in names.items()}
    assert all(together.items() >= names.items() for names in found)
    assert sorted(together.values()) == [*range(240)]
