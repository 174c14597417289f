"""The page at the root, the API page, and their files: none needs a key, for none holds data."""

import asyncio
from functools import cache
from typing import Final

from fastapi import APIRouter, Request, Response

from gcws_search.service.api.health import show_service
from gcws_search.service.errors import RouteNotFound
from gcws_search.service.execution.context import may_read
from gcws_search.service.page.assets import Asset, Assets

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; worker-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""What the page may load, and from where."""
_SAFE: Final = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@cache
def assets() -> Assets:
    """Return the files of the page, which are read at the first request for one."""
    return Assets()


@router.get("/")
async def show_root(request: Request) -> Response:
    """Show the page to a browser; say what the service is to all others."""
    if _wants_html(request):
        return await _answer(request, assets().document("index.html"), "no-cache")
    await may_read(request)
    found = await show_service(request)
    found.headers["Vary"] = "Accept"
    return found


@router.get("/docs")
async def show_api_page(request: Request) -> Response:
    """Show the API page."""
    return await _answer(request, assets().document("docs.html"), "no-cache")


@router.get("/page/{version}/{name:path}")
async def show_asset(request: Request, version: str, name: str) -> Response:
    """Show a file of the page, cached for ever: its address names its contents."""
    found = assets().find(name) if version == assets().version else None
    if found is None:
        raise RouteNotFound(f"expected a file of the page, got {request.url.path!r}")
    return await _answer(request, found, _FOR_EVER)


def _wants_html(request: Request) -> bool:
    kinds = request.headers.get("accept", "").split(",")
    return any(kind.partition(";")[0].strip().lower() == "text/html" for kind in kinds)


async def _answer(request: Request, asset: Asset, caching: str) -> Response:
    headers = _SAFE | {"Cache-Control": caching, "Vary": "Accept, Accept-Encoding"}
    body = asset.body
    if "gzip" in request.headers.get("accept-encoding", ""):
        body = await asyncio.to_thread(lambda: asset.compressed)
        headers["Content-Encoding"] = "gzip"
    return Response(body, headers=headers, media_type=asset.media_type)
