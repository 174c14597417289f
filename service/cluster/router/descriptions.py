"""Descriptions, statistics and comparisons of shards as those of one collection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np

from gcws_search import index as ix
from gcws_search.service.cluster.router.merging import weighted
from gcws_search.service.rpc.messages import Message


def merge_backends(parts: Sequence[Sequence[dict[str, Any]]]) -> list[ix.BackendDescription]:
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
                bytes_in_memory=total(same, "bytes_in_memory"),
                build_seconds=max(one["build_seconds"] for one in same),
                stats=merge_stats([one["stats"] for one in same]),
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


def merge_stats(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
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
            found[name] = merge_stats(values)
        else:
            found[name] = first
    return found


def merge_audits(answers: Sequence[Message]) -> ix.AuditedQueries:
    """Return recall asked against recall found, over all shards."""
    parts = [answer.head for answer in answers]
    allowance: dict[int | None, float] = {}
    for part in parts:
        for limit, share in part["allowance"]:
            allowance[limit] = max(allowance.get(limit, 0.0), share)
    results = merge_audited_recall([part["results"] for part in parts])
    return ix.AuditedQueries(results, [*allowance.items()], total(parts, "waiting"))


def merge_audited_recall(parts: Iterable[Sequence[dict[str, Any]]]) -> list[ix.AuditedRecall]:
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


def merge_curves(limit: int, answers: Sequence[Message]) -> ix.CostCurve:
    """Return what recall costs on all shards together: at equal recall, the sum of their costs."""
    parts = [answer.head for answer in answers]
    reasons = [part["reason"] for part in parts if part["reason"] is not None]
    rows, holds = total(parts, "rows"), all(part["holds"] for part in parts)
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


def merge_comparisons(answers: Sequence[Message], limit: int) -> ix.Comparison:
    """Return what backends found for the same queries, each shard among its own items.

    Recall is the mean of the shards', candidates and bytes are their sums; a query takes as long as
    the slowest of them.
    """
    named: dict[str, list[dict[str, Any]]] = {}
    for answer in answers:
        for each in answer.head["backends"]:
            named.setdefault(each["name"], []).append(each)
    every = [np.frombuffer(answer.blobs[0]).reshape(answer.head["shape"]) for answer in answers]
    best = np.sort(np.concatenate(every, axis=1), axis=1)[:, -limit:]
    return ix.Comparison([_one_backend(each) for each in named.values()], best)


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


def total(parts: Iterable[dict[str, Any]], name: str) -> int:
    """Return the sum of a count over shards."""
    return sum(int(part[name]) for part in parts)
