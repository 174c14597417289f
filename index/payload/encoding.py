"""Payloads: JSON objects, kept as compact text."""

from typing import Any

import orjson

from gcws_search.index.contracts.errors import InvalidPayload, Loc


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
