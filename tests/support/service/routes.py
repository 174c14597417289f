"""Every route there is, and a body that each takes."""

from collections.abc import Iterator
from typing import Final

from fastapi.routing import APIRoute

from gcws_search.service.app import create_app
from gcws_search.service.settings import Settings
from tests.support.service.client import Json

OPEN: Final = {"/livez", "/readyz", "/healthz"}
SENT: Final[dict[str, Json]] = {
    "/v1/collections/{name}": {"dim": 4},
    "/v1/collections/{name}/names": {"names": ["one"]},
    "/v1/collections/{name}/items": {"items": [{"id": "a", "vector": [1, 2, 3, 4]}]},
    "/v1/collections/{name}/items/delete": {"ids": ["x"]},
    "/v1/collections/{name}/query": {"vector": [1, 2, 3, 4]},
    "/v1/collections/{name}/query/batch": {"queries": [{"vector": [1, 2, 3, 4]}]},
    "/v1/collections/{name}/count": {"filter": None},
    "/v1/collections/{name}/explain": {"a": {"vector": [1, 2, 3, 4]}, "b": {"id": "a"}},
    "/v1/collections/{name}/map": {"sample": 2},
    "/v1/collections/{name}/profile": {"sample": 2},
    "/v1/collections/{name}/pairs": {"min_score": 0.5},
    "/v1/collections/{name}/groups": {"min_score": 0.5},
    "/v1/collections/{name}/join": {"collection": "plants", "min_score": 0.5},
    "/v1/collections/{name}/sketch": {"vectors": [[1, 2, 3, 4]]},
    "/v1/collections/{name}/backends": {"kind": "rff"},
    "/v1/collections/{name}/compare": {"sample": 2},
    "/v1/similarity": {"a": [1], "b": [1]},
}


def routes() -> Iterator[tuple[str, str]]:
    """Yield the method and path of every route, those that drop things last."""
    found = [
        (method, route.path)
        for route in create_app(Settings()).routes
        if isinstance(route, APIRoute) and route.include_in_schema  # the page holds no data
        for method in route.methods or ()
    ]
    yield from sorted(found, key=lambda route: (route[0] == "DELETE", -len(route[1]), route))


GUARDED: Final = [route for route in routes() if route[1] not in OPEN]
"""Method and path of every route that asks for a key."""
