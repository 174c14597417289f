"""Descriptions, statistics and comparisons of shards as those of one collection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from gcws_search import index as ix
from gcws_search.service.cluster.contract import BackendRow
from gcws_search.service.cluster.messages import Message, packed_sparse, packed_vectors
from gcws_search.service.cluster.router import samples
from gcws_search.service.cluster.router.merging import weighted

if TYPE_CHECKING:
    from gcws_search.service.cluster.router.collection import ClusterCollection

_BUILD_SECONDS: Final = 0.1
"""How often shards are asked whether a backend is ready."""
_LEARNING: Final = "learning"
_LONG_SECONDS: Final = 600.0
"""How long shards may take to compare, or to join."""


def described(collection: ClusterCollection) -> ix.Description:
    """Return the description of a collection: sums over its shards."""
    parts = [answer.head for answer in collection.ask("describe")]
    writer = collection.committer
    return ix.Description(
        name=collection.name,
        config=collection.config,
        items=_sum(parts, "items"),
        rows=_sum(parts, "rows"),
        names=len(collection.names),
        metadata=collection.context.database.metadata(collection.number),
        bytes_in_memory=_sum(parts, "bytes_in_memory"),
        bytes_mapped=_sum(parts, "bytes_mapped"),
        bytes_on_disk=_sum(parts, "bytes_on_disk"),
        backends=merged_backends([part["backends"] for part in parts]),
        commits=writer.commits,
        commit_seconds=writer.commit_seconds,
        versions=parts[0]["versions"],
    )


def merged_backends(parts: Sequence[Sequence[dict[str, Any]]]) -> list[ix.BackendDescription]:
    """Return the backends of shards by name, in the first shard's order."""
    named: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        for each in part:
            named.setdefault(each["name"], []).append(each)
    found = []
    for same in named.values():
        is_ready = len(same) == len(parts) and all(one["status"] == "ready" for one in same)
        found.append(
            ix.BackendDescription(
                name=same[0]["name"],
                kind=same[0]["kind"],
                params=same[0]["params"],
                primary=same[0]["primary"],
                status="ready" if is_ready else "building",
                progress=min(one["progress"] for one in same),
                bytes_in_memory=_sum(same, "bytes_in_memory"),
                build_seconds=max(one["build_seconds"] for one in same),
                stats=together([one["stats"] for one in same]),
            )
        )
    return found


_COUNTED: Final = {
    "bytes",
    "delta_rows",
    "feature_bytes",
    "made_for_rows",
    "map_bytes",
    "parameter_bytes",
    "postings_bytes",
    "rows",
    "rows_better_scanned",
    "table_bytes",
}
"""Statistics whose sum is that of all shards; other numbers are the same on all, or means."""


def together(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return statistics of shards as one: sums of counts, means of other numbers."""
    found: dict[str, Any] = {}
    for name, first in parts[0].items():
        values = [part[name] for part in parts if name in part]
        kinds = {type(value) for value in values}
        if name in _COUNTED and kinds <= {int, float}:
            found[name] = sum(values)
        elif len({*map(str, values)}) == 1:
            found[name] = first
        elif kinds <= {int, float}:
            found[name] = sum(values) / len(values)
        elif kinds == {dict}:
            found[name] = together(values)
        else:
            found[name] = first
    return found


def summed_up(collection: ClusterCollection) -> ix.Summary:
    """Return one line of the list of collections; without some shards sizes are of the others."""
    answers, missing = collection.ask_some("summary")
    parts = [answer.head for answer in answers]
    writer, database = collection.committer, collection.context.database
    items = database.count(collection.number) if missing else _sum(parts, "items")
    return ix.Summary(
        name=collection.name,
        items=items,
        dim=collection.config.dim,
        backends=parts[0]["backends"] if parts else [collection.config.backend.kind],
        bytes_on_disk=_sum(parts, "bytes_on_disk"),
        bytes_in_memory=_sum(parts, "bytes_in_memory"),
        commits=writer.commits,
        commit_seconds=writer.commit_seconds,
        commit_counts=tuple(writer.commit_counts),
        audited=_audited([part["audited"] for part in parts]),
    )


def audited(answers: Sequence[Message]) -> ix.AuditedQueries:
    """Return recall asked against recall found, over all shards."""
    parts = [answer.head for answer in answers]
    allowance: dict[int | None, float] = {}
    for part in parts:
        for limit, share in part["allowance"]:
            allowance[limit] = max(allowance.get(limit, 0.0), share)
    results = _audited([part["results"] for part in parts])
    return ix.AuditedQueries(results, [*allowance.items()], _sum(parts, "waiting"))


def _audited(parts: Iterable[Sequence[dict[str, Any]]]) -> list[ix.AuditedRecall]:
    """Return what audited queries found, as if all had been asked of one collection.

    Each shard audits queries among its own items; the interval is that of the weighted mean.
    """
    asked: dict[tuple[str, float, int], list[dict[str, Any]]] = {}
    for part in parts:
        for each in part:
            asked.setdefault((each["week"], each["recall"], each["limit"]), []).append(each)
    found = []
    for lines in asked.values():
        counts = np.array([line["queries"] for line in lines])
        means = np.array([line["found"] for line in lines])
        mean = weighted(means, counts)
        sides = [
            float(np.sqrt((((counts / counts.sum()) * gap) ** 2).sum()))
            for gap in (
                means - np.array([line["low"] for line in lines]),
                np.array([line["high"] for line in lines]) - means,
            )
        ]
        low, high = max(0.0, mean - sides[0]), min(1.0, mean + sides[1])
        total = int(counts.sum())
        together = {"queries": total, "found": mean, "low": low, "high": high}
        found.append(ix.AuditedRecall(**lines[0] | together))
    return found


def curve(limit: int, answers: Sequence[Message]) -> ix.CostCurve:
    """Return what recall costs on all shards together: at equal recall, the sum of their costs."""
    parts = [answer.head for answer in answers]
    reasons = [part["reason"] for part in parts if part["reason"] is not None]
    rows, holds = _sum(parts, "rows"), all(part["holds"] for part in parts)
    if reasons:
        return ix.CostCurve(limit, rows=rows, holds=holds, reason=reasons[0])
    columns = [np.array(part["points"], np.float64).T for part in parts]
    low = max(recalls[0] for recalls, _, _ in columns)
    high = min(recalls[-1] for recalls, _, _ in columns)
    at = [float(recall) for recall in columns[0][0] if low <= recall <= high] or [float(high)]
    sums = [sum(np.interp(at, each[0], each[column]) for each in columns) for column in (1, 2)]
    points = tuple(map(ix.CurvePoint, at, *(np.asarray(each).tolist() for each in sums)))
    scanned = [1.0 if part["scanned_from"] is None else part["scanned_from"] for part in parts]
    every = None if max(scanned) == 1 else max(scanned)
    return ix.CostCurve(limit, points, rows, holds, scanned_from=every)


# Comparison backends


def attached(
    collection: ClusterCollection, params: ix.BackendParams, name: str | None
) -> ix.BackendDescription:
    """Attach a comparison backend on all shards; return when it is ready on each.

    Raises
    ------
    InvalidParameter, BackendExists
    BackendNotFound
        It was dropped before it was ready.
    """
    database, number = collection.context.database, collection.number
    ready = {each.name for each in collection.describe().backends}
    if name is None:
        name, count = params.kind, 1
        while name in ready:
            count += 1
            name = f"{params.kind}_{count}"
    else:
        ix.check_name(name)
    if name in ready:
        raise ix.BackendExists(name)
    items = collection.count(None)
    ix.require_landmarks(params, items)
    text = orjson.dumps(ix.backend_document(params)["params"]).decode()
    database.add_backend(
        number, BackendRow(name, params.kind, text, _learned(collection, params, items))
    )
    return built(collection, name)


def built(collection: ClusterCollection, name: str) -> ix.BackendDescription:
    """Return a backend that the database lists, once all shards have it.

    Raises
    ------
    BackendNotFound
        It was dropped before that.
    """
    database = collection.context.database
    while True:
        if all(name in answer.head["ready"] for answer in _refreshed(collection)):
            found = {each.name: each for each in collection.describe().backends}
            if name in found and found[name].status == "ready":
                return found[name]
        if name not in {each.name for each in database.backends(collection.number)}:
            raise ix.BackendNotFound(name)
        time.sleep(_BUILD_SECONDS)


def _learned(collection: ClusterCollection, params: ix.BackendParams, items: int) -> str | None:
    """Return the notes of a backend that learns of the items, so that all shards have the same."""
    if not isinstance(params, ix.NystroemParams):
        return None
    with samples.drawn(collection, params.landmarks, params.seed, None) as drawn:
        drawn.attach(params, _LEARNING)
        notes = ix.notes_of_backend(drawn.memory.indexed(drawn.memory.view, _LEARNING))
    return None if notes is None else ix.text_of(ix.notes_of(notes) | {"drawn_from": items})


def detach(collection: ClusterCollection, name: str) -> None:
    """Drop a comparison backend from all shards.

    Raises
    ------
    PrimaryBackend, BackendNotFound
    """
    if name == collection.config.backend.kind:
        raise ix.PrimaryBackend(name)
    collection.context.database.remove_backend(collection.number, name)
    _refreshed(collection)


def _refreshed(collection: ClusterCollection) -> list[Message]:
    """Let all replicas read the list of backends, and return what they answer."""
    shards = collection.context.shards
    return shards.wait(shards.tell(Message(collection.head("refresh"))))


def compared(
    collection: ClusterCollection,
    queries: Sequence[ix.RawBatch | ix.SparseVector] | None,
    params: ix.SearchParams,
    *,
    sample: int,
    seed: int,
    backends: Sequence[str] | None,
    stop: threading.Event,
) -> ix.Comparison:
    """Search for the same by several backends, each shard among its own items.

    Recall is the mean of the shards', candidates and bytes are their sums; a query takes as long as
    the slowest of them.

    Raises
    ------
    BackendNotFound, InvalidParameter, InvalidVector
    CancelledError
        Of `concurrent.futures`: ``stop`` was set.
    """
    skip: list[str] = []
    if queries is None:
        queries, skip = _sampled(collection, sample, seed)
    parts: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for part in queries:
        if isinstance(part, ix.SparseVector):
            parts.append({"unknown": packed_sparse(part)})
        else:
            said, more = packed_vectors(part)
            parts.append(said)
            blobs += more
    shards = collection.context.shards
    head = collection.head(
        "compare",
        queries=parts,
        skip=skip,
        params=asdict(params),
        backends=None if backends is None else [*backends],
    )
    answers = shards.wait(shards.ask_all(Message(head, blobs), _LONG_SECONDS), stop)
    named: dict[str, list[dict[str, Any]]] = {}
    for answer in answers:
        for each in answer.head["backends"]:
            named.setdefault(each["name"], []).append(each)
    every = [np.frombuffer(answer.blobs[0]).reshape(answer.head["shape"]) for answer in answers]
    best = np.sort(np.concatenate(every, axis=1), axis=1)[:, -params.limit :]
    return ix.Comparison([_one_backend(each) for each in named.values()], best)


def _sampled(
    collection: ClusterCollection, count: int, seed: int
) -> tuple[Sequence[ix.RawBatch], list[str]]:
    """Return the vectors and ids of some items, as one node draws queries."""
    found = samples.batch_drawn(collection, count, seed, None)
    if len(found.ids) < 2:  # noqa: PLR2004 (one to search for, one to find)
        raise ix.InvalidParameter(
            expected="a collection of at least 2 items",
            got=f"one of {len(found.ids)}",
            loc=("sample",),
        )
    return [found.vectors], [each for each in found.ids if each is not None]


_MERGED: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "recall": np.mean,
    "recall_own": np.mean,
    "latency_p50_seconds": max,
    "latency_p95_seconds": max,
    "candidates": sum,
    "bytes_per_item": np.mean,
    "build_seconds": max,
}


def _one_backend(parts: Sequence[dict[str, Any]]) -> ix.BackendComparison:
    values: dict[str, Any] = {}
    for each in fields(ix.BackendComparison):
        column = [part[each.name] for part in parts]
        merge = _MERGED.get(each.name)
        values[each.name] = column[0] if merge is None else float(merge(column))
    return ix.BackendComparison(**values)


def _sum(parts: Iterable[dict[str, Any]], name: str) -> int:
    return sum(int(part[name]) for part in parts)
