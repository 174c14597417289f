"""Answers as JSON."""

from dataclasses import asdict
from typing import Any

import numpy as np
import orjson

from gcws_search import index as ix
from gcws_search.service.contract import CollectionProtocol, QueryRequest
from gcws_search.service.responses import payload_json, vector_json


def describe(collection: CollectionProtocol) -> dict[str, Any]:
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


def answer(asked: QueryRequest, found: ix.QueryResult) -> dict[str, Any]:
    """Return one query's answer, ready to be written as JSON."""
    hits: list[dict[str, Any]]
    if asked.with_payload and found.payloads is not None:
        hits = [
            {
                "id": item_id,
                "score": score,
                "payload": None if payload is None else orjson.Fragment(payload),
            }
            for item_id, score, payload in zip(found.ids, found.scores, found.payloads, strict=True)
        ]
    else:
        hits = [
            {"id": item_id, "score": score}
            for item_id, score in zip(found.ids, found.scores, strict=True)
        ]
    if found.vectors is not None:
        for hit, vector in zip(hits, found.vectors, strict=True):
            hit["vector"] = vector_json(vector)
    shards = {} if found.shards is None else {"shards": found.shards._asdict()}
    if not asked.explain or found.explanation is None:
        return {"hits": hits, **shards}
    explained = found.explanation._asdict()
    if asked.unknown_names:
        explained["unknown_names"] = asked.unknown_names
    if found.explanation.measured_recall is None:
        del explained["measured_recall"]
    return {"hits": hits, "explain": explained, **shards}


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
