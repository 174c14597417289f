"""Answers about collections, as the API page shows them."""

from typing import Any, Literal

from pydantic import Field

from gcws_search import index as ix
from gcws_search.service.http.models import CONFIGURATION, Answer, examples


class CollectionSummary(Answer):
    """A line of the list of collections."""

    name: str = Field(description="Its name.")
    items: int = Field(description="How many items it holds.")
    dim: int | None = Field(description="Number of coordinates; null: an open slot space.")
    backends: list[str] = Field(description="Names of its backends.")
    bytes: int = Field(description="Size of its file.")


class CollectionList(Answer):
    """All collections."""

    model_config = examples(
        {
            "collections": [
                {
                    "name": "fashion",
                    "items": 70000,
                    "dim": 784,
                    "backends": ["gcws"],
                    "bytes": 268435456,
                }
            ]
        },
    )

    collections: list[CollectionSummary] = Field(description="By name.")


class BackendAnswer(Answer):
    """A backend of a collection, with statistics for people."""

    model_config = examples(
        {
            "name": "nrff",
            "kind": "nrff",
            "params": {"features": 512, "gamma": 1.0, "seed": 0},
            "primary": False,
            "status": "ready",
            "progress": 1.0,
            "bytes_in_memory": 20480,
            "build_seconds": 0.002,
            "stats": {},
        },
    )

    name: str = Field(description="What a query's `backend` may name.")
    kind: str = Field(description="What it is: `gcws`, `exact`, `nrff` …")
    params: dict[str, Any] = Field(description="As created, defaults filled in.")
    primary: bool = Field(description="Whether it answers queries that name none.")
    status: Literal["ready", "building"] = Field(
        description="`building` until it has taken in all items and answers queries."
    )
    progress: float = Field(description="Share of the work that is done; 1 when `ready`.")
    bytes_in_memory: int = Field(description="About how much memory it takes.")
    build_seconds: float = Field(
        description="How long its index has taken to make, in this process.",
    )
    stats: dict[str, Any] = Field(
        description="For people; of `gcws`: `bands`, and `bands_made`, how many of them have "
        "tables so far (the others get theirs when there is use for them); `band_width`, "
        "`samples` and `key_bits_per_sample` of the tables; `segments`, the rows of each sorted "
        "run they are kept in; "
        "`table_bytes`, `bytes_per_item_and_table`; `parameter_bytes` of the hash; "
        "`postings_bytes`, the inverted index that exact scans of sparse vectors use, "
        "0 for dense ones; `graph`, null without one, with its `calibration` in short: the `rows` "
        "measured, the `limits`, and the greatest recall of each; `rows_better_scanned`, for how "
        "many rows a scan was found to be as quick as a graph.",
    )


class CollectionAnswer(Answer):
    """A collection: what it was created with, then what it holds; ``bytes`` are those on disk."""

    model_config = examples(
        {
            "name": "plants",
            "dim": 4,
            **CONFIGURATION,
            "storage": "memory",
            "metadata": {"view": {"title": "label"}},
            "bytes": 57344,
            "items": 3,
            "rows": 4,
            "names": 0,
            "bytes_in_memory": 40960,
            "bytes_mapped": 0,
            "bytes_on_disk": 57344,
            "backends": [
                {
                    "name": "gcws",
                    "kind": "gcws",
                    "params": {"bands": 32, "seed": 0},
                    "primary": True,
                    "status": "ready",
                    "progress": 1.0,
                    "bytes_in_memory": 20480,
                    "build_seconds": 0.002,
                    "stats": {"bands": 32, "bands_made": 8},
                }
            ],
            "commits": 2,
            "commit_seconds": 0.003,
            "versions": {"format": "6", "algorithm": "2", "sqlite": "3.45.0"},
        },
    )

    name: str = Field(description="Its name.")
    dim: int | None = Field(description="Number of coordinates; null: an open slot space.")
    transform: dict[str, Any] = Field(description="As created.")
    backend: dict[str, Any] = Field(description="As created.")
    storage: ix.Storage = Field(description="As created: `memory` or `mapped`.")
    metadata: dict[str, Any] | None = Field(
        description="What a PATCH has set; its `view` says how items are shown."
    )
    bytes: int = Field(description="Size of its file, as `bytes_on_disk`.")
    items: int = Field(description="Exact number of items.")
    rows: int = Field(
        description="Rows kept in memory: the items, and what updates and deletes left behind "
        "until more of it is dead than alive.",
    )
    names: int = Field(description="Coordinates that have a name.")
    bytes_in_memory: int = Field(description="About how much memory items and tables take.")
    bytes_mapped: int = Field(description="Vectors that lie in a mapped file; on the disk too.")
    bytes_on_disk: int = Field(description="Size of its file.")
    backends: list[BackendAnswer] = Field(description="Its backends.")
    commits: int = Field(description="Commits of changes by this process.")
    commit_seconds: float = Field(description="How long these have taken.")
    versions: dict[str, str] = Field(
        description="`format` of the file, `algorithm` of the hash, and `sqlite`.",
    )


class NamedAnswer(Answer):
    """A coordinate that has a name."""

    index: int = Field(description="The coordinate.")
    name: str = Field(description="Its name.")


class NamesAnswer(Answer):
    """Names of coordinates."""

    model_config = examples(
        {"names": [{"index": 0, "name": "acidity"}], "count": 4},
    )

    names: list[NamedAnswer] = Field(description="Those asked for; after a PUT the first 20.")
    count: int = Field(description="How many coordinates have names.")


_SNAPSHOT: dict[str, Any] = {
    "name": "20260102T030405.678901Z",
    "bytes": 98304,
    "sha256": "96b5faebefa413760da6f724831d1ad3df874c31f144ee1f3ed23b30de704a80",
    "created": "2026-01-02T03:04:05+00:00",
}


class SnapshotAnswer(Answer):
    """A snapshot of a collection."""

    model_config = examples(_SNAPSHOT)

    name: str = Field(description="Its name: the time, or as it was uploaded.")
    bytes: int = Field(description="Size of its file.")
    sha256: str = Field(description="SHA-256 of its file.")
    created: str = Field(description="When it was made here, in UTC.")


class SnapshotList(Answer):
    """A collection's snapshots."""

    model_config = examples({"snapshots": [_SNAPSHOT]})

    snapshots: list[SnapshotAnswer] = Field(description="By name.")
