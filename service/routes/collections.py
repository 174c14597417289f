"""Collections: list, create, describe, drop."""

from fastapi import APIRouter, Depends, Request, Response

from gcws_search.service.execution.context import may_read, may_write, service_of
from gcws_search.service.http.json_route import JsonRoute
from gcws_search.service.http.responses import READ_PROBLEMS, WRITE_PROBLEMS, json_response
from gcws_search.service.schemas.collections import CollectionAnswer, CollectionList
from gcws_search.service.schemas.requests import CreateBody
from gcws_search.service.translate import configurations, results

reading = APIRouter(
    prefix="/v1/collections",
    tags=["collections"],
    dependencies=[Depends(may_read)],
    responses=READ_PROBLEMS,
    route_class=JsonRoute,
)
writing = APIRouter(
    prefix="/v1/collections",
    tags=["collections"],
    dependencies=[Depends(may_write)],
    responses=WRITE_PROBLEMS,
    route_class=JsonRoute,
)


@reading.get("", response_model=CollectionList)
async def list_collections(request: Request) -> Response:
    """List all collections."""
    service = service_of(request)
    summaries = await service.workers.searches.run(service.catalog.list)
    collections = [
        {
            "name": summary.name,
            "items": summary.items,
            "dim": summary.dim,
            "backends": summary.backends,
            "bytes": summary.bytes_on_disk,
        }
        for summary in summaries
    ]
    return json_response({"collections": collections})


@writing.put(
    "/{name}", response_model=CollectionAnswer, responses={201: {"model": CollectionAnswer}}
)
async def create_collection(request: Request, name: str, body: CreateBody) -> Response:
    """Create a collection: 201, or 200 when it is there with this very configuration."""
    service = service_of(request)
    config = configurations.config(body, service.limits)
    collection, is_new = await service.workers.writes.run(service.create, name, config)
    description = await service.workers.searches.run(results.describe, collection)
    return json_response(description, 201 if is_new else 200)


@reading.get("/{name}", response_model=CollectionAnswer)
async def describe_collection(request: Request, name: str) -> Response:
    """Show a collection's configuration, its exact item count, its sizes and statistics."""
    service = service_of(request)
    collection = service.collection(name)
    return json_response(await service.workers.searches.run(results.describe, collection))


@writing.delete("/{name}", status_code=204)
async def drop_collection(request: Request, name: str) -> Response:
    """Drop a collection; its file is gone."""
    service = service_of(request)
    await service.workers.writes.run(service.catalog.drop, name)
    return Response(status_code=204)
