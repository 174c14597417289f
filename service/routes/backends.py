"""Comparison backends: attach, drop."""

from dataclasses import asdict

from fastapi import APIRouter, Depends, Request, Response

from service import configuring
from service.backend_schemas import AttachBody
from service.collection_answers import BackendAnswer
from service.dependencies import may_write, service_of
from service.responses import WRITE_PROBLEMS, json_response
from service.routing import JsonRoute

router = APIRouter(
    prefix="/v1/collections/{name}/backends", tags=["backends"],
    dependencies=[Depends(may_write)], responses=WRITE_PROBLEMS, route_class=JsonRoute,
)  # fmt: skip


@router.post("", status_code=201, response_model=BackendAnswer)
async def attach_backend(request: Request, name: str, body: AttachBody) -> Response:
    """Attach a comparison backend: it is made from the stored vectors, beside queries and writes.

    The answer comes when it is ready; until then `GET /v1/collections/{name}` shows its progress.
    """
    service = service_of(request)
    collection = service.collection(name)
    params = configuring.attached(body)
    service.room.require()
    described = await service.workers.builds.run(collection.attach, params, body.name)
    return json_response(asdict(described), 201)


@router.delete("/{backend}", status_code=204)
async def drop_backend(request: Request, name: str, backend: str) -> Response:
    """Drop a comparison backend; its memory is given back. One that is being made is left off."""
    service = service_of(request)
    collection = service.collection(name)
    await service.workers.writes.run(collection.detach, backend)
    return Response(status_code=204)
