"""One SQLite file a collection.

Schema, rows, checksums, graph parts, snapshots. Knows bytes and no vectors.
"""
