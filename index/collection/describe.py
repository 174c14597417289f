"""Describe collections and their backends: configuration, counts, bytes, statistics."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from gcws_search.index.collection.attached_backends import Building
from gcws_search.index.collection.audit import AuditedRecall
from gcws_search.index.collection.backend_index import BackendIndex
from gcws_search.index.contracts.parameters import CollectionConfig, Transform, backend_document
from gcws_search.index.hashing.gcws import ALGORITHM_VERSION
from gcws_search.index.storage.schema import FORMAT_VERSION
from gcws_search.index.vectors.weights import Weights


@dataclass(frozen=True, slots=True)
class BackendDescription:
    """One backend of a collection.

    params: as the API shows them.
    primary: whether it answers queries that name none.
    progress: share of the work that is done; 1 when it is ready.
    build_seconds: how long its index has taken to make, in this process.
    stats: for people.
    """

    name: str
    kind: str
    params: dict[str, Any]
    primary: bool
    status: Literal["ready", "building"]
    progress: float
    bytes_in_memory: int
    build_seconds: float
    stats: dict[str, Any]


@dataclass(frozen=True, slots=True)
class WeightsDescription:
    """The weights of a collection's coordinates.

    kind: "list", or what is learned.
    version: how often they have been set since the collection was created.
    learned: when, as ISO 8601 in UTC; None where none have been set since.
    items: how many they were learned from.
    coordinates: how many have a weight of their own.
    """

    kind: str
    version: int
    learned: str | None
    items: int
    coordinates: int

    @classmethod
    def of(cls, weights: Weights) -> WeightsDescription:
        """Return the description of weights that are applied."""
        learned = datetime.fromtimestamp(weights.learned, UTC).isoformat(timespec="seconds")
        return cls(
            kind=weights.kind,
            version=weights.version,
            learned=learned if weights.version else None,
            items=weights.items,
            coordinates=len(weights.weights),
        )


@dataclass(frozen=True, slots=True)
class Description:
    """All there is to know of a collection.

    rows: in memory, those of deleted items included until the next compaction.
    names: coordinates that have a name.
    weights: None where the transform has none.
    metadata: JSON text of an object.
    bytes_in_memory, bytes_mapped: vectors in mapped files count as the second alone.
    commits, commit_seconds: of changes by this process.
    versions: of the file format, the hash and SQLite.
    """

    name: str
    config: CollectionConfig
    items: int
    rows: int
    names: int
    weights: WeightsDescription | None
    metadata: bytes | None
    bytes_in_memory: int
    bytes_mapped: int
    bytes_on_disk: int
    backends: list[BackendDescription]
    commits: int
    commit_seconds: float
    versions: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return it as the API shows it, but for the metadata: what it was created with first."""
        found = asdict(self)
        del found["config"]
        config = {"name": found.pop("name")} | self.config.to_dict()
        return config | {"storage": self.config.storage, "bytes": self.bytes_on_disk} | found


@dataclass(frozen=True, slots=True)
class Summary:
    """One line of the list of collections.

    ``commit_counts`` has how many commits took up to each of `COMMIT_BOUNDS`, and longer than all;
    ``audited`` is what queries of this week found.
    """

    name: str
    items: int
    dim: int | None
    backends: list[str]
    bytes_on_disk: int
    bytes_in_memory: int
    commits: int
    commit_seconds: float
    commit_counts: tuple[int, ...]
    audited: list[AuditedRecall]


def describe_backend(each: BackendIndex | Building, *, primary: bool = False) -> BackendDescription:
    """Return the description of a backend that answers queries, or of one that is being made."""
    index = each if isinstance(each, BackendIndex) else None
    return BackendDescription(
        name=each.name,
        **backend_document(each.params),
        primary=primary,
        status="building" if isinstance(each, Building) else "ready",
        progress=each.progress if isinstance(each, Building) else 1.0,
        bytes_in_memory=0 if index is None else index.nbytes,
        build_seconds=0.0 if index is None else index.build_seconds,
        stats={} if index is None else index.backend.stats(index.state),
    )


def describe_weights(transform: Transform, weights: Weights | None) -> WeightsDescription | None:
    """Return the description of weights as they are applied; None are those yet to be learned."""
    if weights is not None:
        return WeightsDescription.of(weights)
    asked = transform.weights
    return None if asked is None else WeightsDescription(str(asked), 0, None, 0, 0)


def versions() -> dict[str, str]:
    """Return the versions of the file format, the hash and SQLite."""
    return {
        "format": str(FORMAT_VERSION),
        "algorithm": str(ALGORITHM_VERSION),
        "sqlite": sqlite3.sqlite_version,
    }
