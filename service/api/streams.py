"""Bodies of loads and joins, read in a thread as they arrive; answers that are sent meanwhile."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final

from fastapi import Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from gcws_search.service.errors import RequestTimeout, unsupported
from gcws_search.service.http import body_pieces, refuse_announced, stated_media_type
from gcws_search.service.ingest import formats
from gcws_search.service.ingest.job import Read
from gcws_search.service.ingest.ndjson import read_ndjson
from gcws_search.service.ingest.npy import read_npy
from gcws_search.service.ingest.source import (
    BodyPipe,
    ByteReader,
    ItemRows,
    Source,
    bound_bytes,
    inflate,
    peek,
)
from gcws_search.service.responses import ARROW, CSV, NDJSON, NPY, TSV
from gcws_search.service.settings import Settings

if TYPE_CHECKING:
    from gcws_search.service.ingest.delimited import CsvColumns

_ENCODINGS: Final = ("", "identity", "gzip")
_PIPE_BYTES: Final = 8 << 20


def open_pipe() -> BodyPipe:
    """Return a pipe for the body of a request."""
    return BodyPipe(_PIPE_BYTES)


async def feed(request: Request, pipe: BodyPipe) -> None:
    """Put the body of a request into a pipe as it arrives."""
    close: Callable[[], None] = pipe.abort
    try:
        async for piece in body_pieces(request):
            await pipe.put(piece)
        close = pipe.end
    except ClientDisconnect:
        pass
    except RequestTimeout as error:
        close = partial(pipe.abort, error)
    finally:
        close()


def body_reader(  # noqa: PLR0913  # what each format has need of
    request: Request,
    settings: Settings,
    require_format: Callable[[str], None],
    *,
    id_start: int | None = None,
    takes_others: bool = False,
    clock: Callable[[], float] = time.time,
    takes_csv: bool = False,
    columns: CsvColumns | None = None,
) -> Read:
    """Return a function from the body's bytes to chunks of rows, which expire by a clock.

    require_format: called once the format is known; raises if the request does not fit it.
    takes_others: of an Arrow stream, see `read_arrow`. columns: of a body declared as CSV.
    """
    tables = (CSV, TSV) if takes_csv else ()
    stated = stated_media_type(request, NDJSON, NPY, ARROW, *tables, hint=formats.LOADS_FILES)
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        raise unsupported(repr(encoding), ["Content-Encoding gzip or identity"])
    if stated is not None:
        require_format(stated)
    if settings.max_load_bytes is not None:
        refuse_announced(request, settings.max_load_bytes)

    def chunks(source: Source, counting: Callable[[Source], Source]) -> Iterable[ItemRows]:
        whole = bound_bytes(inflate(source, encoding), settings.max_load_bytes)
        start, first = peek(whole, formats.START_BYTES)
        plain = counting(first)
        kind = stated or formats.media_type_of(start, NDJSON, takes_csv=takes_csv)
        require_format(kind)
        formats.require_not_foreign(start, kind)
        if kind == NDJSON:
            return read_ndjson(plain, settings, clock)
        reader = ByteReader(plain, max_read_bytes=settings.max_arrow_batch_bytes)
        if kind == NPY:
            return read_npy(reader, settings, id_start)
        if columns is not None:
            from gcws_search.service.ingest.delimited import read_csv  # noqa: PLC0415  # as below

            return read_csv(reader, kind, settings, columns)
        from gcws_search.service.ingest.arrow import read_arrow  # noqa: PLC0415  # no start waits for it

        return read_arrow(reader, settings, takes_others=takes_others, clock=clock)

    return chunks


class LinesResponse(Response):
    """Lines sent as they are made, while the request's body is still being read."""

    def __init__(self, lines: AsyncGenerator[bytes]) -> None:
        super().__init__(media_type=NDJSON)
        self._lines = lines
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the lines."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(self._lines):
            async for line in self._lines:
                await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
