"""Liveness, readiness, information on the service, and metrics."""

import asyncio
from dataclasses import asdict

from fastapi import APIRouter, Depends, Request, Response

from gcws_search.service.http import JsonResponse, json_router, may_read, permission_of, service_of
from gcws_search.service.models import reference
from gcws_search.service.responses import JSON, json_bytes, problem_responses, shows
from gcws_search.version import program_version

router = APIRouter(tags=["health"])
service_router = json_router("", "health", may_read, problem_responses(401, 403, 422))
metrics_router = APIRouter(tags=["health"], dependencies=[Depends(may_read)])


@router.get("/livez", responses=shows("Health"))
async def livez(request: Request) -> Response:
    """Report that the process answers."""
    return JsonResponse({"status": "ok", "phase": service_of(request).startup.progress.phase})


@router.get("/healthz", responses=shows("Health"))
async def healthz(request: Request) -> Response:
    """Report the same as /livez."""
    return await livez(request)


@router.get("/readyz", responses=shows("Readiness", 200, 503))
async def readyz(request: Request) -> Response:
    """Report 200 once all collections are loaded and kernels compiled, else 503 with progress."""
    service = service_of(request)
    progress, cluster = service.startup.progress, service.cluster
    document = {word: value for word, value in asdict(progress).items() if value is not None}
    if cluster is not None:
        document["database"] = "reachable" if cluster.is_store_reachable else "unreachable"
    if progress.phase == "ready":
        return JsonResponse(document)
    return Response(json_bytes(document), 503, {"Retry-After": "1"}, media_type=JSON)


@service_router.get("/v1", responses=shows("ServiceAnswer"))
async def show_service(request: Request) -> Response:
    """Show the service, the progress of its start, and the rights of the key.

    It answers as soon as the process starts. If keys are set it needs one, like every route.
    """
    service = service_of(request)
    return JsonResponse(
        {
            "name": "gcws-search",
            "version": program_version(),
            "phase": service.startup.progress.phase,
            "permits": permission_of(request),
            "keys": service.keys.are_set,
        }
    )


@metrics_router.get(
    "/metrics",
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **problem_responses(401, 403),
    },
    response_class=Response,
)
async def metrics(request: Request) -> Response:
    """Counters in Prometheus' text form."""
    service = service_of(request)
    text = await asyncio.to_thread(service.metrics.text)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@metrics_router.get(
    "/metrics/targets",
    responses={
        200: {
            "content": {
                JSON: {"schema": {"type": "array", "items": reference("Target"), "examples": [[]]}}
            }
        },
        **problem_responses(401, 403),
    },
)
async def targets(request: Request) -> Response:
    """List the shards of a cluster for Prometheus service discovery; empty for a single process."""
    cluster = service_of(request).cluster
    return JsonResponse([] if cluster is None else cluster.targets())
