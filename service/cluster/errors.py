"""What goes wrong between routers, shards and their database, besides what requests are told."""

from __future__ import annotations

from gcws_search.service.errors import StoreUnavailable


class ClusterMismatch(ValueError):  # ends a start
    """What is there is of another cluster, or of another version."""

    def __init__(self, what: str, expected: str, got: str) -> None:
        super().__init__(f"{what}: expected {expected}, got {got}")


class FormerPrimary(StoreUnavailable):
    """A server that takes writes is not the last primary, or is not known to be."""

    def __init__(self, reason: str, address: str = "") -> None:
        self.address = address  # which one, for logs: clients need not know it
        super().__init__(reason)


class HistoryLost(Exception):  # the replica is filled again
    """The database does not know the commit that a replica followed last."""

    def __init__(self, commit: int, *, is_forgotten: bool = False) -> None:
        # it has trimmed what came after that; else it never had that commit
        self.is_forgotten = is_forgotten
        super().__init__(f"the database does not know commit {commit} of this replica")


class Behind(Exception):  # a sister replica is asked
    """A replica has not followed as far as was asked."""

    def __init__(self, key: int, reached: int) -> None:
        self.key = key
        self.reached = reached
        super().__init__(f"expected to have reached {key}, got to {reached}")
