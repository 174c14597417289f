"""Queries through the index, and their answers as JSON."""

from collections.abc import Hashable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import orjson

from gcws_search import index as ix
from gcws_search.service.translate.requests import QueryRequest

JSON_OPTIONS = orjson.OPT_SERIALIZE_NUMPY


def search(collection: ix.StoredCollection, query: QueryRequest) -> Sequence[ix.QueryResult]:
    """Return one result a query.

    Raises
    ------
    BackendNotFound, ItemNotFound
    InvalidVector
        The transform leaves nothing of a vector; its place begins with the row.
    """
    if query.vectors is not None:
        return collection.search(
            query.vectors, query.params, where=query.where, backend=query.backend
        )
    if query.with_unknown is not None:
        found = collection.search_with_unknown(
            query.with_unknown, query.params, where=query.where, backend=query.backend
        )
        return [found]
    around = collection.search_around(
        str(query.item_id), query.params, where=query.where, backend=query.backend
    )
    return [around]


def search_batch(
    collection: ix.StoredCollection, queries: Sequence[QueryRequest]
) -> tuple[list[ix.QueryResult], list[ix.Total]]:
    """Return one result a query, in order, and what they cost.

    Queries that ask for the same are searched together.

    Raises
    ------
    BackendNotFound, ItemNotFound
    InvalidVector
        The transform leaves nothing of a vector; its place begins with the query's number.
    """
    results: dict[int, ix.QueryResult] = {}
    costs: list[ix.Total] = []
    groups: dict[Hashable, list[int]] = {}
    for number, query in enumerate(queries):
        if query.vectors is None:
            try:
                [results[number]] = search(collection, query)
            except ix.InvalidVector as error:
                error.loc = (number, *error.loc[1:])
                raise
            costs += results[number].totals()
        else:
            groups.setdefault(query.group, []).append(number)
    for numbers in groups.values():
        rows = [rows for number in numbers if (rows := queries[number].vectors) is not None]
        together = queries[numbers[0]]._replace(vectors=ix.concatenate(rows))
        try:
            found = search(collection, together)
        except ix.InvalidVector as error:
            row, *rest = error.loc
            error.loc = (numbers[int(row)], *rest)
            raise
        results.update(zip(numbers, found, strict=True))
        costs += totals(found)
    return [results[number] for number in range(len(queries))], costs


def may_compile(collection: ix.StoredCollection, query: QueryRequest) -> bool:
    """Return whether the first search of its kind compiles kernels that the warm-up leaves out."""
    compared = collection.config.backend.kind not in ("gcws", "exact")
    return compared or query.backend is not None or query.params.rerank != "gmm"


def totals(found: Sequence[ix.QueryResult]) -> list[ix.Total]:
    """Return what searches cost, by method."""
    if isinstance(found, ix.QueryResults):
        return found.totals()
    return [total for result in found for total in result.totals()]


def describe(collection: ix.StoredCollection) -> dict[str, Any]:
    """Return all there is to know of a collection: what it was created with, then what it holds."""
    found = asdict(collection.describe())
    del found["config"]
    return {
        "name": found.pop("name"),
        **collection.config.to_dict(),
        "storage": collection.config.storage,
        "metadata": payload_json(found.pop("metadata")),
        "bytes": found["bytes_on_disk"],
        **found,
    }


def vector_json(vector: Any) -> Any:  # noqa: ANN401  # a list, or an object of two
    """Return a vector so that its numbers are written as float32 are: 0.1, not 0.10000000149."""
    if isinstance(vector, dict):
        return {
            "indices": vector["indices"],
            "values": np.asarray(vector["values"], np.float32),
        }
    return None if vector is None else np.asarray(vector, np.float32)


def payload_json(payload: bytes | None) -> orjson.Fragment | None:
    """Return a stored payload as a piece of JSON that is written as it is."""
    return None if payload is None else orjson.Fragment(payload)


def answer(
    collection: ix.StoredCollection, query: QueryRequest, result: ix.QueryResult, seconds: float
) -> dict[str, Any]:
    """Return one query's answer, ready to be written as JSON."""
    result = result.after(query.offset)
    hits: list[dict[str, Any]]
    if query.with_payload:
        hits = [
            {"id": item_id, "score": score, "payload": payload_json(payload)}
            for item_id, score, payload in zip(
                result.ids, result.scores, result.payloads, strict=True
            )
        ]
    else:
        hits = [
            {"id": item_id, "score": score}
            for item_id, score in zip(result.ids, result.scores, strict=True)
        ]
    if query.with_vector:
        for hit, vector in zip(hits, collection.vectors(result.hits), strict=True):
            hit["vector"] = vector_json(vector)
    if not query.explain:
        return {"hits": hits}
    explained = explain(result.explanation, seconds)
    if query.unknown_names:
        explained["unknown_names"] = query.unknown_names
    if (
        query.backend in (None, "gcws")
        and (audited := collection.audit.of(query.params)) is not None
    ):
        explained["measured_recall"] = audited.found
    return {"hits": hits, "explain": explained}


def mapped(found: ix.ItemMap) -> dict[str, Any]:
    """Return a map as the API shows it."""
    values = {} if found.values is None else {"values": found.values}
    return {"ids": found.ids, **_places(found.sample), **values, "also": _places(found.also)}


def _places(found: ix.Places) -> dict[str, Any]:
    neighbours: Any = found.neighbours
    scores: Any = found.scores
    present = neighbours != ix.NO_NEIGHBOUR
    if not present.all():
        sizes = present.sum(axis=1).tolist()
        neighbours, scores = (
            [line[:size] for line, size in zip(column.tolist(), sizes, strict=True)]
            for column in (neighbours, scores)
        )
    x, y = np.ascontiguousarray(found.xy.T)
    return {"x": x, "y": y, "neighbours": neighbours, "scores": scores}


def explain(found: ix.Explanation, seconds: float) -> dict[str, Any]:
    """Return what a query cost."""
    return {
        "method": found.method,
        "bands": found.bands,
        "depth": found.depth,
        "candidates": found.candidates,
        "scored": found.scored,
        "beam": found.beam,
        "expected_recall": found.expected_recall,
        "seconds": seconds,
    }


def written(value: object) -> bytes:
    """Return JSON; numpy arrays are lists."""
    return orjson.dumps(value, option=JSON_OPTIONS)


def entries(collection: ix.StoredCollection, typical_nonzeros: int = 64) -> int:
    """Return about how many numbers a scan of the collection reads."""
    dim = collection.config.dim
    dense = collection.config.form == "dense" and dim is not None
    return len(collection) * (dim if dense and dim is not None else typical_nonzeros)
