"""Loading a stream of items, and a preview of it."""

import asyncio
import io
import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from gcws_search import index as ix
from gcws_search.service import problems
from gcws_search.service.api.items import PutOptions
from gcws_search.service.api.streams import LinesResponse, body_reader, feed, open_pipe
from gcws_search.service.http import (
    CollectionOf,
    JsonResponse,
    Service,
    ServiceOf,
    charset,
    header,
    json_router,
    may_read,
    may_write,
    media_type,
    read_body,
    require_media_type,
    require_plain,
)
from gcws_search.service.ingest import formats
from gcws_search.service.ingest.job import (
    MAX_ENDED,
    Account,
    Load,
    LoadFailed,
    Read,
    iso_time,
    require_key,
)
from gcws_search.service.ingest.ndjson import describe_line
from gcws_search.service.ingest.npy import read_header
from gcws_search.service.ingest.source import BodyAborted, ByteReader, inflate_head
from gcws_search.service.responses import (
    ARROW,
    BODY_PROBLEMS,
    CSV,
    NDJSON,
    NPY,
    READ_PROBLEMS,
    TSV,
    WRITE_PROBLEMS,
    json_bytes,
    shows,
)

reading = json_router("/v1/collections/{name}", "items", may_read, READ_PROBLEMS)
writing = json_router("/v1/collections/{name}", "items", may_write, WRITE_PROBLEMS)

looking = json_router("/v1", "items", may_read, BODY_PROBLEMS)

if TYPE_CHECKING:
    from gcws_search.formats.sources import Choices
    from gcws_search.service.ingest.delimited import CsvColumns

_log = logging.getLogger(__name__)
_OF_CSV: Final = ("id", "vector", "text", "payload", "header", "encoding", "missing")
_PARAMETERS: Final = {
    "id_start": (NPY, CSV, TSV),
    "columns": (ARROW,),
    **dict.fromkeys(_OF_CSV, (CSV, TSV)),
}
"""Those that some formats alone have a use for."""
Events: TypeAlias = "asyncio.Queue[tuple[int, int] | None]"
"""Rows of a load committed and rejected so far, a pair a commit; None at the end."""
MAX_HEAD_BYTES: Final = 1 << 20
"""As much as the command looks at before it decides what a file is."""


class ColumnParams(BaseModel):
    """What columns of CSV are, where that is not guessed."""

    id: str | None = Field(
        default=None,
        description="CSV only: the column of ids, empty for none; by default a column called `id`.",
    )
    vector: list[str] | None = Field(
        default=None,
        description="CSV only: a column of the vector, or a pattern such as `px*`; may be "
        "repeated. By default all numeric columns.",
    )
    text: str | None = Field(
        default=None,
        description="CSV only: the column of texts, instead of vectors. For a collection of "
        "texts, by default the column called `text`, or else the longest one.",
    )
    payload: list[str] | None = Field(
        default=None,
        description="CSV only: a column of the payload, or a pattern; may be repeated, or empty "
        "for none. It is then not part of the vector. By default all other columns.",
    )
    header: bool | None = Field(
        default=None,
        description="CSV only: whether the first row holds the column names; by default guessed.",
    )
    encoding: str | None = Field(
        default=None, description="CSV only: such as `cp1252`; by default guessed."
    )


class PreviewParams(ColumnParams):
    """What is known of CSV that is looked at."""

    holds: Literal["vectors", "texts"] | None = Field(
        default=None, description="The kind of its rows; by default texts if no column has numbers."
    )


_COUNTS: Final = (
    "inserted", "updated", "ids", "similar_count", "repeated_count", "loaded_before",
)  # fmt: skip
"""What a summary says of a load that its line in a list says too."""


class LoadParams(PutOptions, ColumnParams):
    """How a stream of items is loaded."""

    missing: Literal["error", "drop", "zero"] | None = Field(
        default=None,
        description="CSV only: how to treat a row with a missing number in its vector: as a bad "
        "row (`error`, the default), skipped (`drop`, counted in `dropped_count`), "
        "or with 0 there (`zero`).",
    )
    on_error: Literal["stop", "skip"] = Field(
        default="stop",
        description="At a row that cannot be stored: `stop` ends the load, and keeps the chunks "
        "committed before; `skip` lists the row under `rejected` and continues.",
    )
    id_start: int | None = Field(
        default=None,
        ge=0,
        le=2**63 - 1,
        description="npy, and CSV without ids: id of the first row; the others count on from "
        "there. By default rows get the next free numbers.",
    )
    columns: Literal["payload"] | None = Field(
        default=None,
        description="Arrow only: `payload` puts columns that items do not have into the payload; "
        "by default such columns are refused.",
    )
    payloads: Literal["replace", "keep"] | None = Field(
        default=None,
        description="The payload of an existing item if its new row has none. `replace`, the "
        "default: it is removed; `keep`: it stays.",
    )
    expires: str | None = Field(
        default=None,
        description="Expiry of items without their own: a time such as `2027-01-01T00:00:00Z`, "
        "or seconds after the write.",
    )
    max_rejected: int | None = Field(
        default=None,
        ge=0,
        le=10_000,
        description="Number of rejected rows that the summary lists; by default the first 1,000, "
        "unless the service is configured otherwise. All are counted.",
    )


async def _run(
    request: Request, service: Service, work: Load, params: LoadParams, chunks: Read, events: Events
) -> Account:
    """Load all items: the body goes to a thread, which sends back events.

    InvalidParameter, IdempotencyMismatch, CollectionBusy: errors of the key; nothing was loaded.
    """
    collection, account, pipe = work.collection, work.account, open_pipe()
    loop = asyncio.get_running_loop()

    def report(committed: int, rejected: int) -> None:
        loop.call_soon_threadsafe(events.put_nowait, (committed, rejected))

    try:
        with service.loads.running(collection, account):
            if account.key is not None:
                parameters = params.model_dump_json(
                    exclude={"on_error", "max_rejected"}, exclude_none=True
                )
                seconds = service.settings.load_key_seconds
                go_on = service.workers.searches.run
                await go_on(account.go_on, collection, parameters, seconds)
            feeder = asyncio.create_task(feed(request, pipe))
            try:
                await service.workers.loads.run(work.run, chunks, pipe.take, report)
            finally:
                pipe.abort()
                work.stop.set()
                feeder.cancel()
                await asyncio.gather(feeder, return_exceptions=True)
            return account
    finally:
        events.put_nowait(None)


@writing.post("/load", responses=shows("LoadAnswer"))
async def load(
    request: Request,
    service: ServiceOf,
    collection: CollectionOf,
    params: Annotated[LoadParams, Query()],
) -> Response:
    """Store a stream of items of any length, committed chunk by chunk.

    Without a content type, or with `application/octet-stream`, the first bytes decide the format.
    With `Accept: application/x-ndjson` the answer has one line `{"committed", "rejected"}` per
    chunk, then the summary (with an `error` if the load ended early); otherwise only the summary.
    With an `Idempotency-Key` a load that broke off can be sent again from the start: committed rows
    are skipped, and the summary counts everything once.
    """
    columns = None
    if media_type(request) in (CSV, TSV):
        params = params.model_copy(update={"encoding": _encoding(params.encoding, request)})
        columns = _columns(params, collection)
    chunks = body_reader(
        request,
        service.settings,
        partial(_require_its_parameters, params),
        id_start=params.id_start,
        takes_others=params.columns is not None,
        clock=collection.clock,
        takes_csv=True,
        columns=columns,
    )
    if params.expires is not None:
        ix.expiry_ms(params.expires, now=collection.clock())
    if params.payloads == "keep" and collection.config.text is not None:
        raise ix.InvalidParameter(
            expected="'replace': the payloads of this collection hold its texts",
            got="'keep'",
            loc=("payloads",),
        )
    if (key := header(request, b"idempotency-key")) is not None:
        require_key(key)
    max_listed = params.max_rejected
    if max_listed is None:
        max_listed = service.settings.max_rejected_listed
    mode = ix.put_mode(params.mode, params.min_score, params.recall)
    announced = header(request, b"content-length")
    is_known = announced is not None and not header(request, b"content-encoding")
    total_bytes = int(announced or 0) if is_known else None
    tells_similar = isinstance(mode, ix.UnlessSimilar)
    if tells_similar:
        service.startup.require_kernels()
    work = Load(
        collection,
        Account(key, max_listed, total_bytes, tells_similar=tells_similar),
        mode,
        params.on_error,
        service.room.require,
        keeps_payloads=params.payloads == "keep",
        expires=params.expires,
        settle=columns.settle if columns is not None else lambda: None,
    )
    events: Events = asyncio.Queue()
    run = partial(_run, request, service, work, params, chunks, events)
    if NDJSON not in request.headers.get("accept", ""):
        try:
            account = await run()
        except LoadFailed as failed:
            if isinstance(failed.error, BodyAborted):
                raise ClientDisconnect from None
            service.metrics.count_load(failed.account.committed)
            return problems.response(failed.error, **_progress(failed))
        service.metrics.count_load(account.committed)
        return JsonResponse(account.summary())
    task = asyncio.create_task(run())
    first = await events.get()
    if first is None and task.done():
        try:
            await task
        except BaseException as error:
            del task  # its error's frames refer to this one
            if not isinstance(error, LoadFailed):
                raise
            return problems.response(error.error, **_progress(error))
    return LinesResponse(_progress_lines(first, events, task, service))


@looking.post("/preview", responses=shows("PreviewAnswer"))
async def preview(
    request: Request, service: ServiceOf, params: Annotated[PreviewParams, Query()]
) -> Response:
    """Show how a load will read a file, by its first part; for CSV also columns and warnings.

    Nothing is stored, and no collection is needed. A body of 1,048,576 bytes is the first part of a
    longer file, a shorter one is a whole file; both may be gzipped. For NDJSON the first line
    decides.
    """
    require_media_type(request, CSV, TSV, NDJSON, NPY)
    require_plain(request)
    body = await read_body(request, MAX_HEAD_BYTES, "its first part is enough")
    kind = media_type(request) or CSV

    def describe() -> dict[str, Any]:
        head = inflate_head(body, MAX_HEAD_BYTES)
        formats.require_not_foreign(head, kind)
        source = io.BytesIO(head).read
        if kind == NPY:
            reader = ByteReader(source, max_read_bytes=MAX_HEAD_BYTES)
            return {"holds": "vectors", "dim": read_header(reader, service.settings).shape[1]}
        if kind == NDJSON:
            return describe_line(source, service.settings)
        from gcws_search.service.ingest.delimited import describe_csv  # noqa: PLC0415

        choices = _choices(params, is_of_texts=params.holds == "texts")
        may_be_texts = params.holds is None
        encoding = _encoding(params.encoding, request)
        return describe_csv(head, kind, encoding, choices, may_be_texts=may_be_texts)

    return JsonResponse(await service.workers.searches.run(describe))


def _encoding(told: str | None, request: Request) -> str | None:
    """Return the encoding of a text: a parameter, or the charset of its content type."""
    found = charset(request)
    if told is None and found is not None:
        from gcws_search.service.ingest.delimited import require_encoding  # noqa: PLC0415  # Arrow

        require_encoding(found, "Content-Type")
    return told or found


def _columns(params: LoadParams, collection: ix.StoredCollection) -> "CsvColumns":
    from gcws_search.service.ingest.delimited import CsvColumns  # noqa: PLC0415  # as of Arrow

    choices = _choices(params, is_of_texts=collection.config.text is not None)
    choices = replace(choices, missing=params.missing or "error", id_start=params.id_start)
    return CsvColumns(collection, choices, params.encoding)


def _choices(params: ColumnParams, *, is_of_texts: bool) -> "Choices":
    """Return a request's options for columns as those of the command."""
    from gcws_search.formats.sources import Choices  # noqa: PLC0415  # no start waits for it

    return Choices(
        id=params.id,
        vector=None if params.vector is None else tuple(params.vector),
        text=params.text,
        payload=None if params.payload is None else tuple(filter(None, params.payload)),
        header=params.header,
        of_texts=is_of_texts,
    )


@reading.get("/loads", responses=shows("LoadList"))
async def list_loads(service: ServiceOf, collection: CollectionOf) -> Response:
    """List the running loads and the last 20, latest first.

    Of loads before this start of the service only those with a key are known.
    """
    accounts = service.loads.of(collection)
    since = int(time.time()) - service.settings.load_key_seconds
    records = await service.workers.searches.run(collection.loads, since)
    count = MAX_ENDED + sum(account.status == "running" for account in accounts)
    stored = (Account.of_record(collection, record) for record in records)
    earlier = (each for each in stored if not any(known.lists(each) for known in accounts))
    shown = islice(chain(accounts, earlier), count)
    return JsonResponse({"loads": [*map(_entry, shown)]})


def _entry(account: Account) -> dict[str, Any]:
    told = account.summary()
    return {
        "key": account.key,
        "state": account.status,
        "rows": account.state.mark.rows,
        "bytes": account.size,
        "total_bytes": account.total_bytes,
        "rejected": account.state.rejected_count,
        "rate": round(account.rate, 1),
        "started": iso_time(account.started),
        "error": account.error,
        **{word: told[word] for word in _COUNTS if word in told},
    }


async def _progress_lines(
    first: tuple[int, int] | None, events: Events, task: asyncio.Task[Account], service: Service
) -> AsyncGenerator[bytes]:
    event = first
    try:
        while event is not None:
            yield json_bytes({"committed": event[0], "rejected": event[1]}) + b"\n"
            event = await events.get()
        try:
            account, more = await task, {}
        except LoadFailed as failed:
            account, more = failed.account, {"error": problems.document(failed.error)}
        service.metrics.count_load(account.committed)
        yield json_bytes(account.summary() | more) + b"\n"
    finally:
        task.cancel()


def _progress(failed: LoadFailed) -> dict[str, Any]:
    """Return extension members of a problem: what the load had stored, and the row it ended at."""
    error, account, state = failed.error, failed.account, failed.account.state
    told = {"committed": account.committed, **state.counts()}
    if failed.row is not None:
        told["row"] = failed.row
    if problems.kind_of(error).status == HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("a load failed", exc_info=error)
    return told


def _require_its_parameters(params: LoadParams, kind: str) -> None:
    """Raise InvalidParameter if a parameter does not apply to the format, or one is missing."""
    for name in (name for name, kinds in _PARAMETERS.items() if kind not in kinds):
        if (given := getattr(params, name)) is not None:
            raise ix.InvalidParameter(
                expected=f"no parameter of this name for {formats.NAMES[kind]}",
                got=str(given),
                loc=(name,),
            )
    if kind == NPY and params.id_start is None and params.payloads == "keep":
        raise ix.InvalidParameter(
            expected="id_start: it selects the items whose payloads are kept",
            got="rows without ids",
            loc=("payloads",),
        )
