"""The page at the root, the API page, and their files: without data, so they need no key."""

import asyncio
import gzip
import hashlib
import importlib.util
from functools import cache
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request, Response

from gcws_search.service.api.health import show_service
from gcws_search.service.errors import Refused
from gcws_search.service.http import may_read

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; "
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
_DOCUMENTS: Final = ("index.html", "docs.html")
_DIGITS: Final = 16

router = APIRouter(include_in_schema=False)


def read_files() -> dict[str, bytes]:
    """Return all files of the page by name, such as ``vendor/uplot.js``."""
    folder = Path(__file__).parents[1] / "page" / "static"
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.suffix in _MEDIA_TYPES
    }
    package = importlib.util.find_spec("fastapi_offline")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("expected the package fastapi-offline, got none")
    for name in _API_PAGE:
        found[f"vendor/{name}"] = (Path(package.origin).parent / "static" / name).read_bytes()
    return found


def version_of(files: dict[str, bytes]) -> str:
    """Return a hash of all names and contents."""
    whole = hashlib.sha256()
    for name, body in sorted(files.items()):
        whole.update(f"{name}\0{len(body)}\0".encode() + body)
    return whole.hexdigest()[:_DIGITS]


@cache
def _load() -> tuple[str, dict[str, bytes]]:
    """Return the version of the page and its files, which are read at the first request.

    Documents contain the address of the other files, relative to the root.
    """
    files = read_files()
    version = version_of(files)
    for name in _DOCUMENTS:
        files[name] = files[name].replace(_PLACEHOLDER, f"page/{version}".encode())
    return version, files


@cache
def _compress(body: bytes) -> bytes:
    return gzip.compress(body, 9, mtime=0)


@router.get("/")
async def show_root(request: Request) -> Response:
    """Show the page to a browser; say what the service is to all others."""
    if _wants_html(request):
        return await _answer(request, "index.html", "no-cache")
    await may_read(request)
    found = await show_service(request)
    found.headers["Vary"] = "Accept"
    return found


@router.get("/docs")
async def show_api_page(request: Request) -> Response:
    """Show the API page."""
    return await _answer(request, "docs.html", "no-cache")


@router.get("/page/{version}/{name:path}")
async def show_asset(request: Request, version: str, name: str) -> Response:
    """Show a file of the page, cached for ever: its address names its contents."""
    current, files = _load()
    if version != current or name not in files:
        detail = f"expected a file of the page, got {request.url.path!r}"
        raise Refused("route_not_found", detail)
    return await _answer(request, name, _FOR_EVER)


def _wants_html(request: Request) -> bool:
    kinds = request.headers.get("accept", "").split(",")
    return any(kind.partition(";")[0].strip().lower() == "text/html" for kind in kinds)


async def _answer(request: Request, name: str, caching: str) -> Response:
    headers = _SAFE | {"Cache-Control": caching, "Vary": "Accept, Accept-Encoding"}
    body = _load()[1][name]
    if "gzip" in request.headers.get("accept-encoding", ""):
        body = await asyncio.to_thread(_compress, body)
        headers["Content-Encoding"] = "gzip"
    return Response(body, headers=headers, media_type=_MEDIA_TYPES[Path(name).suffix])
