"""Names of coordinates, reserved when an item is read, stored with the first item that has one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from gcws_search import index as ix
from gcws_search.service.cluster.database.connections import Connection
from gcws_search.service.cluster.database.rows import RowTables

_BEYOND: Final = b"\xff"
"""No UTF-8 text is beyond it."""
_CHANGED: Final = "UPDATE heads SET head = head + 1 WHERE collection = %b RETURNING head"
_STAMPED: Final = "INSERT INTO commits (collection, key, stamp) VALUES (%b, %b, %b)"
_ADD: Final = """
INSERT INTO names (collection, coordinate, name, checksum, stored)
SELECT %b, * , %b FROM unnest(%b::bigint[], %b::bytea[], %b::bigint[])
"""


class NameTables(RowTables):
    """Coordinates and their names."""

    def reserve_names(self, number: int, names: Sequence[str]) -> dict[str, int]:
        """Return the coordinates of names that items have; new ones get the next that are free.

        Routers reserve one after the other, so that none gives a coordinate twice.

        Raises
        ------
        InvalidVector
            At ``(place,)``: no coordinate is left.
        CollectionNotFound
        """
        wanted = dict.fromkeys(names)
        with self.connections.use() as connection:
            found = _known(connection, number, [*wanted])
        if len(found) == len(wanted):
            return found
        with self.connections.transaction() as connection:
            free = connection.column(
                "SELECT free_coordinate FROM collections WHERE number = %b FOR UPDATE", number
            )
            if not free:
                raise ix.CollectionNotFound(self.label(number))
            found = _known(connection, number, [*wanted])
            new = [name for name in wanted if name not in found]
            if free[0] + len(new) - 1 > ix.MAX_DIM:
                place = names.index(new[ix.MAX_DIM + 1 - free[0]])
                raise ix.InvalidVector(
                    expected="at most 2^31 coordinates", got="one more", loc=(place,)
                )
            added = [*zip(range(free[0], free[0] + len(new)), new, strict=True)]
            _add(connection, number, added, stored=False)
            raise_free(connection, number, free[0] + len(new))
        return found | {name: coordinate for coordinate, name in added}

    def names(self, number: int) -> list[tuple[int, str]]:
        """Return the coordinates that have names, in order, and their names."""
        with self.connections.use() as connection:
            rows = connection.run(
                "SELECT coordinate, name, checksum FROM names"
                " WHERE collection = %b AND stored ORDER BY coordinate",
                number,
            ).fetchall()
        for coordinate, name, checksum in rows:
            if ix.name_checksum(coordinate, name.decode()) != checksum:
                reason = f"the name of coordinate {coordinate} is not what was written"
                raise ix.DamagedFile(str(number), reason)
        return [(coordinate, name.decode()) for coordinate, name, _ in rows]

    def find_names(self, number: int, prefix: str, limit: int) -> list[tuple[int, str]]:
        """Return the first coordinates that have names; by name where a prefix is given."""
        start = prefix.encode()
        order = "name" if prefix else "coordinate"
        with self.connections.use() as connection:
            rows = connection.run(
                "SELECT coordinate, name FROM names WHERE collection = %b AND stored"
                f" AND name >= %b AND name < %b ORDER BY {order} LIMIT %b",
                *(number, start, start + _BEYOND, limit),
            ).fetchall()
        return [(coordinate, name.decode()) for coordinate, name in rows]

    def replace_names(self, number: int, names: Sequence[tuple[int, str]]) -> None:
        """Keep these names and no others; a change, which tells other routers to read them."""
        with self.connections.transaction() as connection:
            keys = connection.column(_CHANGED, number)
            if not keys:
                raise ix.CollectionNotFound(self.label(number))
            connection.run(_STAMPED, number, keys[0], os.urandom(16))
            connection.run("SELECT 1 FROM collections WHERE number = %b FOR UPDATE", number)
            connection.run("DELETE FROM names WHERE collection = %b", number)
            _add(connection, number, names, stored=True)
            raise_free(connection, number, max((each for each, _ in names), default=-1) + 1)


def _known(connection: Connection, number: int, names: Sequence[str]) -> dict[str, int]:
    rows = connection.run(
        "SELECT name, coordinate FROM unnest(%b::bytea[]) AS asked(name)"
        " JOIN names USING (name) WHERE collection = %b",
        *([name.encode() for name in names], number),
    ).fetchall()
    return {name.decode(): coordinate for name, coordinate in rows}


def _add(
    connection: Connection, number: int, names: Sequence[tuple[int, str]], *, stored: bool
) -> None:
    coordinates = [coordinate for coordinate, _ in names]
    texts = [name.encode() for _, name in names]
    checksums = [ix.name_checksum(coordinate, name) for coordinate, name in names]
    connection.run(_ADD, number, stored, coordinates, texts, checksums)


def raise_free(connection: Connection, number: int, free: int) -> None:
    """Note that no coordinate from ``free`` on is in use, unless higher ones are."""
    connection.run(
        "UPDATE collections SET free_coordinate = %b WHERE number = %b AND free_coordinate < %b",
        *(free, number, free),
    )


def store_names(connection: Connection, number: int, coordinates: Sequence[int]) -> None:
    """Note that items have the names of some coordinates."""
    connection.run(
        "UPDATE names SET stored = true"
        " WHERE collection = %b AND coordinate = ANY(%b) AND NOT stored",
        *(number, list(coordinates)),
    )
