"""NDJSON: one item per line."""

import codecs
import io
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from gcws_search import index as ix
from gcws_search.service import models
from gcws_search.service.errors import BodyTooLarge, InvalidRequest, MalformedBody
from gcws_search.service.ingest.source import ItemRows, Reject, Source
from gcws_search.service.limits import require_short_id, require_short_payload
from gcws_search.service.models import ItemBody, point_of, require_short_vector
from gcws_search.service.settings import Settings

_Item: TypeAlias = tuple[str | None, bytes | None, ix.OneVector, int | None]


def lines(source: Source, max_line_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Yield the non-blank lines of a body, and the bytes up to the end of each.

    A byte order mark at the start is skipped.
    """
    parts: list[bytes] = []
    size = end = 0
    while chunk := source():
        for part in io.BytesIO(chunk):  # one at a time: a megabyte may contain a million
            parts.append(part)
            size += len(part)
            if size > max_line_bytes + part.endswith(b"\n"):
                raise BodyTooLarge(max_line_bytes, "a line")
            if part.endswith(b"\n"):
                line = b"".join(parts) if end else b"".join(parts).removeprefix(codecs.BOM_UTF8)
                end += size
                if not line.isspace():
                    yield line[:-1], end
                parts, size = [], 0
    line = b"".join(parts) if end else b"".join(parts).removeprefix(codecs.BOM_UTF8)
    if line and not line.isspace():
        yield line, end + size


def read_ndjson(
    source: Source, settings: Settings, clock: Callable[[], float] = time.time
) -> Iterator[ItemRows]:
    """Yield the chunks of an NDJSON body; its items expire by a clock."""
    numbers: list[int] = []
    items: list[_Item] = []
    rejects: list[Reject] = []
    size = end = 0
    for number, (line, end) in enumerate(lines(source, settings.max_line_bytes)):
        size += len(line)
        try:
            items.append(_item(line, settings, clock))
            numbers.append(number)
        except (InvalidRequest, MalformedBody, ix.InvalidInput) as error:
            rejects.append(Reject(number, error))
        if (
            len(numbers) + len(rejects) >= settings.load_chunk_rows
            or size >= settings.load_chunk_bytes
        ):
            yield _rows(numbers, items, rejects, end)
            numbers, items, rejects, size = [], [], [], 0
    if numbers or rejects:
        yield _rows(numbers, items, rejects, end)


def describe_line(source: Source, settings: Settings) -> dict[str, Any]:
    """Return the fields of items in the first line of an NDJSON body."""
    line, _ = next(lines(source, settings.max_line_bytes), (b"", 0))
    item = models.parse(ItemBody, line, settings)
    if item.text is not None:
        return {"holds": "texts", "dim": None}
    given = point_of(item.point())
    is_sparse = isinstance(given, ix.SparseVector)
    return {"holds": "vectors", "dim": None if is_sparse else len(given)}


def _item(line: bytes, settings: Settings, clock: Callable[[], float]) -> _Item:
    item = models.parse(ItemBody, line, settings)
    item_id = None if item.id is None else str(item.id)
    if item_id is not None:
        require_short_id(item_id, settings, "id")
    given, payload = item.point(), item.stored_payload()
    require_short_vector(given, settings, "vector" if item.text is None else "text")
    require_short_payload(payload, settings, "payload")
    expires = ix.expiry_ms(item.expires, now=clock())
    return item_id, payload, point_of(given), expires


def _rows(numbers: list[int], items: list[_Item], rejects: list[Reject], end: int) -> ItemRows:
    ids, payloads = [item_id for item_id, *_ in items], [payload for _, payload, *_ in items]
    vectors = ix.InputVectors(mixed=[vector for _, _, vector, _ in items])
    expires = [at for *_, at in items]
    if expires.count(None) == len(expires):
        expires = []
    return ItemRows(np.array(numbers, np.int64), ids, payloads, vectors, rejects, end, expires)
