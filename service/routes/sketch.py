"""The samples of vectors, for those who want to hash elsewhere."""

from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from gcws_search import index as ix
from gcws_search.service.execution.context import may_read, service_of
from gcws_search.service.http.json_route import JsonRoute
from gcws_search.service.http.responses import BODY_PROBLEMS, json_response
from gcws_search.service.schemas.answers import SketchAnswer
from gcws_search.service.schemas.requests import SketchBody
from gcws_search.service.translate import requests

router = APIRouter(
    prefix="/v1/collections/{name}",
    tags=["search"],
    dependencies=[Depends(may_read)],
    responses=BODY_PROBLEMS,
    route_class=JsonRoute,
)


@router.post("/sketch", response_model=SketchAnswer)
async def sketch(request: Request, name: str, body: SketchBody) -> Response:
    """Hash vectors with the collection's own randomness."""
    service = service_of(request)
    collection = service.collection(name)
    most = service.settings.max_items_per_request
    if len(body.vectors) > most:
        raise ix.InvalidParameter(
            expected=f"at most {most}", got=str(len(body.vectors)), loc=("vectors",)
        )

    def work() -> Response:
        raw = requests.vectors(body.vectors, collection, "hash", service.limits, "vectors")
        try:
            found: Any = collection.sketch(raw, body.encoding)
        except ix.InvalidVector as error:
            raise requests.within(error, "vectors") from None
        match body.encoding:
            case "full":
                return json_response({"slots": found.slots, "levels": found.levels})
            case "zero_bit":  # the code of 0 bits of t* is i* itself
                return json_response({"slots": found.slots, "codes": found.slots})
        return json_response({"codes": found})

    return await service.workers.batches.run(work)
