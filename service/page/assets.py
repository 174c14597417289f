"""The files of the page: read once, compressed once, and told apart by a hash of them all."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

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
        self._files = dict(_files())
        whole = hashlib.sha256()
        for name, asset in sorted(self._files.items()):
            whole.update(f"{name}\0{len(asset.body)}\0".encode() + asset.body)
        self.version = whole.hexdigest()[:_DIGITS]

    @property
    def names(self) -> list[str]:
        """All names."""
        return [*self._files]

    def find(self, name: str) -> Asset | None:
        """Return the file of a name, None where there is none."""
        return self._files.get(name)

    def document(self, name: str) -> Asset:
        """Return an HTML file with the address of the others, relative to the root, in it."""
        found = self._files[name]
        address = f"page/{self.version}".encode()
        return Asset(found.body.replace(_PLACEHOLDER, address), found.media_type)


def _files() -> Iterator[tuple[str, Asset]]:
    folder = Path(__file__).with_name("static")
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
