"""Backends of one collection, side by side."""

from dataclasses import asdict

from fastapi import APIRouter, Depends, Request, Response

import index as ix
from service import parsing
from service.answers import CompareAnswer
from service.dependencies import may_read, service_of
from service.responses import BODY_PROBLEMS, json_response
from service.routing import JsonRoute
from service.schemas import CompareBody

router = APIRouter(
    prefix="/v1/collections/{name}", tags=["backends"], dependencies=[Depends(may_read)],
    responses=BODY_PROBLEMS, route_class=JsonRoute,
)  # fmt: skip


@router.post("/compare", response_model=CompareAnswer)
async def compare(request: Request, name: str, body: CompareBody) -> Response:
    """Ask the same of several backends: what each finds of the exact neighbours, and its cost."""
    service = service_of(request)
    collection = service.collection(name)
    limits = service.limits
    params, sample = parsing.comparison(body, limits)

    def work() -> Response:
        sent = body.queries
        queries = (
            None if sent is None else parsing.vectors(sent, collection.space, limits, "queries")
        )
        try:
            found = collection.compare(
                queries, params, sample=sample, seed=body.seed, backends=body.backends
            )
        except ix.InvalidVector as error:
            raise parsing.within(error, "queries") from None
        return json_response(
            {
                "queries": len(found.similarities),
                "limit": params.limit,
                "recall": params.recall,
                "backends": [asdict(each) for each in found.backends],
                "mean_similarity": found.similarities,
            }
        )

    return await service.workers.joins.run(work)
