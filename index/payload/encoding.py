"""Payloads: JSON objects, kept as compact text."""

import json
import re
from typing import Any, Final

import orjson

from gcws_search.index.contracts.errors import InvalidPayload, Loc

LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
"""A payload that has one may hold an integer beyond 64 bits, which orjson rounds or refuses."""


def encode_payload(value: object, *, loc: Loc = ()) -> bytes | None:
    """Return a payload's compact JSON text; None stays None.

    Raises
    ------
    InvalidPayload
        It is no JSON object: another type, keys that are no strings, integers beyond 64 bits.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidPayload(expected="a JSON object", got=_word(value), loc=loc)
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError) as error:
        raise InvalidPayload(expected="a JSON object", got=str(error), loc=loc) from error


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


def decode_payload(payload: bytes | None) -> dict[str, Any] | None:
    """Inverse of `encode_payload`."""
    if payload is None:
        return None
    document: dict[str, Any] = orjson.loads(payload)
    return document


def _word(value: object) -> str:
    words = {bool: "true or false", int: "a number", float: "a number", str: "a string"}
    return words.get(type(value), "a list" if isinstance(value, list) else type(value).__name__)
