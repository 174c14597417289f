"""Idempotency keys: a body sent again skips what is committed.

With each chunk the collection's file keeps how many rows of the body have been read, in how many
bytes, and the CRC-32 of these. A body that comes under the key again is read from its beginning,
but its first rows are stored already; it is the same body as long as the CRC is the same.
"""

from __future__ import annotations

import time
import zlib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson

from gcws_search import index as ix
from gcws_search.service.contract import CollectionProtocol
from gcws_search.service.errors import IdempotencyMismatch
from gcws_search.service.ingest.source import Source
from gcws_search.service.responses import ids_json

_MAX_KEY: Final = 255


class Mark(NamedTuple):
    """A place in a body: rows and bytes before it, and the CRC-32 of these bytes."""

    rows: int
    size: int
    crc: int


_START: Final = Mark(0, 0, 0)


@dataclass(frozen=True, slots=True)
class LoadState:
    """The progress of a load.

    ``parameters`` of the request, but for what becomes of bad rows; ``mark`` behind the last row
    that is stored or rejected, the body's end where ``is_complete``; ``started`` in seconds since
    1970; ``ids``: the first and the last that rows without ids were given.
    """

    parameters: str
    mark: Mark = _START
    inserted: int = 0
    updated: int = 0
    rejected_count: int = 0
    rejected: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0
    started: float = 0.0
    is_complete: bool = False
    ids: tuple[str, str] | None = None

    def counts(self) -> dict[str, Any]:
        """Return what was stored, as the API shows it; ``ids`` where rows came without."""
        told: dict[str, Any] = {
            "inserted": self.inserted,
            "updated": self.updated,
            "rejected_count": self.rejected_count,
        }
        if self.ids is not None:
            told["ids"] = ids_json(self.ids)
        return told

    def text(self) -> str:
        """Return what `read` reads."""
        fields = {**asdict(self), "mark": [*self.mark]}
        if self.ids is None:
            del fields["ids"]  # older programs can read it without them
        return orjson.dumps(fields).decode()

    @classmethod
    def read(cls, text: str) -> LoadState:
        """Inverse of `text`; ValueError where a text is none."""
        try:
            fields = orjson.loads(text)
            fields["mark"] = Mark(*map(int, fields["mark"]))
            fields["rejected"] = tuple(fields["rejected"])
            if "ids" in fields:
                first, last = fields["ids"]
                fields["ids"] = first, last
            return cls(**fields)
        except (TypeError, KeyError) as error:
            raise ValueError(str(error)) from None


@dataclass(frozen=True, slots=True)
class LoadKey:
    """The key of one load, and what has been committed under it.

    ``announced_bytes``: what the body that is sent now is said to have; 0 where nothing is said.
    """

    key: str
    before: LoadState
    keep_seconds: int
    announced_bytes: int = 0

    @classmethod
    def of(
        cls, collection: CollectionProtocol, key: str, parameters: str, keep_seconds: int
    ) -> LoadKey:
        """Return the key with the progress that the file has under it.

        IdempotencyMismatch: the load before had other parameters.
        """
        require_key(key)
        found = collection.loads(_now() - keep_seconds, key)
        if not found:
            return cls(key, LoadState(parameters, started=time.time()), keep_seconds)
        before = progress_of(collection, found[0])
        if before.parameters != parameters:
            raise IdempotencyMismatch(
                f"expected the parameters {before.parameters!r} that were sent under the key "
                f"{key!r} at {iso_time(before.started)}, got {parameters!r}"
            )
        return cls(key, before, keep_seconds)

    def record(self, progress: LoadState) -> ix.LoadRecord:
        """Return what the file keeps."""
        return ix.LoadRecord(self.key, _now(), progress.text())

    @property
    def forgotten(self) -> int:
        """Keys unused since this second are dropped."""
        return _now() - self.keep_seconds

    def mismatch(self, read: int, *, is_whole: bool = False) -> IdempotencyMismatch:
        """Return the error for another body, after ``read`` bytes of it."""
        got = f"another one of {max(read, self.announced_bytes)} bytes"
        if not is_whole and read > self.announced_bytes:
            got = f"another one of {read} bytes or more"
        mark = self.before.mark
        size = f"of {mark.rows} rows in {mark.size} bytes"
        if not self.before.is_complete:
            size = f"whose first {mark.rows} rows in {mark.size} bytes are stored,"
        return IdempotencyMismatch(
            f"expected the body {size} that was sent under the key {self.key!r} at "
            f"{iso_time(self.before.started)}, got {got} at {iso_time(time.time())}"
        )


def require_key(key: str) -> None:
    """Raise InvalidParameter unless a key is 1 to 255 characters of printable ASCII."""
    if not (1 <= len(key) <= _MAX_KEY and key.isascii() and key.isprintable()):
        raise ix.InvalidParameter(
            expected=f"1 to {_MAX_KEY} characters of printable ASCII",
            got=repr(key)[:80],
            loc=("Idempotency-Key",),
        )


def progress_of(collection: CollectionProtocol, record: ix.LoadRecord) -> LoadState:
    """Return the progress of a load; DamagedFile if its record is unreadable."""
    try:
        return LoadState.read(record.progress)
    except ValueError as error:
        reason = f"load {record.key!r} is unreadable ({error})"
        raise ix.DamagedFile(collection.name, reason) from error


def iso_time(seconds: float) -> str:
    """Return a time as ISO 8601 writes it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _now() -> int:
    return int(time.time())


class BodyCount:
    """Counts the bytes of a body and checks those that have been committed before.

    Without a key no CRC is computed.
    """

    def __init__(self, key: LoadKey | None) -> None:
        self._key = key
        mark = _START if key is None else key.before.mark
        self._awaited = mark if mark.size else None
        self._source: Source = bytes
        self._piece = b""
        self._before = self._crc_before = 0
        self._crc = 0
        self.size = 0

    def counting(self, source: Source) -> Source:
        """Return a source that this counts.

        It raises IdempotencyMismatch at other bytes, fewer, or more than a whole body had.
        """
        self._source = source
        return self._take

    def _take(self) -> bytes:
        piece = self._source()
        if self._key is None:
            self.size += len(piece)
            return piece
        if not piece:
            if self._awaited is not None:
                raise self._key.mismatch(self.size, is_whole=True)
            return piece
        self._piece, self._before, self._crc_before = piece, self.size, self._crc
        self.size += len(piece)
        self._crc = zlib.crc32(piece, self._crc)
        mark = self._key.before.mark
        if self._awaited is not None and self.size >= mark.size:
            if self.crc(mark.size) != mark.crc:
                raise self._key.mismatch(self.size)
            self._awaited = None
        if self._key.before.is_complete and self.size > mark.size:
            raise self._key.mismatch(self.size)
        return piece

    def crc(self, size: int) -> int:
        """Return the CRC-32 of the first ``size`` bytes, which end in the last piece."""
        return zlib.crc32(self._piece[: size - self._before], self._crc_before)

    def require_same(self) -> None:
        """Read the body up to the mark of what is committed; IdempotencyMismatch: it is another."""
        while self._awaited is not None:
            self._take()

    def mark(self, rows: int, size: int) -> Mark:
        """Return the place behind ``rows`` rows and ``size`` bytes."""
        return Mark(rows, size, 0 if self._key is None else self.crc(size))

    def end(self, rows: int) -> Mark:
        """Return the place at the end of the body."""
        return Mark(rows, self.size, self._crc)
