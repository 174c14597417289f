"""A join: vectors, or the items of another collection, with the items that are like them."""

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError
from typing import Annotated, Any, Final, NamedTuple

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from gcws_search import index as ix
from gcws_search.service import problems
from gcws_search.service.api import requests
from gcws_search.service.api.query import SHARE, Score
from gcws_search.service.http import (
    Service,
    ServiceOf,
    json_router,
    may_read,
    read_body,
    read_model,
    require_plain,
    stated_media_type,
)
from gcws_search.service.ingest import formats
from gcws_search.service.ingest.ndjson import read_ndjson
from gcws_search.service.ingest.npy import read_npy
from gcws_search.service.ingest.source import ByteReader, ItemRows
from gcws_search.service.limits import require_at_most
from gcws_search.service.models import Body, FilterDocument, Id, bounds, examples, reference
from gcws_search.service.responses import ARROW, BODY_PROBLEMS, JSON, NDJSON, NPY, json_bytes
from gcws_search.service.settings import Settings

router = json_router("/v1/collections/{name}", "search", may_read, BODY_PROBLEMS)

_PAGE: Final = 4000
"""Items of another collection that are read at a time."""
_LINES: Final = 1000
_BINARY: Final = {"schema": {"type": "string", "format": "binary", "description": "As of a load."}}


class JoinOptions(BaseModel):
    """Which items vectors are joined with."""

    min_score: float | None = Field(
        default=None,
        description="Least score of a hit, in (0, 1]; may be left out beside `limit`.",
        json_schema_extra=SHARE,
    )
    limit: int | None = Field(
        default=None,
        description="The most hits of a vector, the best; null: all that score `min_score`, "
        "however many. At most the server's `max_limit`.",
        json_schema_extra=bounds(1),
    )
    recall: float = Field(
        default=0.9,
        description="Expected share of these hits found, in (0, 1]; 1 finds all.",
        json_schema_extra=SHARE,
    )
    score: Score = "gmm"


class JoinBody(JoinOptions, Body):
    """Another collection, and which items its items are joined with."""

    model_config = examples({"collection": "plants", "min_score": 0.5})

    collection: str = Field(description="Name of the collection whose items are joined with these.")
    after: Id | None = Field(
        default=None, description="Only items of `collection` that were put after this one."
    )
    filter: FilterDocument | None = Field(
        default=None, description="Only items of the path's collection that pass are hits."
    )


class JoinQuery(JoinOptions):
    """Which items the vectors of a body are joined with."""

    model_config = ConfigDict(extra="forbid")

    after: int | None = Field(
        default=None, ge=0, description="Only rows after this number, as lines have it under `row`."
    )
    filter: str | None = Field(
        default=None,
        description="A filter as of a query, its JSON text percent-encoded: only items that pass "
        "are hits.",
    )


class _Part(NamedTuple):
    """Vectors of a join with their names in lines: rows from ``first`` on, ids, or both."""

    vectors: ix.RawBatch
    ids: list[str | None]
    first: int | None


@router.post(
    "/join",
    response_class=Response,
    responses={200: {"content": {NDJSON: {"schema": {}}}}},  # `schemas.json` has it
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                JSON: {"schema": reference("JoinBody")},
                NDJSON: {"schema": {"type": "string", "description": "As of a load."}},
                NPY: _BINARY,
                ARROW: _BINARY,
            },
        }
    },
)
async def join(
    request: Request, service: ServiceOf, name: str, params: Annotated[JoinQuery, Query()]
) -> Response:
    """Find for each vector all items that score enough, or the best; a line each, in order.

    The vectors are a body as of a load, with the parameters in the URL; or the items of another
    collection, by JSON. A line has `row`, the number of the vector in the body, or the `id` of its
    item, or both. The last line has sums, or an `error` that ended the join.
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
        parts = await service.workers.searches.run(_stored, collection, other, after)
        asked, kind = _params(body, service.settings), body.score
    else:
        require_plain(request)
        collection = service.collection(name)
        where = requests.condition_in_url(params.filter, service.settings)
        asked, kind = _params(params, service.settings), params.score
        content = await read_body(request, service.settings.max_body_bytes)
        read = service.workers.batches.run
        sent = await read(_read, service, collection, content, stated, params.after)
        parts = iter(sent)
    stop = threading.Event()
    hits = collection.join(asked, where, stop)
    pieces = _pieces(parts, hits, kind)
    first = await service.workers.batches.run(next, pieces, None)
    lines = _lines(service, first, pieces, stop, began)
    return StreamingResponse(lines, media_type=NDJSON)


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
    service: Service,
    collection: ix.StoredCollection,
    body: bytes,
    stated: str | None,
    after: int | None,
) -> list[_Part]:
    """Return the vectors of a body; an error is that of the first bad row."""
    settings, pending = service.settings, [body]

    def source() -> bytes:
        return pending.pop() if pending else b""

    kind = stated or formats.media_type_of(body[: formats.START_BYTES], NDJSON)
    formats.require_not_foreign(body[: formats.START_BYTES], kind)
    chunks: Iterator[ItemRows]
    if kind == NDJSON:
        chunks = read_ndjson(source, settings)
    elif kind == NPY:
        chunks = read_npy(
            ByteReader(source, max_read_bytes=settings.max_body_bytes), settings, None
        )
    else:
        from gcws_search.service.ingest.arrow import read_arrow  # noqa: PLC0415  # no start waits for it

        reader = ByteReader(source, max_read_bytes=settings.max_arrow_batch_bytes)
        chunks = iter(read_arrow(reader, settings, takes_others=True))
    found: list[_Part] = []
    find = requests.finder(collection, [], beyond_dim=False)
    first = 0 if after is None else after + 1
    for whole in chunks:
        if whole.rejects:
            raise min(whole.rejects, key=lambda reject: reject.number).error
        chunk = whole.after(first)
        if not len(chunk):
            continue
        number = int(chunk.numbers[0])
        try:
            vectors = chunk.vectors.check(collection.space, find)
            collection.space.prepare(vectors)
        except ix.InvalidVector as error:
            row = number + int(error.loc[0]) if error.loc else number
            raise error.at("rows", row, collection.space.word, skip=1) from None
        found.append(_Part(vectors, chunk.ids, number))
    return found


def _stored(
    collection: ix.StoredCollection, other: ix.StoredCollection, after: str | None
) -> Iterator[_Part]:
    """Return the vectors of another collection's items."""
    ix.require_joinable(collection.config, other.config)
    cursor = None if after is None else other.cursor_behind(after)
    return _pages(collection, other, cursor)


def _pages(
    collection: ix.StoredCollection, other: ix.StoredCollection, cursor: str | None
) -> Iterator[_Part]:
    find = requests.finder(collection, [], beyond_dim=False)
    while True:
        page = other.page(limit=_PAGE, cursor=cursor, with_vector=True, where=None, ids=None)
        if page.items:
            vectors = ix.stored_vectors(
                page.items, other.names, are_texts=other.config.text is not None
            )
            ids: list[str | None] = [item.id for item in page.items]
            yield _Part(vectors.check(collection.space, find), ids, None)
        if (cursor := page.next_cursor) is None:
            return


class _Piece(NamedTuple):
    """Some lines, and how many vectors have been answered until then."""

    lines: bytes
    pairs: int
    rows: int


def _pieces(
    parts: Iterator[_Part],
    hits: Callable[[ix.RawBatch], Iterator[ix.JoinedRows]],
    kind: ix.ScoreKind,
) -> Iterator[_Piece]:
    """Yield the lines of a join."""
    for vectors, ids, first in parts:
        end = 0
        for found in hits(vectors):
            rows, scores = found.rows.tolist(), ix.score_of(kind, found.scores).tolist()
            lines = b"".join(
                json_bytes(_line(row, ids[row], first, to, score)) + b"\n"
                for row, to, score in zip(rows, found.to, scores, strict=True)
            )
            yield _Piece(lines, len(rows), found.end - end)
            end = found.end


def _line(
    row: int, item_id: str | None, first: int | None, to: str, score: float
) -> dict[str, Any]:
    line: dict[str, Any] = {} if first is None else {"row": first + row}
    if item_id is not None:
        line["id"] = item_id
    return line | {"to": to, "score": score}


async def _lines(
    service: Service,
    piece: _Piece | None,
    pieces: Iterator[_Piece],
    stop: threading.Event,
    began: float,
) -> AsyncIterator[bytes]:
    """Yield the lines of a join and the last one; the next piece is made once one is taken."""
    pairs = rows = 0
    more: dict[str, Any] = {}
    try:
        while piece is not None:
            pairs, rows = pairs + piece.pairs, rows + piece.rows
            if piece.lines:
                yield piece.lines
            piece = await service.workers.batches.run(next, pieces, None)
    except (Exception, CancelledError) as error:  # the answer has begun
        more = {"error": problems.document(error)}
    finally:
        stop.set()
    seconds = round(time.monotonic() - began, 6)
    yield json_bytes({"pairs": pairs, "rows": rows, "seconds": seconds} | more) + b"\n"
