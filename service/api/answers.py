"""Answers as the API page shows them; queries are written as JSON without these classes."""

from typing import Any, Literal

from pydantic import Field

from gcws_search.service.http.models import Answer, Payload, ShownVector, examples


class IdsAnswer(Answer):
    """The numbers that items without ids were given; those of one request rise."""

    first: str = Field(description="The id of the first of them.")
    last: str = Field(description="The id of the last of them.")


class WriteAnswer(Answer):
    """What a write did."""

    model_config = examples(
        {"inserted": 2, "updated": 0},
        {"inserted": 2, "updated": 0, "ids": {"first": "0", "last": "1"}},
    )

    inserted: int = Field(description="New items.")
    updated: int = Field(description="Items that replaced one of their id.")
    ids: IdsAnswer | None = Field(
        default=None, description="Only where items came without ids: what they were given."
    )


class DeleteAnswer(Answer):
    """How many items were there and are gone."""

    model_config = examples(
        {"deleted": 2},
    )

    deleted: int = Field(description="Items that were there and are gone.")


class CountAnswer(Answer):
    """How many items there are."""

    model_config = examples(
        {"count": 2},
    )

    count: int = Field(description="The exact number.")


class ItemAnswer(Answer):
    """A stored item; ``vector`` as it was sent, in float32."""

    model_config = examples(
        {"id": "a", "vector": [0.1, -2.0, 0.0, 3.0], "payload": {"label": 3}},
    )

    id: str = Field(description="Its id.")
    vector: ShownVector | None = Field(
        default=None,
        description="As it was sent, in float32: dense up to `dim` 4096, else sparse.",
    )
    payload: Payload | None = Field(default=None, description="Its payload, or null.")


class PageAnswer(Answer):
    """A page of items in a stable order; ``next_cursor`` is null on the last one."""

    model_config = examples(
        {"items": [{"id": "a", "payload": {"label": 3}}], "next_cursor": "MQ"},
    )

    items: list[ItemAnswer] = Field(description="The page.")
    next_cursor: str | None = Field(
        description="`cursor` of the next page; null: this is the last.",
    )


class RejectedRow(Answer):
    """A row that was not stored."""

    row: int = Field(description="Number of the row, from 0.")
    code: str = Field(description="As a problem's.")
    detail: str = Field(description="As a problem's.")


class LoadedBefore(Answer):
    """What a load under the key had done before this request."""

    inserted: int = Field(description="New items.")
    updated: int = Field(description="Items that replaced one of their id.")
    rejected_count: int = Field(description="Rows that were not stored.")
    started: str = Field(description="When it began, in UTC.")
    complete: bool = Field(description="Whether it had come to the end of the body.")


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

    inserted: int = Field(description="New items.")
    updated: int = Field(description="Items that replaced one of their id.")
    rejected: list[RejectedRow] = Field(description="The first rows that were not stored.")
    rejected_count: int = Field(description="All rows that were not stored.")
    seconds: float = Field(description="How long the load took.")
    ids: IdsAnswer | None = Field(
        default=None, description="Only where items came without ids: what they were given."
    )
    loaded_before: LoadedBefore | None = Field(
        default=None,
        description="Only where a load under this key had stored or rejected rows before this "
        "request: how many of the rows above. This request passed over them.",
    )


class LoadEntryAnswer(Answer):
    """A load under way, or one of the last."""

    key: str | None = Field(description="Its `Idempotency-Key`; null: it had none.")
    state: str = Field(
        description="`running`, `done`, `failed`, or `interrupted`: the service ended before it."
    )
    rows: int = Field(description="Rows of the body that are stored or rejected so far.")
    bytes: int = Field(description="Bytes of the body read so far, decompressed.")
    total_bytes: int | None = Field(
        description="Bytes of the whole body; null where its length was not sent, or is compressed."
    )
    rejected: int = Field(description="Rows not stored so far.")
    rate: float = Field(description="Rows a second.")
    started: str = Field(description="When it began, in UTC.")
    error: str | None = Field(description="Why it failed.")


class LoadList(Answer):
    """The loads of a collection, the last first."""

    model_config = examples(
        {
            "loads": [
                {
                    "key": "plants-2026",
                    "state": "running",
                    "rows": 8192,
                    "bytes": 1048576,
                    "total_bytes": 4194304,
                    "rejected": 1,
                    "rate": 65536.0,
                    "started": "2026-01-02T03:04:05+00:00",
                    "error": None,
                }
            ]
        },
    )

    loads: list[LoadEntryAnswer] = Field(description="Those under way, and the last 20.")


class LoadProgress(Answer):
    """A line while a load goes on, one a chunk committed."""

    model_config = examples(
        {"committed": 8192, "rejected": 1},
    )

    committed: int = Field(description="Rows stored so far.")
    rejected: int = Field(description="Rows not stored so far.")


class HitAnswer(Answer):
    """One hit; ``score`` is the exact GMM similarity, unless `rerank` asks for another."""

    id: str = Field(description="The item's id.")
    score: float = Field(
        description="Exact GMM similarity, in [0, 1]; with `rerank` `own` or `none` the "
        "backend's own kernel, or its estimate of that.",
    )
    payload: Payload | None = Field(default=None, description="With `with_payload`.")
    vector: ShownVector | None = Field(
        default=None,
        description="With `with_vector`: dense up to `dim` 4096, else sparse.",
    )


class ExplainAnswer(Answer):
    """What a query cost and what it can promise."""

    method: str = Field(
        description="`graph`: beam search of the neighbour graph; `tables`: hash tables probed; "
        "`scan` of all permitted rows; or the kind of the comparison backend that answered.",
    )
    bands: int = Field(description="Tables probed, or that gave entry points; 0 for a scan.")
    depth: int = Field(
        description="Least depth reached: samples of the shortest prefix probed; 0 for a beam "
        "search or a scan.",
    )
    candidates: int = Field(
        description="Live, permitted rows found in tables, or scanned; all rows met by a beam "
        "search.",
    )
    scored: int = Field(description="Rows whose exact similarity was computed.")
    beam: int = Field(
        description="Beam width of the graph search; 0 without one.",
    )
    expected_recall: float = Field(
        description="The promise at which probing stopped, or the calibrated recall of the beam; 1 "
        "for a scan.",
    )
    seconds: float = Field(
        description="How long the search took; in a batch, the mean of one query.",
    )
    measured_recall: float | None = Field(
        default=None,
        description="Mean recall found by this week's queries of this `recall` and `limit` that "
        "were audited, if any were.",
    )
    unknown_names: list[str] | None = Field(
        default=None,
        description="Names of the query that no coordinate of the collection has, if there are "
        "any: each counts as a coordinate that no item shares.",
    )


class ShardsAnswer(Answer):
    """Which shards of a cluster an answer is from."""

    total: int = Field(description="Shards of the cluster.")
    answered: int = Field(description="Those that answered in time.")
    missing: list[int] = Field(description="The others, whose items are not among the hits.")


class QueryAnswer(Answer):
    """Hits by falling score, ties by id."""

    model_config = examples(
        {"hits": [{"id": "a", "score": 1.0, "payload": {"label": 3}}]},
    )

    hits: list[HitAnswer] = Field(description="At most `limit`.")
    explain: ExplainAnswer | None = Field(default=None, description="With `explain`.")
    shards: ShardsAnswer | None = Field(
        default=None, description="Of a cluster, with `explain` or `allow_partial`."
    )


class BatchResult(QueryAnswer):
    """The answer to one query of a batch."""

    error: dict[str, Any] | None = Field(
        default=None,
        description="Only with `on_error=skip`: the problem of a query that cannot be answered, "
        "which has no hits.",
    )


class BatchAnswer(Answer):
    """One answer a query, in order."""

    model_config = examples(
        {"results": [{"hits": [{"id": "a", "score": 1.0}]}]},
    )

    results: list[BatchResult] = Field(description="One a query, in order.")


class ShareAnswer(Answer):
    """What one coordinate adds to a similarity."""

    coordinate: int = Field(
        description="Its index. A name that no coordinate has gets one of its own for this "
        "answer: from `dim` on, or the last ones of an open slot space."
    )
    name: str | None = Field(default=None, description="Its name, where it has one.")
    a: float = Field(description="Its value in a, under the collection's transform.")
    b: float = Field(description="Its value in b.")
    min: float = Field(description="What both have; 0 where the signs are unlike.")
    max: float = Field(description="What either has; |a| + |b| where the signs are unlike.")


class RestAnswer(Answer):
    """The coordinates that are not listed, summed."""

    coordinates: int = Field(description="How many there are with a value in a or b.")
    min: float = Field(description="The sum of their `min`.")
    max: float = Field(description="The sum of their `max`.")


class ExplanationAnswer(Answer):
    """Why two vectors are as similar as they are."""

    model_config = examples(
        {
            "score": 0.4,
            "shared": 2.0,
            "total": 5.0,
            "coordinates": [
                {"coordinate": 1, "name": "body", "a": -2.0, "b": -2.0, "min": 2.0, "max": 2.0}
            ],
            "rest": {"coordinates": 1, "min": 0.0, "max": 3.0},
        },
    )

    score: float = Field(description="Exact GMM similarity, as a query returns it.")
    shared: float = Field(description="Sum of `min` over all coordinates.")
    total: float = Field(description="Sum of `max`; `score` is `shared` / `total`.")
    coordinates: list[ShareAnswer] = Field(
        description="At most `limit`: the greatest `min` first, then the greatest `max` - `min`."
    )
    rest: RestAnswer = Field(description="All others, summed.")


class AuditedAnswer(Answer):
    """What audited queries of one week found that asked for the same."""

    week: str = Field(description="By ISO 8601, in UTC.")
    recall: float = Field(description="As asked.")
    limit: int = Field(description="As asked.")
    queries: int = Field(description="How many were audited.")
    found: float = Field(description="Mean recall of these.")
    low: float = Field(description="Lower end of its 95 per cent confidence interval.")
    high: float = Field(description="Upper end.")


class AllowanceAnswer(Answer):
    """How far searches aim beyond what calibration says, for some limits."""

    limit: int | None = Field(description="Greatest limit that it is for; null: any.")
    share: float = Field(
        description="Share of the miss allowed that is aimed at: 1 unless audited queries found "
        "too little; 0 where hash tables or a scan answer."
    )


class RecallAnswer(Answer):
    """Recall asked against recall found, by audits of live queries."""

    model_config = examples(
        {
            "audited": [
                {
                    "week": "2026-W02",
                    "recall": 0.9,
                    "limit": 10,
                    "queries": 128,
                    "found": 0.934,
                    "low": 0.918,
                    "high": 0.95,
                }
            ],
            "allowance": [{"limit": 1, "share": 1.0}, {"limit": None, "share": 1.0}],
            "waiting": 0,
        },
    )

    audited: list[AuditedAnswer] = Field(description="The last week first, by recall and limit.")
    allowance: list[AllowanceAnswer] = Field(
        description="By limit; empty where the collection promises no recall."
    )
    waiting: int = Field(description="Queries drawn that have yet to be answered exactly.")


class CurvePointAnswer(Answer):
    """What searches by one beam setting find and cost."""

    recall: float = Field(description="Expected, in the mean over queries like the items.")
    candidates: float = Field(description="Mean number of items scored quickly.")
    microseconds: float = Field(
        description="Expected time of one query on one thread, by the cost model."
    )


class CurveAnswer(Answer):
    """What recall costs, as calibrated on the collection's own items."""

    model_config = examples(
        {
            "limit": 10,
            "points": [
                {"recall": 0.912, "candidates": 310.5, "microseconds": 24.7},
                {"recall": 0.994, "candidates": 902.0, "microseconds": 64.1},
            ],
            "rows": 70000,
            "holds": True,
            "reason": None,
            "scanned_from": 0.99,
        },
    )

    limit: int = Field(description="As asked.")
    points: list[CurvePointAnswer] = Field(description="By rising recall; the cost rises too.")
    rows: int = Field(
        description="Items in the graph when it was measured, its queries left out; 0: none was."
    )
    holds: bool = Field(
        description="Whether new items, and queries that were audited, are found as well as it "
        "says; false where there are no points."
    )
    reason: str | None = Field(description="Why there are no points; null where there are.")
    scanned_from: float | None = Field(
        description="Queries that ask for this recall or more are scanned, since a search of the "
        "graph would take longer; null where none up to 0.99 is, or there are no points."
    )


class PairAnswer(Answer):
    """A line of the answer: two items and their exact score, ``a`` before ``b``."""

    model_config = examples(
        {"a": "7", "b": "a", "score": 0.83},
    )

    a: str = Field(description="Id of the one item.")
    b: str = Field(description="Id of the other.")
    score: float = Field(description="Their exact GMM similarity.")


class ComparedAnswer(Answer):
    """What one backend found and cost."""

    name: str = Field(description="The backend.")
    kind: str = Field(description="Its kind.")
    kernel: str = Field(description="What it estimates.")
    recall: float = Field(
        description="Mean share of the exact GMM neighbours among its hits, re-ranked by GMM."
    )
    recall_own: float = Field(
        description="Mean share of the exact neighbours by its own kernel among its hits, "
        "re-ranked by that.",
    )
    latency_p50_seconds: float = Field(description="Median of the queries, asked one by one.")
    latency_p95_seconds: float = Field(description="95 of 100 took no longer.")
    candidates: float = Field(description="Mean number of items found or scanned.")
    bytes_per_item: float = Field(description="Memory of its index.")
    build_seconds: float = Field(
        description="How long its index has taken to make, in this process.",
    )


class CompareAnswer(Answer):
    """Backends side by side."""

    model_config = examples(
        {
            "queries": 2,
            "limit": 2,
            "recall": 0.9,
            "backends": [
                {
                    "name": "gcws",
                    "kind": "gcws",
                    "kernel": "gmm",
                    "recall": 1.0,
                    "recall_own": 1.0,
                    "latency_p50_seconds": 0.0001,
                    "latency_p95_seconds": 0.0002,
                    "candidates": 4.0,
                    "bytes_per_item": 384.0,
                    "build_seconds": 0.002,
                }
            ],
            "mean_similarity": [0.75, 0.5],
        },
    )

    queries: int = Field(description="How many queries were asked.")
    limit: int = Field(description="Hits of each.")
    recall: float = Field(description="The recall asked for.")
    backends: list[ComparedAnswer] = Field(description="One a backend.")
    mean_similarity: list[float] = Field(
        description="Of each query and its exact neighbours: their mean GMM.",
    )


class SketchAnswer(Answer):
    """Samples: (i*, t*) as ``slots`` and ``levels``, or ``codes``; a list a vector."""

    model_config = examples(
        {"slots": [[3, 6, 3]], "levels": [[2, -1, 2]]},
    )

    slots: list[list[int]] | None = Field(
        default=None,
        description="i* of each sample: `bands` × `band_width` samples a vector; slot 2i is "
        "coordinate i where positive, 2i + 1 where negative.",
    )
    levels: list[list[int]] | None = Field(default=None, description="t* of each sample.")
    codes: list[list[int]] | None = Field(
        default=None,
        description="The samples, cut as `encoding` says.",
    )


class SimilarityAnswer(Answer):
    """The similarity of the two vectors."""

    model_config = examples(
        {"score": 0.83},
    )

    score: float = Field(description="`gmm` and `rbf` are in [0, 1].")


class Health(Answer):
    """The process answers; ``phase`` says how far its start has come."""

    model_config = examples(
        {"status": "ok", "phase": "ready"},
    )

    status: str = Field(description="`ok`.")
    phase: str = Field(description="As in `/readyz`.")


class Readiness(Answer):
    """How far the start has come."""

    model_config = examples(
        {"phase": "loading", "loaded": 4096, "total": 70000},
    )

    phase: str = Field(description="What it is doing; `ready` at the end.")
    loaded: int = Field(
        description="Items loaded so far; each counts once more for each comparison backend."
    )
    total: int = Field(description="How many there are to load.")
    database: Literal["reachable", "unreachable"] | None = Field(
        default=None,
        description="Of a cluster: whether its database answered last. Searches go on without.",
    )


class ServiceAnswer(Answer):
    """What the service is, and what it permits."""

    model_config = examples(
        {
            "name": "gcws-search",
            "version": "1.0.0",
            "phase": "ready",
            "permits": "write",
            "keys": False,
        },
    )

    name: str = Field(description="`gcws-search`.")
    version: str = Field(description="Of the program.")
    phase: str = Field(description="As in `/readyz`.")
    permits: Literal["read", "write"] = Field(
        description="What the key that was sent permits; `write` permits reading too."
    )
    keys: bool = Field(description="Whether keys are set. Where none are, anybody may write.")


class ProblemError(Answer):
    """One thing that is wrong."""

    loc: list[str | int] = Field(description="Where: names of fields, numbers of list entries.")
    msg: str = Field(description="What was expected, and what came.")


class Problem(Answer):
    """An error, as RFC 9457 writes it.

    That of a load also has `committed`, `inserted`, `updated` and `rejected_count`: what it stored
    before; and `row`, where one is to blame.
    """

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

    type: str = Field(description="`urn:gcws:problem:` and the code.")
    title: str = Field(description="The status in words.")
    status: int = Field(description="The status.")
    detail: str = Field(description="What was expected, what came, and where.")
    code: str = Field(description="Stable name of the cause.")
    errors: list[ProblemError] = Field(
        description="Each thing that is wrong, the first 20; empty where no field is to blame.",
    )


class LoadEnd(LoadAnswer):
    """The last line of a load whose client watches: the summary, and the error that ended it."""

    error: Problem | None = Field(default=None, description="Where the load ended early.")
