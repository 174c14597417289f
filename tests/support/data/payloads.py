"""Payloads as items have them: compact JSON text, or none."""

import orjson


def encode_payload(value: object) -> bytes | None:
    return None if value is None else orjson.dumps(value)
