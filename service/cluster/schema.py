"""The tables of the database: definition, creation, and identity of the cluster."""

from __future__ import annotations

import hashlib
import hmac
import os
import uuid
from typing import Final

import psycopg

from gcws_search.service.cluster.connections import LOCK, Connection, Connections
from gcws_search.service.cluster.contract import ClusterMismatch

FORMAT: Final = 2  # of the tables; programs of another format refuse them

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
    trimmed bigint NOT NULL DEFAULT 0
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

MIGRATIONS: Final = {
    # Next number for an item without an id. Older programs ignore this counter, so the ids are
    # checked before a number is assigned.
    "free ids": "ALTER TABLE heads ADD COLUMN IF NOT EXISTS free_id bigint NOT NULL DEFAULT 0",
    "epochs": """
CREATE TABLE epochs (
    number bigint PRIMARY KEY,
    stamp text NOT NULL,
    system bigint NOT NULL,
    timeline bigint NOT NULL,
    began timestamptz NOT NULL DEFAULT now()
);
""",
    "keys": """
CREATE TABLE keys (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    salt bytea NOT NULL,
    hash bytea NOT NULL
);
""",
    # Expiry times of items in ms since 1970. Older programs leave rows of items that they replace.
    "expiries": """
CREATE TABLE expiries (
    collection bigint,
    at bigint,
    bucket smallint,
    id bytea,
    PRIMARY KEY (collection, at, bucket, id)
);
""",
    # Generations with learned weights: the current one, and those being prepared.
    "generations": """
ALTER TABLE heads ADD COLUMN IF NOT EXISTS generation bigint NOT NULL DEFAULT 0;
CREATE TABLE generations (
    collection bigint,
    generation bigint,
    config text NOT NULL,
    weights text NOT NULL,
    seen timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (collection, generation)
);
""",
    # Files that new replicas of a shard start from. Those of dropped collections stay listed until
    # the files are removed.
    "bases": """
CREATE TABLE bases (
    collection bigint,
    generation bigint,
    shards bigint,
    shard bigint,
    key bigint NOT NULL,
    file text NOT NULL,
    bytes bigint NOT NULL,
    sha256 text NOT NULL,
    made timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (collection, generation, shards, shard)
);
""",
    # The last change that freed names; items removed since the last search for unused names, as
    # counted; and the time when the next search is due.
    "freed names": """
ALTER TABLE heads ADD COLUMN removed bigint NOT NULL DEFAULT 1,
    ADD COLUMN freed bigint NOT NULL DEFAULT 0,
    ADD COLUMN rested timestamptz NOT NULL DEFAULT '-infinity';
ALTER TABLE heads ALTER COLUMN removed SET DEFAULT 0;
""",
    # Files of vectors that items refer to, or will soon; when they became unreferenced. Items up to
    # the key `offloaded` have their vectors in files.
    "segments": """
CREATE TABLE segments (
    number int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    collection bigint NOT NULL,
    file text NOT NULL,
    bytes bigint NOT NULL,
    sha256 text NOT NULL,
    unused timestamptz
);
ALTER TABLE heads ADD COLUMN offloaded bigint NOT NULL DEFAULT 0;
""",
}
"""What came later, by name; older programs do not know it, and go on."""
_RECORD: Final = """
CREATE TABLE IF NOT EXISTS migrations (
    name text PRIMARY KEY,
    time timestamptz NOT NULL DEFAULT now()
);
"""

ITEMS: Final = """
CREATE TABLE items_{number} (
    bucket smallint,
    key bigint NOT NULL,
    id bytea,
    vector bytea,
    payload bytea,
    checksum bigint NOT NULL,
    version bigint NOT NULL DEFAULT 1,
    expires bigint,
    segment int,
    place int,
    length int
);
ALTER TABLE items_{number} ALTER COLUMN vector SET STORAGE EXTERNAL;
"""
INDEXES: Final = """
ALTER TABLE items_{number} ADD PRIMARY KEY (bucket, id);
CREATE INDEX ON items_{number} (key);
CREATE INDEX ON items_{number} (bucket, key);
"""
"""Ids are UTF-8; numbers do not get smaller by compression. The checksum is of the content: older
programs, which read rows during a rollout, know neither versions nor times. The tables that they
made are partitioned by bucket, and stay so. Without a vector, an item says which part of which
segment it is."""
WITHOUT_COLUMNS: Final = """
SELECT number FROM collections WHERE number = ANY(%b) AND (
    SELECT count(*) FROM pg_attribute
    WHERE attrelid = to_regclass('items_' || number) AND attname IN ('expires', 'length')
) < 2
"""
ADD_COLUMNS: Final = """
ALTER TABLE items_{number} ADD COLUMN IF NOT EXISTS version bigint NOT NULL DEFAULT 1,
    ADD COLUMN IF NOT EXISTS expires bigint,
    ADD COLUMN IF NOT EXISTS segment int,
    ADD COLUMN IF NOT EXISTS place int,
    ADD COLUMN IF NOT EXISTS length int,
    ALTER COLUMN vector DROP NOT NULL
"""
"""Older programs make collections without these; what they write has version 1, and stays."""


def prepare(connections: Connections, buckets: int, key: str | None = None) -> str:
    """Create missing tables; return the identity of their cluster.

    The first key given becomes the database's; None is not compared. ClusterMismatch if the tables
    have another format, number of buckets or key.
    """
    with connections.use(is_confirmed=False) as connection:
        # Before the transaction, whose snapshot then includes tables that others create.
        connection.run("SELECT pg_advisory_lock(%b)", LOCK)
        try:
            with connection.transaction():
                return _prepare(connection, connections.schema, buckets, key)
        finally:
            if not connection.closed:
                connection.run("SELECT pg_advisory_unlock(%b)", LOCK)


def _prepare(connection: Connection, name: str, buckets: int, key: str | None) -> str:
    if connection.column("SELECT to_regclass('cluster') IS NULL")[0]:
        schema = psycopg.sql.Identifier(name).as_string(connection)
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema};{TABLES}".encode())
        values = uuid.uuid4().hex, FORMAT, buckets
        connection.run("INSERT INTO cluster VALUES (true, %b, %b, %b)", *values)
    [(format_, found, identity)] = connection.run(
        "SELECT format, buckets, identity FROM cluster"
    ).fetchall()
    if format_ != FORMAT:
        raise ClusterMismatch("format of the database", str(FORMAT), str(format_))
    if found != buckets:
        raise ClusterMismatch("buckets of the database", str(buckets), str(found))
    _migrate(connection)
    if key is not None:
        _check_key(connection, key)
    return str(identity)


def _check_key(connection: Connection, key: str) -> None:
    known = connection.run("SELECT salt, hash FROM keys").fetchone()
    if known is None:
        set_key(connection, key)
    elif not hmac.compare_digest(_hash(key, known[0]), known[1]):
        raise ClusterMismatch(
            "GCWS_CLUSTER_KEY",
            "the key that this database was made with",
            "another ('gcws-search cluster rekey' replaces it)",
        )


def set_key(connection: Connection, key: str) -> None:
    """Replace the key that routers and shards must have."""
    salt = os.urandom(16)
    connection.run(
        "INSERT INTO keys (salt, hash) VALUES (%b, %b)"
        " ON CONFLICT (one) DO UPDATE SET salt = excluded.salt, hash = excluded.hash",
        *(salt, _hash(key, salt)),
    )


def _hash(key: str, salt: bytes) -> bytes:
    return hashlib.scrypt(key.encode(), salt=salt, n=1 << 12, r=8, p=1)


def _migrate(connection: Connection) -> None:
    connection.execute(_RECORD.encode())
    done = connection.column("SELECT name FROM migrations")
    for name, tables in MIGRATIONS.items():
        if name not in done:
            connection.execute(tables.encode())
            connection.run("INSERT INTO migrations VALUES (%b)", name)


def adopt(connection: Connection) -> str:
    """Make a database the primary of a new cluster; return its new identity.

    ClusterMismatch if it has no tables.
    """
    connection.run("SELECT pg_advisory_lock(%b)", LOCK)
    with connection.transaction():
        if connection.column("SELECT to_regclass('cluster') IS NULL")[0]:
            raise ClusterMismatch("tables of the database", "those of a cluster", "none")
        _migrate(connection)
        identity = uuid.uuid4().hex
        connection.run("UPDATE cluster SET identity = %b", identity)
        for table in "epochs", "replicas", "bases":
            connection.run(f"DELETE FROM {table}")
    return identity
