"""Metadata: a JSON object that callers keep with a collection, in its file."""

from __future__ import annotations

from typing import Final

from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.saved_index import without_checksum
from gcws_search.index.payload.encoding import is_payload

MAX_BYTES: Final = 1 << 16
"""Of the JSON text."""


def metadata_of(text: str) -> bytes:
    """Return metadata of what a file holds; ValueError where that is not what was written."""
    document = without_checksum(text)
    if len(document) > MAX_BYTES or not is_payload(document):
        raise ValueError(f"no JSON object of at most {MAX_BYTES} bytes")
    return document


def check_metadata(value: bytes | None) -> None:
    """Raise InvalidParameter where metadata are longer than `MAX_BYTES`, or no object."""
    if value is not None and len(value) > MAX_BYTES:
        raise InvalidParameter(
            expected=f"at most {MAX_BYTES} bytes of JSON",
            got=f"{len(value)} bytes",
            loc=("metadata",),
        )
    if value is not None and not is_payload(value):
        raise InvalidParameter(expected="a JSON object", got="none", loc=("metadata",))
