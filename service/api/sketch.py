"""Sketch vectors: their samples, for use outside of the service."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from fastapi import Request, Response

from gcws_search import index as ix
from gcws_search.service.api import requests
from gcws_search.service.api.answers import SketchAnswer
from gcws_search.service.api.bodies import SketchBody
from gcws_search.service.http import json_router, may_read, service_of
from gcws_search.service.limits import AnswerBytes
from gcws_search.service.responses import BODY_PROBLEMS, JsonResponse

_VECTORS_AT_ONCE: Final = 1024
router = json_router("/v1/collections/{name}", "search", may_read, BODY_PROBLEMS)


@router.post("/sketch", response_model=SketchAnswer)
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
