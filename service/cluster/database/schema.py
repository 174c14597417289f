"""The tables: their definition, and what they say of the cluster that they are of."""

from __future__ import annotations

import uuid
from typing import Final

import psycopg

from gcws_search.service.cluster.database.connections import Connection, Connections
from gcws_search.service.cluster.errors import ClusterMismatch

FORMAT: Final = 2
"""Of the tables; another program refuses another format."""

LOCK: Final = 0x67637773
"""Advisory: tables are made one after the other."""

TABLES: Final = """
CREATE TABLE cluster (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    identity text NOT NULL,
    format bigint NOT NULL,
    buckets bigint NOT NULL
);
CREATE TABLE collections (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    config text NOT NULL,
    algorithm_version bigint NOT NULL,
    metadata bytea,
    free_coordinate bigint NOT NULL DEFAULT 0
);
CREATE TABLE heads (
    collection bigint PRIMARY KEY,
    head bigint NOT NULL DEFAULT 0,
    items bigint NOT NULL DEFAULT 0,
    trimmed bigint NOT NULL DEFAULT 0,
    free_id bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 20);
CREATE TABLE commits (
    collection bigint,
    key bigint,
    stamp bytea NOT NULL,
    time timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (collection, key)
);
CREATE TABLE gone (
    collection bigint,
    key bigint,
    bucket smallint NOT NULL,
    id bytea NOT NULL,
    PRIMARY KEY (collection, key)
);
CREATE TABLE names (
    collection bigint,
    coordinate bigint,
    name bytea NOT NULL,
    checksum bigint NOT NULL,
    stored boolean NOT NULL,
    PRIMARY KEY (collection, coordinate),
    UNIQUE (collection, name)
);
CREATE TABLE loads (
    collection bigint,
    key text COLLATE "C",
    changed bigint NOT NULL,
    progress text NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (collection, key)
);
CREATE TABLE backends (
    collection bigint,
    name text COLLATE "C",
    number bigint GENERATED ALWAYS AS IDENTITY,
    kind text NOT NULL,
    params text NOT NULL,
    notes text,
    PRIMARY KEY (collection, name)
);
CREATE TABLE dropped (number bigint PRIMARY KEY);
CREATE TABLE cells (cell text PRIMARY KEY, shards bigint NOT NULL);
CREATE UNLOGGED TABLE replicas (
    cell text,
    shards bigint,
    shard bigint,
    replica bigint,
    address text NOT NULL,
    positions text NOT NULL,
    nbytes bigint NOT NULL,
    share double precision NOT NULL,
    refusal text NOT NULL DEFAULT '',
    seen timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (cell, shards, shard, replica)
);
"""

_HAS_FREE_ID: Final = """
SELECT 1 FROM pg_attribute WHERE attrelid = 'heads'::regclass AND attname = 'free_id'
"""
_ADD_FREE_ID: Final = "ALTER TABLE heads ADD COLUMN free_id bigint NOT NULL DEFAULT 0"
"""The number for the next item without an id. Programs that do not know it may write meanwhile:
before a number is given it is looked up."""

ITEMS: Final = """
CREATE TABLE items_{number} (
    bucket smallint,
    key bigint NOT NULL,
    id bytea,
    vector bytea NOT NULL,
    payload bytea,
    checksum bigint NOT NULL,
    PRIMARY KEY (bucket, id)
) PARTITION BY LIST (bucket);
ALTER TABLE items_{number} ALTER COLUMN vector SET STORAGE EXTERNAL;
CREATE INDEX ON items_{number} (key);
"""
"""Ids are UTF-8; numbers do not get smaller by compression."""

PARTITION: Final = """
CREATE TABLE items_{number}_{bucket} PARTITION OF items_{number} FOR VALUES IN ({bucket});
"""


def prepare(connections: Connections, buckets: int) -> str:
    """Make the tables where there are none; return the identity of their cluster.

    Raises
    ------
    ClusterMismatch
        They are of another format, or of another number of buckets.
    StoreUnavailable
    """
    with connections.transaction() as connection:
        connection.run("SELECT pg_advisory_xact_lock(%b)", LOCK)
        if connection.column("SELECT to_regclass('cluster') IS NULL")[0]:
            schema = psycopg.sql.Identifier(connections.schema).as_string(connection)
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema};{TABLES}".encode())
            values = uuid.uuid4().hex, FORMAT, buckets
            connection.run("INSERT INTO cluster VALUES (true, %b, %b, %b)", *values)
        elif not connection.column(_HAS_FREE_ID):
            connection.run(_ADD_FREE_ID)
        return _checked(connection, buckets)


def _checked(connection: Connection, buckets: int) -> str:
    [(format_, found, identity)] = connection.run(
        "SELECT format, buckets, identity FROM cluster"
    ).fetchall()
    if format_ != FORMAT:
        raise ClusterMismatch("format of the database", str(FORMAT), str(format_))
    if found != buckets:
        raise ClusterMismatch("buckets of the database", str(buckets), str(found))
    return str(identity)


def create_items(connection: Connection, number: int, buckets: int) -> None:
    """Make the table of a collection's items."""
    parts = [PARTITION.format(number=number, bucket=bucket) for bucket in range(buckets)]
    connection.execute("".join([ITEMS.format(number=number), *parts]).encode())
