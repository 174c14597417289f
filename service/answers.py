"""What a client gets, for the API page; the hot path writes JSON without these classes."""

from typing import Any

from pydantic import BaseModel

from service.schemas import Payload, VectorBody, examples


class Answer(BaseModel):
    """What a client gets; described here, written by hand on the hot path."""


class CollectionSummary(Answer):
    """A line of the list of collections."""

    name: str
    items: int
    dim: int | None
    backends: list[str]
    bytes: int


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

    collections: list[CollectionSummary]


class BackendAnswer(Answer):
    """A search method of a collection, with statistics for people."""

    name: str
    kind: str
    primary: bool
    bytes_in_memory: int
    stats: dict[str, Any]


class CollectionAnswer(Answer):
    """A collection: what it was created with, then what it holds; ``bytes`` are those on disk."""

    model_config = examples(
        {
            "name": "plants",
            "dim": 4,
            "transform": {"center": None, "power": 1.0, "normalize": "none"},
            "backend": {
                "kind": "gcws",
                "params": {
                    "bands": 32,
                    "band_width": None,
                    "encoding": "full",
                    "bits": 8,
                    "seed": 0,
                },
            },
            "bytes": 57344,
            "items": 3,
            "rows": 4,
            "bytes_in_memory": 40960,
            "bytes_on_disk": 57344,
            "backends": [
                {
                    "name": "gcws",
                    "kind": "gcws",
                    "primary": True,
                    "bytes_in_memory": 20480,
                    "stats": {"bands": 32},
                }
            ],
            "versions": {"format": "1", "algorithm": "1", "sqlite": "3.45.0"},
        },
    )

    name: str
    dim: int | None
    transform: dict[str, Any]
    backend: dict[str, Any]
    bytes: int
    items: int
    rows: int
    bytes_in_memory: int
    bytes_on_disk: int
    backends: list[BackendAnswer]
    versions: dict[str, str]


class WriteAnswer(Answer):
    """What a write did."""

    model_config = examples(
        {"inserted": 2, "updated": 0},
    )

    inserted: int
    updated: int


class DeleteAnswer(Answer):
    """How many items were there and are gone."""

    model_config = examples(
        {"deleted": 2},
    )

    deleted: int


class ItemAnswer(Answer):
    """A stored item; ``vector`` as it was sent, in float32."""

    model_config = examples(
        {"id": "a", "vector": [0.1, -2.0, 0.0, 3.0], "payload": {"label": 3}},
    )

    id: str
    vector: VectorBody | None = None
    payload: Payload | None = None


class PageAnswer(Answer):
    """A page of items in a stable order; ``next_cursor`` is null on the last one."""

    model_config = examples(
        {"items": [{"id": "a", "payload": {"label": 3}}], "next_cursor": "MQ"},
    )

    items: list[ItemAnswer]
    next_cursor: str | None


class RejectedRow(Answer):
    """A row that was not stored."""

    row: int
    code: str
    detail: str


class LoadAnswer(Answer):
    """What a load did; ``rejected`` is bounded in length, ``rejected_count`` counts all."""

    model_config = examples(
        {
            "inserted": 2,
            "updated": 0,
            "rejected": [
                {
                    "row": 1,
                    "code": "invalid_vector",
                    "detail": "row 1: expected 4 values, got 3 values (in vector)",
                }
            ],
            "rejected_count": 1,
            "seconds": 0.01,
        },
    )

    inserted: int
    updated: int
    rejected: list[RejectedRow]
    rejected_count: int
    seconds: float


class HitAnswer(Answer):
    """One hit; ``score`` is the exact GMM similarity."""

    id: str
    score: float
    payload: Payload | None = None
    vector: VectorBody | None = None


class ExplainAnswer(Answer):
    """What a query cost and what it can promise."""

    method: str
    bands: int
    depth: int
    candidates: int
    scored: int
    beam: int
    expected_recall: float
    seconds: float


class QueryAnswer(Answer):
    """Hits by falling score, ties by id."""

    model_config = examples(
        {"hits": [{"id": "a", "score": 1.0, "payload": {"label": 3}}]},
    )

    hits: list[HitAnswer]
    explain: ExplainAnswer | None = None


class BatchAnswer(Answer):
    """One answer a query, in order."""

    model_config = examples(
        {"results": [{"hits": [{"id": "a", "score": 1.0}]}]},
    )

    results: list[QueryAnswer]


class PairAnswer(Answer):
    """A line of the answer: two items and their exact score, ``a`` before ``b``."""

    model_config = examples(
        {"a": "7", "b": "a", "score": 0.83},
    )

    a: str
    b: str
    score: float


class SketchAnswer(Answer):
    """Samples: (i*, t*) as ``slots`` and ``levels``, or ``codes``; a list a vector."""

    model_config = examples(
        {"slots": [[3, 6, 3]], "levels": [[2, -1, 2]]},
    )

    slots: list[list[int]] | None = None
    levels: list[list[int]] | None = None
    codes: list[list[int]] | None = None


class SimilarityAnswer(Answer):
    """The similarity of the two vectors."""

    model_config = examples(
        {"score": 0.83},
    )

    score: float


class Health(Answer):
    """The process answers; ``phase`` says how far its start has come."""

    model_config = examples(
        {"status": "ok", "phase": "ready"},
    )

    status: str
    phase: str


class Readiness(Answer):
    """How far the start has come."""

    model_config = examples(
        {"phase": "loading", "loaded": 4096, "total": 70000},
    )

    phase: str
    loaded: int
    total: int


class ProblemError(Answer):
    """One thing that is wrong."""

    loc: list[str | int]
    msg: str


class Problem(Answer):
    """An error, as RFC 9457 writes it."""

    model_config = examples(
        {
            "type": "urn:gcws:problem:invalid_vector",
            "title": "Unprocessable Content",
            "status": 422,
            "detail": "item 17: expected 784 values, got 783 values (in vector)",
            "code": "invalid_vector",
            "errors": [
                {"loc": ["items", 17, "vector"], "msg": "expected 784 values, got 783 values"}
            ],
        },
    )

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[ProblemError]
