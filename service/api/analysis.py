"""Long reads of a whole collection: near-duplicate pairs, map, profile; vectors as hashes."""

import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import numpy as np
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from gcws_search import index as ix
from gcws_search.service.api import requests
from gcws_search.service.api.bodies import FilterDocument, PairsBody, SketchBody, body_of
from gcws_search.service.http import json_router, may_read, service_of
from gcws_search.service.limits import AnswerBytes
from gcws_search.service.models import Body, FirstErrorOnly, Id, VectorBody, bounds, examples
from gcws_search.service.responses import (
    BODY_PROBLEMS,
    NDJSON,
    JsonResponse,
    json_bytes,
    map_json,
    shows,
)

router = json_router("/v1/collections/{name}", "search", may_read, BODY_PROBLEMS)
_LINES_A_PIECE: Final = 1000
_VECTORS_AT_ONCE: Final = 1024


if TYPE_CHECKING:
    _MapOptions = Any
else:
    _MapOptions = body_of(
        ix.MapParams, "MapOptions", key=Annotated[str, Field(min_length=1, max_length=1024)] | None
    )


class MapBody(_MapOptions):  # type: ignore[misc]  # made of what the index takes
    """What a map shows."""

    without_body = b"{}"
    limited: ClassVar = {"also": ix.MAX_ALSO}

    model_config = examples(
        {"sample": 3},
        {
            "sample": 5000,
            "landmarks": 256,
            "seed": 0,
            "filter": {"must": [{"key": "label", "match": {"value": 3}}]},
            "also": ["a", [0.1, -2, 0, 3], {"indices": [1], "values": [-2]}],
            "key": "label",
        },
    )

    filter: FilterDocument | None = Field(
        default=None, description="Only items whose payloads pass are drawn; null: all."
    )
    also: Annotated[list[Id | VectorBody], FirstErrorOnly()] = Field(
        default=[],
        description="Ids and vectors that are given places and neighbours too.",
        json_schema_extra={"maxItems": ix.MAX_ALSO},
    )


class ProfileBody(Body):
    """What a profile is of."""

    without_body = b"{}"

    model_config = examples({}, {"sample": 1000, "seed": 0})

    sample: int = Field(
        default=ix.PROFILE_SAMPLE,
        description="Items at most that are looked at, drawn at random.",
        json_schema_extra=bounds(1, ix.MAX_PROFILE_SAMPLE),
    )
    seed: int = Field(
        default=0,
        description="Of the choice of the sample and the pairs.",
        json_schema_extra=bounds(0),
    )


@router.post(
    "/pairs",
    response_class=Response,
    responses=shows("PairAnswer", kind=NDJSON),
)
async def pairs(request: Request, name: str, body: PairsBody) -> Response:
    """Find the pairs of items at least so similar, most similar first; one line a pair."""
    service = service_of(request)
    service.startup.require_kernels()
    collection = service.collection(name)
    _check(body)

    stop = threading.Event()

    def work() -> list[tuple[str, str, float]]:
        return collection.pairs(
            min_score=body.min_score, recall=body.recall, limit=body.limit, stop=stop
        )

    found = await service.workers.joins.run_while_awaited(work, stop, request.is_disconnected)
    return StreamingResponse(_lines(found), media_type=NDJSON)


def _check(body: PairsBody) -> None:
    for name, value in (("min_score", body.min_score), ("recall", body.recall)):
        if not 0 < value <= 1:
            raise ix.InvalidParameter(expected="a number in (0, 1]", got=repr(value), loc=(name,))
    if body.limit is not None and body.limit < 1:
        raise ix.InvalidParameter(expected="at least 1", got=str(body.limit), loc=("limit",))


async def _lines(found: list[tuple[str, str, float]]) -> AsyncIterator[bytes]:
    for first in range(0, len(found), _LINES_A_PIECE):
        piece = found[first : first + _LINES_A_PIECE]
        yield b"".join(json_bytes({"a": a, "b": b, "score": s}) + b"\n" for a, b, s in piece)


@router.post("/map", responses=shows("MapAnswer"))
async def show_map(request: Request, name: str, body: MapBody) -> Response:
    """Give a sample of items, and others, places in a plane and neighbours within the sample.

    Places are those of kernel PCA by the exact GMM.
    """
    service = service_of(request)
    service.startup.require_kernels()
    collection = service.collection(name)
    where, _ = requests.condition(body.filter, service.settings)
    also = [requests.point_to_map(each, service.settings, i) for i, each in enumerate(body.also)]
    params = ix.MapParams(**{each.name: getattr(body, each.name) for each in fields(ix.MapParams)})

    def work() -> Response:
        found = collection.map_items(params, where, also)
        return JsonResponse(map_json(found))

    return await service.workers.analyses.run(work)


@router.post("/profile", responses=shows("ProfileAnswer"))
async def show_profile(request: Request, name: str, body: ProfileBody) -> Response:
    """Show how similar items are, how full their vectors, and how large their buckets.

    Histograms are of a sample of items, under the collection's transform.
    """
    service = service_of(request)
    service.startup.require_kernels()
    collection = service.collection(name)

    def work() -> Response:
        found = collection.profile(body.sample, body.seed)
        return JsonResponse(found)

    return await service.workers.analyses.run(work)


@router.post("/sketch", responses=shows("SketchAnswer"))
async def sketch(request: Request, name: str, body: SketchBody) -> Response:
    """Hash vectors with the collection's own randomness."""
    service = service_of(request)
    collection = service.collection(name)

    def work() -> Response:
        parts = requests.with_unknown_apart(body.vectors, collection, service.settings, "vectors")
        answer: dict[str, Any] = {}
        size = AnswerBytes(service.settings.max_answer_bytes)
        for rows, vectors in (run for part in parts for run in _runs(*part)):
            try:
                sketched = collection.sketch(vectors, body.encoding)
            except ix.InvalidVector as error:
                error.move_row(rows.__getitem__, "vectors")
                raise
            for word, found in _columns(sketched, body.encoding).items():
                size.add_integers(found)
                whole = answer.setdefault(
                    word, np.empty((len(body.vectors), found.shape[1]), found.dtype)
                )
                whole[rows] = found
        return JsonResponse(answer)

    return await service.workers.batches.run(work)


def _runs(
    rows: list[int], vectors: ix.RawBatch | ix.SparseVector
) -> Iterator[tuple[list[int], ix.RawBatch | ix.SparseVector]]:
    """Yield vectors in runs that are hashed before their answer is counted."""
    if isinstance(vectors, ix.SparseVector) or len(rows) <= _VECTORS_AT_ONCE:
        yield rows, vectors
        return
    for first in range(0, len(rows), _VECTORS_AT_ONCE):
        run = slice(first, first + _VECTORS_AT_ONCE)
        yield rows[run], vectors[run]


def _columns(sketched: Any, encoding: str) -> dict[str, Any]:  # noqa: ANN401
    """Return the samples of vectors as the answer has them."""
    match encoding:
        case "full":
            return {"slots": sketched.slots, "levels": sketched.levels}
        case "zero_bit":  # the code of 0 bits of t* is i* itself
            return {"slots": sketched.slots, "codes": sketched.slots}
    return {"codes": sketched}
