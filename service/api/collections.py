"""Collections: list, create, describe, annotate, drop; their names, and what recall costs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query, Request, Response

from gcws_search import index as ix
from gcws_search.service.api import requests
from gcws_search.service.api.bodies import (
    CreateBody,
    CurveParams,
    NamesBody,
    NamesParams,
    PatchBody,
)
from gcws_search.service.contract import CollectionProtocol
from gcws_search.service.http import json_router, may_read, may_write, service_of
from gcws_search.service.limits import require_at_most
from gcws_search.service.responses import (
    READ_PROBLEMS,
    WRITE_PROBLEMS,
    JsonResponse,
    collection_json,
    shows,
)

reading = json_router("/v1/collections", "collections", may_read, READ_PROBLEMS)
writing = json_router("/v1/collections", "collections", may_write, WRITE_PROBLEMS)


@reading.get("", responses=shows("CollectionList"))
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
    return JsonResponse({"collections": collections})


@writing.put("/{name}", responses=shows("CollectionAnswer", 200, 201))
async def create_collection(request: Request, name: str, body: CreateBody) -> Response:
    """Create a collection: 201, or 200 when it is there with this very configuration."""
    service = service_of(request)
    config = requests.config(body, service.settings)
    collection, is_new = await service.workers.writes.run(service.create, name, config)
    description = await service.workers.searches.run(collection_json, collection)
    return JsonResponse(description, 201 if is_new else 200)


@reading.get("/{name}", responses=shows("CollectionAnswer"))
async def describe_collection(request: Request, name: str) -> Response:
    """Show a collection's configuration, its exact item count, its sizes and statistics."""
    service = service_of(request)
    collection = service.collection(name)
    return JsonResponse(await service.workers.searches.run(collection_json, collection))


@writing.patch("/{name}", responses=shows("CollectionAnswer"))
async def change_collection(request: Request, name: str, body: PatchBody) -> Response:
    """Replace the metadata of a collection: any JSON object, which every reader is shown.

    Its `view` says how items are shown; null removes the metadata.
    """
    service = service_of(request)
    collection = service.collection(name)
    metadata = requests.metadata(body.metadata, collection.config.dim)
    service.room.require()
    await service.workers.writes.run(collection.replace_metadata, metadata)
    return JsonResponse(await service.workers.searches.run(collection_json, collection))


@reading.get("/{name}/recall", responses=shows("RecallAnswer"))
async def show_recall(request: Request, name: str) -> Response:
    """Show recall asked against recall found: some queries are answered exactly as well."""
    service = service_of(request)
    collection = service.collection(name)
    found = await service.workers.searches.run(collection.audited)
    allowance = [{"limit": limit, "share": share} for limit, share in found.allowance]
    audited = {"audited": [*map(asdict, found.results)], "allowance": allowance}
    return JsonResponse({**audited, "waiting": found.waiting})


@reading.get("/{name}/curve", responses=shows("CurveAnswer"))
async def show_curve(
    request: Request, name: str, params: Annotated[CurveParams, Query()]
) -> Response:
    """Show what recall costs for a limit, as calibrated: candidates and time of a query.

    Without a neighbour graph there are no points, but the reason.
    """
    service = service_of(request)
    collection = service.collection(name)
    require_at_most(params.limit, service.settings.max_limit, "limit")
    curve = await service.workers.searches.run(collection.curve, params.limit)
    points = [point._asdict() for point in curve.points]
    return JsonResponse({**asdict(curve), "points": points})


@writing.put("/{name}/names", responses=shows("NamesAnswer"))
async def set_names(request: Request, name: str, body: NamesBody) -> Response:
    """Give a collection of fixed `dim` the names of its coordinates, in the place of all before.

    An open slot space takes names from its items.
    """
    service = service_of(request)
    collection = service.collection(name)
    service.room.require()
    await service.workers.writes.run(collection.set_names, body.names)
    found = await service.workers.searches.run(collection.find_names)
    return JsonResponse(_name(collection, found))


@reading.get("/{name}/names", responses=shows("NamesAnswer"))
async def list_names(
    request: Request, name: str, params: Annotated[NamesParams, Query()]
) -> Response:
    """Show names of coordinates: the first, those of a prefix, or those of some indices."""
    service = service_of(request)
    collection = service.collection(name)
    limit, max_limit = params.limit, service.settings.max_page_limit
    require_at_most(limit, max_limit, "limit")
    if params.indices is not None:
        found = collection.names.of(requests.indices(params, max_limit))
    else:
        prefix = params.prefix or ""
        found = await service.workers.searches.run(collection.find_names, prefix, limit)
    return JsonResponse(_name(collection, found))


def _name(collection: CollectionProtocol, found: Sequence[ix.NamedCoordinate]) -> dict[str, Any]:
    named = [{"index": index, "name": name} for index, name in found]
    return {"names": named, "count": len(collection.names)}


@writing.delete("/{name}", status_code=204)
async def drop_collection(request: Request, name: str) -> Response:
    """Drop a collection; its file is gone."""
    service = service_of(request)
    await service.workers.writes.run(service.catalog.drop, name)
    return Response(status_code=204)
