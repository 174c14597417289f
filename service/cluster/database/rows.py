"""Items as the database has them: by id, by key, in order."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final

from gcws_search import index as ix
from gcws_search.service.cluster.contract import Row, bucket_of
from gcws_search.service.cluster.database.collections import CollectionTables
from gcws_search.service.cluster.database.connections import Connection

SNAPSHOT: Final = "ISOLATION LEVEL REPEATABLE READ READ ONLY"
_COLUMNS: Final = "key, id, vector, payload, checksum"
_ASKED: Final = "unnest(%b::smallint[], %b::bytea[]) AS asked(bucket, id)"


class RowTables(CollectionTables):
    """Reads items; those that are not what was written raise DamagedFile."""

    def fetch(self, number: int, ids: Sequence[str]) -> dict[str, Row]:
        """Return the items of those ids that there are."""
        names = [item_id.encode() for item_id in ids]
        buckets = [bucket_of(item_id, self.buckets) for item_id in ids]
        with self.connections.use(self.label(number)) as connection:
            if len(ids) == 1:
                where = f"SELECT {_COLUMNS} FROM items_{number} WHERE bucket = %b AND id = %b"
                found = connection.run(where, buckets[0], names[0]).fetchall()
            else:
                join = f"SELECT {_COLUMNS} FROM {_ASKED} JOIN items_{number} USING (bucket, id)"
                found = connection.run(join, buckets, names).fetchall()
        rows = checked_rows(number, found)
        return {row.id: row for row in rows}

    def at(self, number: int, keys: Sequence[int]) -> list[Row]:
        """Return the items of those keys that there are, by key."""
        statement = f"SELECT {_COLUMNS} FROM items_{number} WHERE key = ANY(%b) ORDER BY key"
        with self.connections.use(self.label(number)) as connection:
            found = connection.run(statement, list(keys)).fetchall()
        return checked_rows(number, found)

    def page(self, number: int, *, after: int, limit: int, with_vector: bool) -> list[Row]:
        """Return the first items beyond a key, by key.

        Parameters
        ----------
        number : int
        after : int
        limit : int
        with_vector : bool
            Else the vectors are empty, and nothing is checked.
        """
        columns = _COLUMNS if with_vector else "key, id, ''::bytea, payload"
        statement = f"SELECT {columns} FROM items_{number} WHERE key > %b ORDER BY key LIMIT %b"
        with self.connections.use(self.label(number)) as connection:
            found = connection.run(statement, after, limit).fetchall()
        if with_vector:
            return checked_rows(number, found)
        return [Row(key, item_id.decode(), b"", payload) for key, item_id, _, payload in found]

    def of_bucket(self, number: int, bucket: int, *, after: str, limit: int) -> list[Row]:
        """Return the first items of a bucket beyond an id, by id."""
        statement = (
            f"SELECT {_COLUMNS} FROM items_{number}"
            " WHERE bucket = %b AND id > %b ORDER BY id LIMIT %b"
        )
        with self.connections.use(self.label(number)) as connection:
            found = connection.run(statement, bucket, after.encode(), limit).fetchall()
        return checked_rows(number, found)

    def read_all(self, number: int, chunk_rows: int) -> Generator[list[Row]]:
        """Yield all items of one moment by key, in chunks; close it to give the connection back."""
        with self.connections.transaction(SNAPSHOT, self.label(number)) as connection:
            yield from ordered(connection, number, chunk_rows, "true")


def ordered(
    connection: Connection,
    number: int,
    chunk_rows: int,
    where: str,
    *parameters: Any,  # noqa: ANN401
) -> Iterator[list[Row]]:
    """Yield the items that pass, by key, in chunks, inside of a transaction.

    The end of the transaction closes the cursor. Who abandons the generator sends nothing: another
    thread may have the connection by then.
    """
    declare = f"DECLARE ordered NO SCROLL CURSOR FOR {_ordered(number, where)}"
    connection.execute(declare.encode(), parameters)
    fetch = f"FETCH {chunk_rows} FROM ordered".encode()
    while found := connection.execute(fetch, binary=True).fetchall():
        yield checked_rows(number, found)


def chunk(connection: Connection, number: int, where: str, *parameters: Any) -> list[Row]:  # noqa: ANN401
    """Return the items that pass, by key: few enough to be read at once."""
    return checked_rows(number, connection.run(_ordered(number, where), *parameters).fetchall())


def _ordered(number: int, where: str) -> str:
    return f"SELECT {_COLUMNS} FROM items_{number} WHERE {where} ORDER BY key"


def checked_rows(number: int, found: Sequence[tuple[Any, ...]]) -> list[Row]:
    """Return what was read as rows.

    Raises
    ------
    DamagedFile
        A checksum is not that of its row.
    """
    rows = []
    for key, item_id, vector, payload, checksum in found:
        if ix.content_checksum(item_id, vector, payload) != checksum:
            raise ix.DamagedFile(str(number), f"row {key} of the database is not what was written")
        rows.append(Row(key, item_id.decode(), vector, payload))
    return rows
