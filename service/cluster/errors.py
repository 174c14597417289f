"""What goes wrong between routers, shards and their database, besides what requests are told."""

from __future__ import annotations


class ClusterMismatch(ValueError):  # ends a start
    """What is there is of another cluster, or of another version."""

    def __init__(self, what: str, expected: str, got: str) -> None:
        super().__init__(f"{what}: expected {expected}, got {got}")


class HistoryLost(Exception):  # the replica is filled again
    """The database does not know the commit that a replica followed last."""

    def __init__(self, commit: int) -> None:
        super().__init__(f"the database does not know commit {commit} of this replica")


class Behind(Exception):  # a sister replica is asked
    """A replica has not followed as far as was asked."""

    def __init__(self, key: int, reached: int) -> None:
        self.key = key
        self.reached = reached
        super().__init__(f"expected to have reached {key}, got to {reached}")


class Malformed(Exception):  # logged and counted; a sister replica is asked
    """Bytes that are no message, or an error that no replica should have."""
