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

    params: in the form of the API.
    primary: whether it answers queries that name no backend.
    progress: share of the work done; 1 when it is ready.
    build_seconds: time spent on its index, in this process.
    stats: statistics to be read by people.
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

    kind: "list", or how they are learned.
    version: how often they have been set since the collection was created.
    learned: when they were last set, as ISO 8601 in UTC; None if never since creation.
    items: how many items they were learned from.
    coordinates: how many coordinates have their own weight.
    """

    kind: str
    version: int
    learned: str | None
    items: int
    coordinates: int

    @classmethod
    def of(cls, weights: Weights) -> WeightsDescription:
        """Return the description of weights in use."""
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
    """Configuration, counts, sizes and statistics of a collection.

    rows: rows in memory, including those of deleted items until the next compaction.
    names: number of coordinates with a name.
    weights: None if the transform uses none.
    metadata: JSON text of an object.
    bytes_in_memory, bytes_mapped: vectors in mapped files count only as mapped.
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
        """Return it in the form of the API, configuration first, without the metadata."""
        found = asdict(self)
        del found["config"]
        config = {"name": found.pop("name")} | self.config.to_dict()
        return config | {"storage": self.config.storage, "bytes": self.bytes_on_disk} | found


@dataclass(frozen=True, slots=True)
class Summary:
    """One entry of the list of collections.

    ``commit_counts``: number of commits up to each of `COMMIT_BOUNDS` seconds, then of longer ones.
    ``audited``: the audit results of this week.
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
    """Return the description of a backend, ready or being built."""
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
    """Return the description of the weights in use; None if they are not learned yet."""
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
