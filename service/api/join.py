"""Joins: vectors, or the items of another collection, with similar items."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import Annotated, Any, Final, NamedTuple

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from gcws_search import index as ix
from gcws_search.service import problems
from gcws_search.service.api import requests
from gcws_search.service.api.query import SHARE, Score, hints_json
from gcws_search.service.api.streams import LinesResponse, body_reader, feed, open_pipe
from gcws_search.service.errors import Stopping
from gcws_search.service.http import (
    Service,
    ServiceOf,
    json_router,
    may_read,
    read_model,
    stated_media_type,
)
from gcws_search.service.ingest import formats
from gcws_search.service.ingest.job import Read
from gcws_search.service.ingest.source import BodyAborted, BodyPipe, Source
from gcws_search.service.limits import require_at_most
from gcws_search.service.models import Body, FilterDocument, Id, bounds, examples
from gcws_search.service.responses import ARROW, BODY_PROBLEMS, JSON, NDJSON, NPY, json_bytes
from gcws_search.service.settings import Settings

router = json_router("/v1/collections/{name}", "search", may_read, BODY_PROBLEMS)

_HELD_BYTES: Final = 1 << 20
"""Lines that the client has not taken: more wait in a file."""
_SENT_BYTES: Final = 1 << 18


class JoinOptions(BaseModel):
    """Which items vectors are joined with."""

    min_score: float | None = Field(
        default=None,
        description="Minimum score of a hit, in (0, 1]; optional with `limit`.",
        json_schema_extra=SHARE,
    )
    limit: int | None = Field(
        default=None,
        description="Maximum number of hits per vector, the best; null: all that score "
        "`min_score`. At most the server's `max_limit`.",
        json_schema_extra=bounds(1),
    )
    recall: float = Field(
        default=0.9,
        description="Expected share of these hits that is found, in (0, 1]; 1 finds all.",
        json_schema_extra=SHARE,
    )
    score: Score = "gmm"


class JoinBody(JoinOptions, Body):
    """Another collection, and the items of it to join."""

    model_config = examples({"collection": "plants", "min_score": 0.5})

    collection: str = Field(description="Name of the collection whose items are joined with these.")
    after: Id | None = Field(
        default=None, description="Only items of `collection` stored after this one."
    )
    filter: FilterDocument | None = Field(
        default=None, description="Only items of the path's collection that match are hits."
    )


class JoinQuery(JoinOptions):
    """Which items the vectors of a body are joined with."""

    after: int | None = Field(
        default=None,
        ge=0,
        description="Only rows after this number, counted as in `row` of the lines.",
    )
    filter: str | None = Field(
        default=None,
        description="Only items that match are hits: a filter as in a query, its JSON text "
        "percent-encoded.",
    )


class _Part(NamedTuple):
    """Vectors of a join and their names in lines: row numbers from ``first`` on, ids, or both."""

    vectors: ix.RawBatch
    ids: Sequence[str | None]
    first: int | None


@router.post("/join", response_class=Response)
async def join(
    request: Request, service: ServiceOf, name: str, params: Annotated[JoinQuery, Query()]
) -> Response:
    """Find for each vector all items above a score, or the best; one line per hit, in order.

    The vectors are a body as in a load, of any length, with the parameters in the URL; or the items
    of another collection, as JSON. A line has `row`, the number of the vector in the body, or the
    `id` of its item, or both. Lines are sent while the body still arrives. The last line has
    totals, `hints` if no item matches the filter, and an `error` if one ended the join after its
    first line.
    """
    stated = stated_media_type(request, JSON, NDJSON, NPY, ARROW, hint=formats.LOADS_FILES)
    service.startup.require_kernels()
    began = time.monotonic()
    if stated == JSON:
        if params.model_fields_set:
            raise ix.InvalidParameter(
                expected="parameters inside a JSON body",
                got="some in the URL",
                loc=(min(params.model_fields_set),),
            )
        body = await read_model(request, JoinBody)
        collection, other = service.collection(name), service.collection(body.collection)
        where = requests.condition(body.filter, service.settings)
        after = None if body.after is None else str(body.after)
        asked, kind = _params(body, service.settings), body.score
        pages = await service.workers.searches.run(_stored, collection, other, after)
        run = _Run(request, service)
        parts = run.pull(pages)
    else:
        collection = service.collection(name)
        where = requests.condition_in_url(params.filter, service.settings)
        asked, kind = _params(params, service.settings), params.score
        read = body_reader(request, service.settings, lambda _: None, takes_others=True)
        run = _Run(request, service, open_pipe())
        parts = run.push(partial(_read, collection, read, params.after))
    pieces = run.join(parts, collection.join(asked, where, run.stop), kind)
    try:
        first = await anext(pieces, None)
    except BaseException:  # an error before the first line becomes a problem
        await run.close()
        raise
    hints = partial(hints_json, where, collection.hints)
    return LinesResponse(run.lines(first, pieces, began, hints))


def _params(options: JoinOptions, settings: Settings) -> ix.JoinParams:
    if options.limit is not None:
        require_at_most(options.limit, settings.max_limit, "limit")
    least = options.min_score
    return ix.JoinParams(
        min_score=None if least is None else ix.least_ranked(options.score, least),
        limit=options.limit,
        recall=options.recall,
        ranking=ix.ranking_of(options.score),
    )


def _read(
    collection: ix.StoredCollection, read: Read, after: int | None, source: Source
) -> Iterator[_Part]:
    """Yield the vectors of a body; the error is that of the first bad row of a chunk."""
    first = 0 if after is None else after + 1
    for whole in read(source, lambda plain: plain):
        chunk = whole.after(first)
        if chunk.rejects:
            chunk.rejects.sort(key=lambda reject: reject.number, reverse=True)
            raise chunk.rejects.pop().error  # not bound to a variable: its frames include this one
        if not len(chunk):
            continue
        number, find = int(chunk.numbers[0]), requests.finder(collection, [], beyond_dim=False)
        try:
            vectors = chunk.vectors.check(collection.space, find)
            collection.space.prepare(vectors)
        except ix.InvalidVector as error:
            row = number + int(error.loc[0]) if error.loc else number
            raise error.at("rows", row, collection.space.word, skip=1) from None
        yield _Part(vectors, chunk.ids, number)


def _stored(
    collection: ix.StoredCollection, other: ix.StoredCollection, after: str | None
) -> Iterator[_Part]:
    ix.require_joinable(collection.config, other.config)
    cursor = None if after is None else other.cursor_behind(after)
    find = requests.finder(collection, [], beyond_dim=False)
    pages = ix.stored_vectors(other, cursor)
    return (_Part(rows.check(collection.space, find), ids, None) for ids, rows in pages)


_Piece = tuple[bytes, int, int]
"""Some lines, how many these are, and how many vectors were answered since those before."""


def _pieces(
    part: _Part, hits: Callable[[ix.RawBatch], Iterator[ix.JoinedRows]], kind: ix.ScoreKind
) -> Iterator[_Piece]:
    end = 0
    for found in hits(part.vectors):
        rows, scores = found.rows.tolist(), ix.score_of(kind, found.scores).tolist()
        lines = b"".join(
            json_bytes(_line(row, part.ids[row], part.first, to, score)) + b"\n"
            for row, to, score in zip(rows, found.to, scores, strict=True)
        )
        yield lines, len(rows), found.end - end
        end = found.end


def _line(
    row: int, item_id: str | None, first: int | None, to: str, score: float
) -> dict[str, Any]:
    line: dict[str, Any] = {} if first is None else {"row": first + row}
    if item_id is not None:
        line["id"] = item_id
    return line | {"to": to, "score": score}


class _Run:
    """A running join.

    Many clients read no line before they have sent the whole body. Until then unread lines are
    buffered, many of them in a file; afterwards the join waits for its client.
    """

    def __init__(self, request: Request, service: Service, pipe: BodyPipe | None = None) -> None:
        self.stop = threading.Event()  # set once the client has disconnected
        self._request, self._service, self._pipe = request, service, pipe
        self._is_sent = pipe is None
        folder = str(service.settings.data_dir)
        self._unsent = SpooledTemporaryFile(_HELD_BYTES, dir=folder)  # noqa: SIM115  # see close
        self._written = self._taken = 0
        self._is_answered = False
        self._moved = asyncio.Condition()
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        """Receive the whole body, even after an error; then wait until the client disconnects."""
        if self._pipe is not None:
            await feed(self._request, self._pipe)
            self._is_sent = True
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self.stop.set()

    async def close(self) -> None:
        self.stop.set()
        self._listener.cancel()
        await asyncio.gather(self._listener, return_exceptions=True)
        del self._listener  # its error's frames refer to this object
        self._unsent.close()

    async def pull(self, parts: Iterator[_Part]) -> AsyncGenerator[_Part]:
        while (part := await self._service.workers.searches.run(next, parts, None)) is not None:
            yield part

    async def push(self, read: Callable[[Source], Iterator[_Part]]) -> AsyncGenerator[_Part]:
        """Yield the parts of the body; each is read while the previous one is joined."""
        pipe, loop = self._pipe, asyncio.get_running_loop()
        assert pipe is not None
        parts: asyncio.Queue[_Part | None] = asyncio.Queue()
        room = threading.Semaphore(1)

        def read_all() -> None:
            for part in read(pipe.take):
                room.acquire()
                if self.stop.is_set():
                    return
                loop.call_soon_threadsafe(parts.put_nowait, part)

        reading = asyncio.create_task(self._service.workers.loads.run(read_all))
        reading.add_done_callback(lambda _: parts.put_nowait(None))
        try:
            while (part := await parts.get()) is not None:
                yield part
                room.release()
            await reading
        except BodyAborted:
            raise ClientDisconnect from None
        finally:
            self.stop.set()
            pipe.abort()
            room.release()
            await asyncio.gather(reading, return_exceptions=True)
            del reading

    async def join(
        self,
        parts: AsyncGenerator[_Part],
        hits: Callable[[ix.RawBatch], Iterator[ix.JoinedRows]],
        kind: ix.ScoreKind,
    ) -> AsyncGenerator[_Piece]:
        run = self._service.workers.batches.run
        async with aclosing(parts):
            async for part in parts:
                pieces = _pieces(part, hits, kind)
                while (piece := await run(next, pieces, None)) is not None:
                    yield piece

    async def lines(
        self,
        first: _Piece | None,
        pieces: AsyncGenerator[_Piece],
        began: float,
        hints: Callable[[], dict[str, Any]],
    ) -> AsyncGenerator[bytes]:
        """Yield the lines as the client reads them, and the last one."""
        writing = asyncio.create_task(self._write_all(first, pieces, began, hints))
        try:
            while True:
                async with self._moved:
                    await self._moved.wait_for(
                        lambda: self._taken < self._written or self._is_answered
                    )
                if self._taken == self._written:  # all are read
                    break
                self._unsent.seek(self._taken)
                lines = self._unsent.read(_SENT_BYTES)
                self._taken += len(lines)
                if self._taken == self._written:
                    self._unsent.seek(0)
                    self._unsent.truncate()
                    self._taken = self._written = 0
                async with self._moved:
                    self._moved.notify_all()
                yield lines
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await self.close()

    async def _write_all(
        self,
        piece: _Piece | None,
        pieces: AsyncGenerator[_Piece],
        began: float,
        hints: Callable[[], dict[str, Any]],
    ) -> None:
        pairs = rows = 0
        more: dict[str, Any] = {}
        try:
            async with aclosing(pieces):
                while piece is not None:
                    lines, more_pairs, more_rows = piece
                    pairs, rows = pairs + more_pairs, rows + more_rows
                    await self._write(lines)
                    await self._wait_for_room()
                    piece = await anext(pieces, None)
            if not pairs:
                more = await self._service.workers.searches.run(hints)
        except (Exception, asyncio.CancelledError) as error:  # the answer has started
            found = Stopping() if isinstance(error, asyncio.CancelledError) else error
            more = {"error": problems.document(found)}
        seconds = round(time.monotonic() - began, 6)
        end = {"pairs": pairs, "rows": rows, "seconds": seconds} | more
        self._is_answered = True
        await self._write(json_bytes(end) + b"\n")

    async def _write(self, lines: bytes) -> None:
        self._unsent.seek(self._written)
        self._written += self._unsent.write(lines)
        async with self._moved:
            self._moved.notify_all()

    async def _wait_for_room(self) -> None:
        """Wait until a client that has sent its body has read most lines."""
        if not self._is_sent and self._written - self._taken > _HELD_BYTES:
            self._service.room.require()
        async with self._moved:
            await self._moved.wait_for(
                lambda: not self._is_sent or self._written - self._taken <= _HELD_BYTES
            )
