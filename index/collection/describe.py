"""Describe collections and their backends: configuration, counts, bytes, statistics."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from gcws_search.index.collection.attached_backends import Building
from gcws_search.index.collection.audit import AuditedRecall
from gcws_search.index.collection.backend_index import Attached, BackendIndex
from gcws_search.index.contracts.parameters import CollectionConfig, backend_document
from gcws_search.index.hashing.gcws import ALGORITHM_VERSION
from gcws_search.index.storage.schema import FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class BackendDescription:
    """One backend of a collection.

    Attributes
    ----------
    params : dict
        As the API shows them.
    primary : bool
        Whether it answers queries that name none.
    progress : float
        Share of the work that is done; 1 when it is ready.
    build_seconds : float
        How long its index has taken to make, in this process.
    stats : dict
        For people.
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
class Description:
    """All there is to know of a collection.

    Attributes
    ----------
    rows : int
        Rows in memory, those of deleted items included until the next compaction.
    names : int
        Coordinates that have a name.
    metadata : bytes or None
        JSON text of an object.
    bytes_in_memory, bytes_mapped : int
        Vectors in mapped files count as the second alone.
    commits : int
        Commits of changes by this process.
    commit_seconds : float
        How long these have taken.
    versions : dict
        Of the file format, the hash and SQLite.
    """

    name: str
    config: CollectionConfig
    items: int
    rows: int
    names: int
    metadata: bytes | None
    bytes_in_memory: int
    bytes_mapped: int
    bytes_on_disk: int
    backends: list[BackendDescription]
    commits: int
    commit_seconds: float
    versions: dict[str, str]


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


def describe_backend(indexed: BackendIndex, *, primary: bool = False) -> BackendDescription:
    """Return the description of a backend that answers queries."""
    return BackendDescription(
        name=indexed.name,
        **backend_document(indexed.params),
        primary=primary,
        status="ready",
        progress=1.0,
        bytes_in_memory=indexed.nbytes,
        build_seconds=indexed.build_seconds,
        stats=indexed.backend.stats(indexed.state),
    )


def describe_building(building: Building) -> BackendDescription:
    """Return the description of a backend that is being made."""
    return BackendDescription(
        name=building.name,
        **backend_document(building.params),
        primary=False,
        status="building",
        progress=building.progress,
        bytes_in_memory=0,
        build_seconds=0.0,
        stats={},
    )


def describe_backends(
    primary: BackendIndex, attached: Attached, building: Iterable[Building]
) -> list[BackendDescription]:
    """Return the descriptions of all backends, the primary one first."""
    return [
        describe_backend(primary, primary=True),
        *map(describe_backend, attached.values()),
        *(describe_building(each) for each in building if each.name not in attached),
    ]


def versions() -> dict[str, str]:
    """Return the versions of the file format, the hash and SQLite."""
    return {
        "format": str(FORMAT_VERSION),
        "algorithm": str(ALGORITHM_VERSION),
        "sqlite": sqlite3.sqlite_version,
    }
