"""The service with two more endpoints: they parse a query, or items, and return a constant.

``python -m benchmarks.harness.constant`` serves it like ``gcws-search serve``: same application,
same server, same settings. It is the upper limit of an endpoint's speed.
"""

import sys
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request, Response

from gcws_search.service import app as application, cli
from gcws_search.service.api.items import PutItemsBody
from gcws_search.service.api.query import QueryBody
from gcws_search.service.app import create_app
from gcws_search.service.http import JsonResponse, JsonRoute, may_read
from gcws_search.service.settings import Settings

HITS: Final = [{"id": str(12345 + i), "score": 0.123456789, "payload": None} for i in range(10)]

router = APIRouter(dependencies=[Depends(may_read)], route_class=JsonRoute)


@router.post("/v1/collections/{name}/constant")
async def constant(request: Request, name: str, body: QueryBody) -> Response:
    """Answer like a query, without a search."""
    del request, name, body
    return JsonResponse({"hits": HITS})


@router.put("/v1/collections/{name}/constant")
async def constant_put(request: Request, name: str, body: PutItemsBody) -> Response:
    """Answer as if items were stored."""
    del request, name
    return JsonResponse({"inserted": len(body.items), "updated": 0})


def create_app_with_constant(settings: Settings, **parts: Any) -> FastAPI:  # noqa: ANN401
    """Return the application; its constant endpoints are matched as early as that for queries."""
    app = create_app(settings, **parts)
    app.router.routes[:0] = router.routes
    return app


if __name__ == "__main__":
    setattr(application, "create_app", create_app_with_constant)  # noqa: B010
    cli.cli(["serve", *sys.argv[1:]])
