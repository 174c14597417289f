"""Comparison backends: attach, drop, compare."""

import threading
from dataclasses import asdict

import numpy as np
from fastapi import Request, Response

from gcws_search import index as ix
from gcws_search.service.api import requests
from gcws_search.service.api.bodies import AttachBody, CompareBody
from gcws_search.service.http import json_router, may_read, may_write, service_of
from gcws_search.service.responses import BODY_PROBLEMS, WRITE_PROBLEMS, JsonResponse, shows

writing = json_router("/v1/collections/{name}/backends", "backends", may_write, WRITE_PROBLEMS)

reading = json_router("/v1/collections/{name}", "backends", may_read, BODY_PROBLEMS)


@writing.post("", status_code=201, responses=shows("BackendAnswer", 201))
async def attach_backend(request: Request, name: str, body: AttachBody) -> Response:
    """Attach a comparison backend: it is made from the stored vectors, beside queries and writes.

    The answer comes when it is ready; until then `GET /v1/collections/{name}` shows its progress.
    """
    service = service_of(request)
    service.startup.require_kernels()
    collection = service.collection(name)
    params = requests.params_to_attach(body)
    service.room.require()
    described = await service.workers.builds.run(collection.attach, params, body.name)
    return JsonResponse(asdict(described), 201)


@writing.delete("/{backend}", status_code=204)
async def drop_backend(request: Request, name: str, backend: str) -> Response:
    """Drop a comparison backend; its memory is given back. One that is being made is left off."""
    service = service_of(request)
    collection = service.collection(name)
    await service.workers.writes.run(collection.detach, backend)
    return Response(status_code=204)


@reading.post("/compare", responses=shows("CompareAnswer"))
async def compare(request: Request, name: str, body: CompareBody) -> Response:
    """Ask the same of several backends: what each finds of the exact neighbours, and its cost."""
    service = service_of(request)
    service.startup.require_kernels()
    collection = service.collection(name)
    limits = service.settings
    params, sample = requests.comparison(body, limits)
    stop = threading.Event()

    def work() -> Response:
        queries, order = None, []
        if body.queries is not None:
            parts = requests.with_unknown_apart(body.queries, collection, limits, "queries")
            queries = [vectors for _, vectors in parts]
            order = [number for numbers, _ in parts for number in numbers]
        try:
            found = collection.compare(
                queries, params, sample=sample, seed=body.seed, backends=body.backends, stop=stop
            )
        except ix.InvalidVector as error:
            error.move_row(order.__getitem__, "queries")
            raise
        similarities = found.similarities
        if order:
            similarities = similarities[np.argsort(order)]
        return JsonResponse(
            {
                "queries": len(similarities),
                "limit": params.limit,
                "recall": params.recall,
                "backends": [asdict(each) for each in found.backends],
                "mean_similarity": similarities,
            }
        )

    return await service.workers.joins.run_while_awaited(work, stop, request.is_disconnected)
