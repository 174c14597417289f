"""NDJSON: one item a line."""

import io
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from gcws_search import index as ix
from gcws_search.service import json_bodies
from gcws_search.service.errors import BodyTooLarge, InvalidRequest, MalformedBody
from gcws_search.service.guards.limits import (
    Limits,
    require_short_id,
    require_short_vector,
    short_payload,
)
from gcws_search.service.ingest.rows import ItemRows, Reject
from gcws_search.service.ingest.source import Source
from gcws_search.service.models import ItemBody, vector_of


def lines(source: Source, max_line_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Yield the lines of a body that hold anything, and how many bytes end with each.

    Raises
    ------
    BodyTooLarge
        A line is too long.
    """
    parts: list[bytes] = []
    size = end = 0
    while chunk := source():
        for part in io.BytesIO(chunk):  # one at a time: a megabyte may hold a million
            parts.append(part)
            size += len(part)
            if size > max_line_bytes + part.endswith(b"\n"):
                raise BodyTooLarge(max_line_bytes, "a line")
            if part.endswith(b"\n"):
                line = b"".join(parts)
                end += size
                if not line.isspace():
                    yield line[:-1], end
                parts, size = [], 0
    line = b"".join(parts)
    if line and not line.isspace():
        yield line, end + len(line)


@dataclass(slots=True)
class _Pending:
    """The chunk being gathered."""

    numbers: list[int] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    payloads: list[bytes | None] = field(default_factory=list)
    vectors: list[ix.OneVector] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    line_bytes: int = 0
    size: int = 0

    def add(self, number: int, line: bytes, end: int, limits: Limits) -> None:
        """Read one line; what is wrong with it becomes a reject."""
        self.line_bytes += len(line)
        self.size = end
        try:
            item = json_bodies.parse(ItemBody, line, limits)
            item_id = None if item.id is None else str(item.id)
            if item_id is not None:
                require_short_id(item_id, limits, "id")
            require_short_vector(item.vector, limits, "vector")
            payload = short_payload(item.payload, limits, "payload")
        except (InvalidRequest, MalformedBody, ix.InvalidInput) as error:
            self.rejects.append(Reject.of(number, error))
            return
        self.numbers.append(number)
        self.ids.append(item_id)
        self.payloads.append(payload)
        self.vectors.append(vector_of(item.vector))

    def rows(self) -> ItemRows:
        """Return the chunk."""
        return ItemRows(
            np.array(self.numbers, np.int64),
            self.ids,
            self.payloads,
            ix.InputVectors(mixed=self.vectors),
            self.rejects,
            self.size,
        )


@dataclass(frozen=True, slots=True)
class NdjsonRows:
    """The chunks of an NDJSON body."""

    source: Source
    limits: Limits
    chunk_rows: int
    chunk_bytes: int
    max_line_bytes: int

    def __iter__(self) -> Iterator[ItemRows]:
        """Yield chunks of rows.

        Raises
        ------
        BodyTooLarge
        """
        pending = _Pending()
        found = lines(self.source, self.max_line_bytes)
        for number, (line, end) in enumerate(found):
            pending.add(number, line, end, self.limits)
            rows = len(pending.numbers) + len(pending.rejects)
            if rows >= self.chunk_rows or pending.line_bytes >= self.chunk_bytes:
                yield pending.rows()
                pending = _Pending()
        if pending.numbers or pending.rejects:
            yield pending.rows()
