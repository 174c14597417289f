"""Checksums of what a file holds: damage the file system does not tell of is found by these."""

from __future__ import annotations

import zlib
from collections.abc import Sequence


def content_checksum(item_id: bytes, vector: bytes, payload: bytes | None) -> int:
    """Return the CRC-32 of an item as it is stored, its key and codes left out."""
    size = -1 if payload is None else len(payload)
    head = zlib.crc32(b"%d %d %d %b" % (len(item_id), len(vector), size, item_id))
    found = zlib.crc32(vector, head)
    return zlib.crc32(payload, found) if payload else found


def content_checksums(
    ids: Sequence[str], vectors: Sequence[bytes], payloads: Sequence[bytes | None]
) -> list[int]:
    """Return `content_checksum` of each item."""
    return [
        content_checksum(item_id.encode(), vector, payload)
        for item_id, vector, payload in zip(ids, vectors, payloads, strict=True)
    ]


def codes_checksum(codes: bytes) -> int:
    """Return the CRC-32 of an item's codes, which can be made anew from its vector."""
    return zlib.crc32(codes)


def backend_checksum(name: str, kind: str, params: str) -> int:
    """Return the CRC-32 of a comparison backend, what is kept of its index left out."""
    return text_checksum("\n".join(map(str, (name, kind, params))))


def text_checksum(text: str) -> int:
    """Return the CRC-32 of a text."""
    return zlib.crc32(text.encode())
