"""Payloads and metadata: JSON objects, kept as compact text."""

import json
import re
from collections.abc import Sequence
from typing import Final

import orjson

from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.saved_index import without_checksum

LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
"""A payload that has one may hold an integer beyond 64 bits, which orjson rounds or refuses."""


def is_payload(payload: bytes) -> bool:
    """Return whether bytes are the JSON text of one object, by itself and among others."""
    text = b"[" + payload + b"]"
    try:
        documents = orjson.loads(text)
    except ValueError:
        if not LONG_NUMBER.search(payload):
            return False
        try:
            documents = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return False
    return len(documents) == 1 and isinstance(documents[0], dict)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def compact(payloads: Sequence[bytes | None]) -> list[bytes | None]:
    """Return payloads in as many bytes of memory as they are long.

    What orjson returns keeps the buffer it was written to, 4 KiB at least (orjson 3.13).
    """
    return [None if each is None else bytes(memoryview(each)) for each in payloads]


MAX_METADATA_BYTES: Final = 1 << 16
"""Of the JSON text that callers keep with a collection."""


def metadata_of(text: str) -> bytes:
    """Return metadata of what a file holds; ValueError where that is not what was written."""
    document = without_checksum(text)
    if len(document) > MAX_METADATA_BYTES or not is_payload(document):
        raise ValueError(f"no JSON object of at most {MAX_METADATA_BYTES} bytes")
    return document


def check_metadata(value: bytes | None) -> None:
    """Raise InvalidParameter where metadata are longer than `MAX_METADATA_BYTES`, or no object."""
    if value is not None and len(value) > MAX_METADATA_BYTES:
        raise InvalidParameter(
            expected=f"at most {MAX_METADATA_BYTES} bytes of JSON",
            got=f"{len(value)} bytes",
            loc=("metadata",),
        )
    if value is not None and not is_payload(value):
        raise InvalidParameter(expected="a JSON object", got="none", loc=("metadata",))
