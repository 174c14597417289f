"""Payloads: JSON objects, kept as compact text."""

import json
import re
from typing import Final

import orjson

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


def compact(payload: bytes | None) -> bytes | None:
    """Return a payload in as many bytes of memory as it is long.

    What orjson returns keeps the buffer it was written to, 4 KiB at least (orjson 3.13).
    """
    return None if payload is None else bytes(memoryview(payload))
