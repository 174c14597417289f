"""The page at the root, the API page, and their files: none needs a key, for none holds data."""

import asyncio
import gzip
import hashlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request, Response

from gcws_search.service.api.health import show_service
from gcws_search.service.errors import RouteNotFound
from gcws_search.service.http import may_read

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

_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""What a browser is served; all other files of the folder stay."""
_API_PAGE: Final = ("swagger-ui-bundle.js", "swagger-ui.css")
"""Files of the package ``fastapi_offline``."""
_PLACEHOLDER: Final = b"{assets}"
"""Stands in HTML for the address of the files."""
_DIGITS: Final = 16

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Asset:
    """One file as it is served."""

    body: bytes
    media_type: str

    @cached_property
    def compressed(self) -> bytes:
        """The body in gzip."""
        return gzip.compress(self.body, mtime=0)


class Assets:
    """All files of the page by their names, such as ``vendor/uplot.js``.

    ``version`` is a hash of all names and contents.
    """

    def __init__(self) -> None:
        self.files = dict(_files())
        whole = hashlib.sha256()
        for name, asset in sorted(self.files.items()):
            whole.update(f"{name}\0{len(asset.body)}\0".encode() + asset.body)
        self.version = whole.hexdigest()[:_DIGITS]

    def document(self, name: str) -> Asset:
        """Return an HTML file with the address of the others, relative to the root, in it."""
        found = self.files[name]
        address = f"page/{self.version}".encode()
        return Asset(found.body.replace(_PLACEHOLDER, address), found.media_type)


def _files() -> Iterator[tuple[str, Asset]]:
    folder = Path(__file__).parents[1] / "page" / "static"
    for path in folder.rglob("*"):
        if path.suffix in _MEDIA_TYPES:
            yield path.relative_to(folder).as_posix(), _asset(path)
    found = importlib.util.find_spec("fastapi_offline")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("expected the package fastapi-offline, got none")
    for name in _API_PAGE:
        yield f"vendor/{name}", _asset(Path(found.origin).parent / "static" / name)


def _asset(path: Path) -> Asset:
    return Asset(path.read_bytes(), _MEDIA_TYPES[path.suffix])


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
    found = assets().files.get(name) if version == assets().version else None
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
