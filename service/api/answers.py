"""Answers as the API page shows them; they are written as JSON without these models."""

from typing import Any, Literal

from pydantic import Field, create_model

from gcws_search import index as ix
from gcws_search.service.models import CONFIGURATION, Answer, Payload, ShownVector


def answer(
    name: str,
    text: str,
    /,
    *shown: dict[str, Any],
    base: type[Answer] = Answer,
    **fields: Any,  # noqa: ANN401
) -> type[Answer]:
    """Return the model of an answer: its name and text on the API page, and examples.

    ``fields``: type and text of each, and None where it may be left out; those of ``base`` besides.
    """
    extra = {"json_schema_extra": {"examples": [*shown]}} if shown else {}
    found: dict[str, Any] = {
        word: (kind, Field(*default, description=said))
        for word, (kind, said, *default) in fields.items()
    }
    return create_model(name, __base__=base, __doc__=text, __cls_kwargs__=extra, **found)


def many(kind: type[Answer]) -> Any:  # noqa: ANN401  # the type of a field
    """Return the type of a list of answers."""
    return list[kind]  # type: ignore[valid-type]  # made while the program runs


IdsAnswer = answer(
    "IdsAnswer",
    "The numbers that items without ids were given; those of one request rise.",
    first=(str, "The id of the first of them."),
    last=(str, "The id of the last of them."),
)
WriteAnswer = answer(
    "WriteAnswer",
    "What a write did.",
    {"inserted": 2, "updated": 0},
    {"inserted": 2, "updated": 0, "ids": {"first": "0", "last": "1"}},
    inserted=(int, "New items."),
    updated=(int, "Items that replaced one of their id."),
    ids=(IdsAnswer | None, "Only where items came without ids: what they were given.", None),
)
DeleteAnswer = answer(
    "DeleteAnswer",
    "How many items were there and are gone.",
    {"deleted": 2},
    deleted=(int, "Items that were there and are gone."),
)
CountAnswer = answer(
    "CountAnswer", "How many items there are.", {"count": 2}, count=(int, "The exact number.")
)
ItemAnswer = answer(
    "ItemAnswer",
    "A stored item; ``vector`` as it was sent, in float32.",
    {"id": "a", "vector": [0.1, -2.0, 0.0, 3.0], "payload": {"label": 3}},
    id=(str, "Its id."),
    vector=(
        ShownVector | None,
        "As it was sent, in float32: dense up to `dim` 4096, else sparse.",
        None,
    ),
    payload=(Payload | None, "Its payload, or null.", None),
)
PageAnswer = answer(
    "PageAnswer",
    "A page of items in a stable order; ``next_cursor`` is null on the last one.",
    {"items": [{"id": "a", "payload": {"label": 3}}], "next_cursor": "MQ"},
    items=(many(ItemAnswer), "The page."),
    next_cursor=(str | None, "`cursor` of the next page; null: this is the last."),
)
RejectedRow = answer(
    "RejectedRow",
    "A row that was not stored.",
    row=(int, "Number of the row, from 0."),
    code=(str, "As a problem's."),
    detail=(str, "As a problem's."),
)
LoadedBefore = answer(
    "LoadedBefore",
    "What a load under the key had done before this request.",
    inserted=(int, "New items."),
    updated=(int, "Items that replaced one of their id."),
    rejected_count=(int, "Rows that were not stored."),
    started=(str, "When it began, in UTC."),
    complete=(bool, "Whether it had come to the end of the body."),
)
LoadAnswer = answer(
    "LoadAnswer",
    "What a load did; ``rejected`` is bounded in length, ``rejected_count`` counts all.",
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
    base=WriteAnswer,
    rejected=(many(RejectedRow), "The first rows that were not stored."),
    rejected_count=(int, "All rows that were not stored."),
    seconds=(float, "How long the load took."),
    loaded_before=(
        LoadedBefore | None,
        "Only where a load under this key had stored or rejected rows before this "
        "request: how many of the rows above. This request passed over them.",
        None,
    ),
)
LoadEntryAnswer = answer(
    "LoadEntryAnswer",
    "A load under way, or one of the last.",
    key=(str | None, "Its `Idempotency-Key`; null: it had none."),
    state=(str, "`running`, `done`, `failed`, or `interrupted`: the service ended before it."),
    rows=(int, "Rows of the body that are stored or rejected so far."),
    bytes=(int, "Bytes of the body read so far, decompressed."),
    total_bytes=(
        int | None,
        "Bytes of the whole body; null where its length was not sent, or is compressed.",
    ),
    rejected=(int, "Rows not stored so far."),
    rate=(float, "Rows a second."),
    started=(str, "When it began, in UTC."),
    error=(str | None, "Why it failed."),
)
LoadList = answer(
    "LoadList",
    "The loads of a collection, the last first.",
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
    loads=(many(LoadEntryAnswer), "Those under way, and the last 20."),
)
LoadProgress = answer(
    "LoadProgress",
    "A line while a load goes on, one a chunk committed.",
    {"committed": 8192, "rejected": 1},
    committed=(int, "Rows stored so far."),
    rejected=(int, "Rows not stored so far."),
)
HitAnswer = answer(
    "HitAnswer",
    "One hit; ``score`` is the exact GMM similarity, unless `rerank` asks for another.",
    id=(str, "The item's id."),
    score=(
        float,
        "Exact GMM similarity, in [0, 1]; with `rerank` `own` or `none` the "
        "backend's own kernel, or its estimate of that.",
    ),
    payload=(Payload | None, "With `with_payload`.", None),
    vector=(ShownVector | None, "With `with_vector`: dense up to `dim` 4096, else sparse.", None),
)
ExplainAnswer = answer(
    "ExplainAnswer",
    "What a query cost and what it can promise.",
    method=(
        str,
        "`graph`: beam search of the neighbour graph; `tables`: hash tables probed; "
        "`scan` of all permitted rows; or the kind of the comparison backend that answered.",
    ),
    bands=(int, "Tables probed, or that gave entry points; 0 for a scan."),
    depth=(
        int,
        "Least depth reached: samples of the shortest prefix probed; 0 for a beam "
        "search or a scan.",
    ),
    candidates=(
        int,
        "Live, permitted rows found in tables, or scanned; all rows met by a beam search.",
    ),
    scored=(int, "Rows whose exact similarity was computed."),
    beam=(int, "Beam width of the graph search; 0 without one."),
    expected_recall=(
        float,
        "The promise at which probing stopped, or the calibrated recall of the beam; 1 for a scan.",
    ),
    seconds=(float, "How long the search took; in a batch, the mean of one query."),
    measured_recall=(
        float | None,
        "Mean recall found by this week's queries of this `recall` and `limit` that "
        "were audited, if any were.",
        None,
    ),
    unknown_names=(
        list[str] | None,
        "Names of the query that no coordinate of the collection has, if there are "
        "any: each counts as a coordinate that no item shares.",
        None,
    ),
)
ShardsAnswer = answer(
    "ShardsAnswer",
    "Which shards of a cluster an answer is from.",
    total=(int, "Shards of the cluster."),
    answered=(int, "Those that answered in time."),
    missing=(list[int], "The others, whose items are not among the hits."),
)
QueryAnswer = answer(
    "QueryAnswer",
    "Hits by falling score, ties by id.",
    {"hits": [{"id": "a", "score": 1.0, "payload": {"label": 3}}]},
    hits=(many(HitAnswer), "At most `limit`."),
    explain=(ExplainAnswer | None, "With `explain`.", None),
    shards=(ShardsAnswer | None, "Of a cluster, with `explain` or `allow_partial`.", None),
)
BatchResult = answer(
    "BatchResult",
    "The answer to one query of a batch.",
    base=QueryAnswer,
    error=(
        dict[str, Any] | None,
        "Only with `on_error=skip`: the problem of a query that cannot be answered, "
        "which has no hits.",
        None,
    ),
)
BatchAnswer = answer(
    "BatchAnswer",
    "One answer a query, in order.",
    {"results": [{"hits": [{"id": "a", "score": 1.0}]}]},
    results=(many(BatchResult), "One a query, in order."),
)
ShareAnswer = answer(
    "ShareAnswer",
    "What one coordinate adds to a similarity.",
    coordinate=(
        int,
        "Its index. A name that no coordinate has gets one of its own for this "
        "answer: from `dim` on, or the last ones of an open slot space.",
    ),
    name=(str | None, "Its name, where it has one.", None),
    a=(float, "Its value in a, under the collection's transform."),
    b=(float, "Its value in b."),
    min=(float, "What both have; 0 where the signs are unlike."),
    max=(float, "What either has; |a| + |b| where the signs are unlike."),
)
RestAnswer = answer(
    "RestAnswer",
    "The coordinates that are not listed, summed.",
    coordinates=(int, "How many there are with a value in a or b."),
    min=(float, "The sum of their `min`."),
    max=(float, "The sum of their `max`."),
)
ExplanationAnswer = answer(
    "ExplanationAnswer",
    "Why two vectors are as similar as they are.",
    {
        "score": 0.4,
        "shared": 2.0,
        "total": 5.0,
        "coordinates": [
            {"coordinate": 1, "name": "body", "a": -2.0, "b": -2.0, "min": 2.0, "max": 2.0}
        ],
        "rest": {"coordinates": 1, "min": 0.0, "max": 3.0},
    },
    score=(float, "Exact GMM similarity, as a query returns it."),
    shared=(float, "Sum of `min` over all coordinates."),
    total=(float, "Sum of `max`; `score` is `shared` / `total`."),
    coordinates=(
        many(ShareAnswer),
        "At most `limit`: the greatest `min` first, then the greatest `max` - `min`.",
    ),
    rest=(RestAnswer, "All others, summed."),
)
AuditedAnswer = answer(
    "AuditedAnswer",
    "What audited queries of one week found that asked for the same.",
    week=(str, "By ISO 8601, in UTC."),
    recall=(float, "As asked."),
    limit=(int, "As asked."),
    queries=(int, "How many were audited."),
    found=(float, "Mean recall of these."),
    low=(float, "Lower end of its 95 per cent confidence interval."),
    high=(float, "Upper end."),
)
AllowanceAnswer = answer(
    "AllowanceAnswer",
    "How far searches aim beyond what calibration says, for some limits.",
    limit=(int | None, "Greatest limit that it is for; null: any."),
    share=(
        float,
        "Share of the miss allowed that is aimed at: 1 unless audited queries found "
        "too little; 0 where hash tables or a scan answer.",
    ),
)
RecallAnswer = answer(
    "RecallAnswer",
    "Recall asked against recall found, by audits of live queries.",
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
    audited=(many(AuditedAnswer), "The last week first, by recall and limit."),
    allowance=(many(AllowanceAnswer), "By limit; empty where the collection promises no recall."),
    waiting=(int, "Queries drawn that have yet to be answered exactly."),
)
CurvePointAnswer = answer(
    "CurvePointAnswer",
    "What searches by one beam setting find and cost.",
    recall=(float, "Expected, in the mean over queries like the items."),
    candidates=(float, "Mean number of items scored quickly."),
    microseconds=(float, "Expected time of one query on one thread, by the cost model."),
)
CurveAnswer = answer(
    "CurveAnswer",
    "What recall costs, as calibrated on the collection's own items.",
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
    limit=(int, "As asked."),
    points=(many(CurvePointAnswer), "By rising recall; the cost rises too."),
    rows=(int, "Items in the graph when it was measured, its queries left out; 0: none was."),
    holds=(
        bool,
        "Whether new items, and queries that were audited, are found as well as it "
        "says; false where there are no points.",
    ),
    reason=(str | None, "Why there are no points; null where there are."),
    scanned_from=(
        float | None,
        "Queries that ask for this recall or more are scanned, since a search of the "
        "graph would take longer; null where none up to 0.99 is, or there are no points.",
    ),
)
PairAnswer = answer(
    "PairAnswer",
    "A line of the answer: two items and their exact score, ``a`` before ``b``.",
    {"a": "7", "b": "a", "score": 0.83},
    a=(str, "Id of the one item."),
    b=(str, "Id of the other."),
    score=(float, "Their exact GMM similarity."),
)
ComparedAnswer = answer(
    "ComparedAnswer",
    "What one backend found and cost.",
    name=(str, "The backend."),
    kind=(str, "Its kind."),
    kernel=(str, "What it estimates."),
    recall=(float, "Mean share of the exact GMM neighbours among its hits, re-ranked by GMM."),
    recall_own=(
        float,
        "Mean share of the exact neighbours by its own kernel among its hits, re-ranked by that.",
    ),
    latency_p50_seconds=(float, "Median of the queries, asked one by one."),
    latency_p95_seconds=(float, "95 of 100 took no longer."),
    candidates=(float, "Mean number of items found or scanned."),
    bytes_per_item=(float, "Memory of its index."),
    build_seconds=(float, "How long its index has taken to make, in this process."),
)
CompareAnswer = answer(
    "CompareAnswer",
    "Backends side by side.",
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
    queries=(int, "How many queries were asked."),
    limit=(int, "Hits of each."),
    recall=(float, "The recall asked for."),
    backends=(many(ComparedAnswer), "One a backend."),
    mean_similarity=(list[float], "Of each query and its exact neighbours: their mean GMM."),
)
SketchAnswer = answer(
    "SketchAnswer",
    "Samples: (i*, t*) as ``slots`` and ``levels``, or ``codes``; a list a vector.",
    {"slots": [[3, 6, 3]], "levels": [[2, -1, 2]]},
    slots=(
        list[list[int]] | None,
        "i* of each sample: `bands` × `band_width` samples a vector; slot 2i is "
        "coordinate i where positive, 2i + 1 where negative.",
        None,
    ),
    levels=(list[list[int]] | None, "t* of each sample.", None),
    codes=(list[list[int]] | None, "The samples, cut as `encoding` says.", None),
)
SimilarityAnswer = answer(
    "SimilarityAnswer",
    "The similarity of the two vectors.",
    {"score": 0.83},
    score=(float, "`gmm` and `rbf` are in [0, 1]."),
)
Health = answer(
    "Health",
    "The process answers; ``phase`` says how far its start has come.",
    {"status": "ok", "phase": "ready"},
    status=(str, "`ok`."),
    phase=(str, "As in `/readyz`."),
)
Readiness = answer(
    "Readiness",
    "How far the start has come.",
    {"phase": "loading", "loaded": 4096, "total": 70000},
    phase=(str, "What it is doing; `ready` at the end."),
    loaded=(int, "Items loaded so far; each counts once more for each comparison backend."),
    total=(int, "How many there are to load."),
    database=(
        Literal["reachable", "unreachable"] | None,
        "Of a cluster: whether its database answered last. Searches go on without.",
        None,
    ),
)
ServiceAnswer = answer(
    "ServiceAnswer",
    "What the service is, and what it permits.",
    {
        "name": "gcws-search",
        "version": "1.0.0",
        "phase": "ready",
        "permits": "write",
        "keys": False,
    },
    name=(str, "`gcws-search`."),
    version=(str, "Of the program."),
    phase=(str, "As in `/readyz`."),
    permits=(
        Literal["read", "write"],
        "What the key that was sent permits; `write` permits reading too.",
    ),
    keys=(bool, "Whether keys are set. Where none are, anybody may write."),
)
ProblemError = answer(
    "ProblemError",
    "One thing that is wrong.",
    loc=(list[str | int], "Where: names of fields, numbers of list entries."),
    msg=(str, "What was expected, and what came."),
)
Problem = answer(
    "Problem",
    """An error, as RFC 9457 writes it.

That of a load also has `committed`, `inserted`, `updated` and `rejected_count`: what it stored
before; and `row`, where one is to blame.""",
    {
        "type": "urn:gcws:problem:invalid_vector",
        "title": "Unprocessable Content",
        "status": 422,
        "detail": "item 17: expected 784 values, got 783 values (in vector)",
        "code": "invalid_vector",
        "errors": [{"loc": ["items", 17, "vector"], "msg": "expected 784 values, got 783 values"}],
    },
    type=(str, "`urn:gcws:problem:` and the code."),
    title=(str, "The status in words."),
    status=(int, "The status."),
    detail=(str, "What was expected, what came, and where."),
    code=(str, "Stable name of the cause."),
    errors=(
        many(ProblemError),
        "Each thing that is wrong, the first 20; empty where no field is to blame.",
    ),
)
LoadEnd = answer(
    "LoadEnd",
    "The last line of a load whose client watches: the summary, and the error that ended it.",
    base=LoadAnswer,
    error=(Problem | None, "Where the load ended early.", None),
)
CollectionSummary = answer(
    "CollectionSummary",
    "A line of the list of collections.",
    name=(str, "Its name."),
    items=(int, "How many items it holds."),
    dim=(int | None, "Number of coordinates; null: an open slot space."),
    backends=(list[str], "Names of its backends."),
    bytes=(int, "Size of its file."),
)
CollectionList = answer(
    "CollectionList",
    "All collections.",
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
    collections=(many(CollectionSummary), "By name."),
)
_BACKEND: dict[str, Any] = {
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
BackendAnswer = answer(
    "BackendAnswer",
    "A backend of a collection, with statistics for people.",
    {
        **_BACKEND,
        "name": "nrff",
        "kind": "nrff",
        "params": {"features": 512, "gamma": 1.0, "seed": 0},
        "primary": False,
        "stats": {},
    },
    name=(str, "What a query's `backend` may name."),
    kind=(str, "What it is: `gcws`, `exact`, `nrff` …"),
    params=(dict[str, Any], "As created, defaults filled in."),
    primary=(bool, "Whether it answers queries that name none."),
    status=(
        Literal["ready", "building"],
        "`building` until it has taken in all items and answers queries.",
    ),
    progress=(float, "Share of the work that is done; 1 when `ready`."),
    bytes_in_memory=(int, "About how much memory it takes."),
    build_seconds=(float, "How long its index has taken to make, in this process."),
    stats=(
        dict[str, Any],
        "For people; of `gcws`: `bands`, and `bands_made`, how many of them have "
        "tables so far (the others get theirs when there is use for them); `band_width`, "
        "`samples` and `key_bits_per_sample` of the tables; `segments`, the rows of each sorted "
        "run they are kept in; "
        "`table_bytes`, `bytes_per_item_and_table`; `parameter_bytes` of the hash; "
        "`postings_bytes`, the inverted index that exact scans of sparse vectors use, "
        "0 for dense ones; `graph`, null without one, with its `calibration` in short: the `rows` "
        "measured, the `limits`, and the greatest recall of each; `rows_better_scanned`, for how "
        "many rows a scan was found to be as quick as a graph.",
    ),
)
CollectionAnswer = answer(
    "CollectionAnswer",
    "A collection: what it was created with, then what it holds; ``bytes`` are those on disk.",
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
        "backends": [_BACKEND],
        "commits": 2,
        "commit_seconds": 0.003,
        "versions": {"format": "6", "algorithm": "2", "sqlite": "3.45.0"},
    },
    name=(str, "Its name."),
    dim=(int | None, "Number of coordinates; null: an open slot space."),
    transform=(dict[str, Any], "As created."),
    backend=(dict[str, Any], "As created."),
    storage=(ix.Storage, "As created: `memory` or `mapped`."),
    metadata=(dict[str, Any] | None, "What a PATCH has set; its `view` says how items are shown."),
    bytes=(int, "Size of its file, as `bytes_on_disk`."),
    items=(int, "Exact number of items."),
    rows=(
        int,
        "Rows kept in memory: the items, and what updates and deletes left behind "
        "until more of it is dead than alive.",
    ),
    names=(int, "Coordinates that have a name."),
    bytes_in_memory=(int, "About how much memory items and tables take."),
    bytes_mapped=(int, "Vectors that lie in a mapped file; on the disk too."),
    bytes_on_disk=(int, "Size of its file."),
    backends=(many(BackendAnswer), "Its backends."),
    commits=(int, "Commits of changes by this process."),
    commit_seconds=(float, "How long these have taken."),
    versions=(dict[str, str], "`format` of the file, `algorithm` of the hash, and `sqlite`."),
)
NamedAnswer = answer(
    "NamedAnswer",
    "A coordinate that has a name.",
    index=(int, "The coordinate."),
    name=(str, "Its name."),
)
NamesAnswer = answer(
    "NamesAnswer",
    "Names of coordinates.",
    {"names": [{"index": 0, "name": "acidity"}], "count": 4},
    names=(many(NamedAnswer), "Those asked for; after a PUT the first 20."),
    count=(int, "How many coordinates have names."),
)
_SNAPSHOT: dict[str, Any] = {
    "name": "20260102T030405.678901Z",
    "bytes": 98304,
    "sha256": "96b5faebefa413760da6f724831d1ad3df874c31f144ee1f3ed23b30de704a80",
    "created": "2026-01-02T03:04:05+00:00",
}
SnapshotAnswer = answer(
    "SnapshotAnswer",
    "A snapshot of a collection.",
    _SNAPSHOT,
    name=(str, "Its name: the time, or as it was uploaded."),
    bytes=(int, "Size of its file."),
    sha256=(str, "SHA-256 of its file."),
    created=(str, "When it was made here, in UTC."),
)
SnapshotList = answer(
    "SnapshotList",
    "A collection's snapshots.",
    {"snapshots": [_SNAPSHOT]},
    snapshots=(many(SnapshotAnswer), "By name."),
)
PlacesAnswer = answer(
    "PlacesAnswer",
    "Where vectors lie, and what of the sample lies nearest to each; a list a column.",
    x=(list[float], "Place on the first axis, along which items differ most."),
    y=(list[float], "Place on the second axis."),
    neighbours=(
        list[list[int]],
        "Numbers of the most similar items of the sample, at most 15, the most "
        "similar first. No item is its own neighbour.",
    ),
    scores=(list[list[float]], "Their exact GMM similarities."),
)
MapAnswer = answer(
    "MapAnswer",
    "A sample in a plane, in the order in which its items were put.",
    {
        "ids": ["a", "7"],
        "x": [0.31, -0.31],
        "y": [0.0, 0.0],
        "neighbours": [[1], [0]],
        "scores": [[0.12], [0.12]],
        "values": [3, None],
        "also": {"x": [0.31], "y": [0.0], "neighbours": [[1]], "scores": [[0.12]]},
    },
    base=PlacesAnswer,
    ids=(list[str], "The sample."),
    values=(
        list[bool | float | str | None] | None,
        "With `key`: the first scalar under it of each payload, a text cut to 255 "
        "characters; null where there is none.",
        None,
    ),
    also=(PlacesAnswer, "Of what `also` asked for, in its order."),
)
HistogramAnswer = answer(
    "HistogramAnswer",
    "How many values lie between two edges.",
    edges=(list[float], "Rising, one more than `counts`."),
    counts=(list[int], "Values from one edge on and below the next; the last edge counts below."),
)
BucketAnswer = answer(
    "BucketAnswer", "One bucket.", size=(int, "How many items it has."), id=(str, "One of them.")
)
DepthAnswer = answer(
    "DepthAnswer",
    "What one depth of the hash tables does.",
    samples=(int, "How many samples the items of a bucket share."),
    probabilities=(
        list[float],
        "The S-curve: for each of `similarities` at least the chance that a pair "
        "shares a bucket in some band.",
    ),
    buckets=(int, "Buckets of the first table."),
    mean_size=(float, "Items of the bucket that an item lies in, on average over the items."),
    largest=(many(BucketAnswer), "At most ten, the largest first."),
)
ProfileAnswer = answer(
    "ProfileAnswer",
    "What a sample of items tells of a collection, under its transform.",
    {
        "items": 3,
        "sample": 3,
        "pairs": {"edges": [0.0, 0.5, 1.0], "counts": [20, 10]},
        "first": {"edges": [0.0, 0.5, 1.0], "counts": [1, 2]},
        "tenth": {"edges": [0.0, 0.5, 1.0], "counts": [0, 0]},
        "nonzeros": {"edges": [2.0, 3.0, 4.0], "counts": [1, 2]},
        "negative": 0.375,
        "similarities": [0.0, 0.5, 1.0],
        "depths": [
            {
                "samples": 1,
                "probabilities": [0.873, 1.0, 1.0],
                "buckets": 2,
                "mean_size": 1.667,
                "largest": [{"size": 2, "id": "a"}, {"size": 1, "id": "7"}],
            }
        ],
    },
    items=(int, "Of the collection."),
    sample=(int, "Items that were looked at."),
    pairs=(
        HistogramAnswer,
        "GMM of random pairs: an item of the sample and ten random ones but itself.",
    ),
    first=(
        HistogramAnswer,
        "Exact GMM of an item and its nearest, as searches of recall 0.95 find it; in "
        "a large collection of a part of the sample.",
    ),
    tenth=(HistogramAnswer, "The same of its tenth nearest."),
    nonzeros=(HistogramAnswer, "Coordinates of an item that are not zero."),
    negative=(float, "Share of these that are below zero."),
    similarities=(list[float], "Where the S-curves are taken."),
    depths=(
        many(DepthAnswer),
        "From one sample on; one depth where `band_width` is set, none where the "
        "backend does not hash.",
    ),
)
