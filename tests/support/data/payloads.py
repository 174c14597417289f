"""Payloads as items have them: compact JSON text, or none."""

from typing import Any

import orjson


def encode_payload(value: object) -> bytes | None:
    return None if value is None else orjson.dumps(value)


def decode_payload(payload: bytes | None) -> dict[str, Any] | None:
    return None if payload is None else orjson.loads(payload)
