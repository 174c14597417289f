"""Connections that are lent, and closed in the end."""

import pytest

from gcws_search.service.cluster.connections import Connection
from gcws_search.service.cluster.database import Database


def test_a_connection_that_comes_back_while_others_are_closed_is_closed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = database.connections

    def is_usable(connection: Connection) -> bool:
        connections.close()
        return not connection.closed

    with connections.use() as connection:
        monkeypatch.setattr(Connection, "is_usable", property(is_usable))
    assert connection.closed
