"""Queries: one, and many at once."""

import time
from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from gcws_search import index as ix
from gcws_search.service.execution.context import Service, may_read, service_of
from gcws_search.service.guards.limits import require_short_answer
from gcws_search.service.http.json_route import JsonRoute
from gcws_search.service.http.responses import BODY_PROBLEMS, json_response
from gcws_search.service.ingest import formats
from gcws_search.service.ingest.arrow import read_queries
from gcws_search.service.ingest.npy import read_matrix
from gcws_search.service.ingest.rows import DenseRows, NamedRows, Vectors
from gcws_search.service.ingest.source import ByteReader
from gcws_search.service.schemas.answers import BatchAnswer, ExplanationAnswer, QueryAnswer
from gcws_search.service.schemas.requests import BatchBody, BatchParams, ExplainBody, QueryBody
from gcws_search.service.translate import bodies, requests, results as results_module
from gcws_search.service.translate.names import Naming

router = APIRouter(
    prefix="/v1/collections/{name}",
    tags=["search"],
    dependencies=[Depends(may_read)],
    responses=BODY_PROBLEMS,
    route_class=JsonRoute,
)
batch_router = APIRouter(
    prefix="/v1/collections/{name}",
    tags=["search"],
    dependencies=[Depends(may_read)],
    responses=BODY_PROBLEMS,
)


@router.post("/query", response_model=QueryAnswer)
async def query(request: Request, name: str, body: QueryBody) -> Response:
    """Find the stored items most similar to a vector, or to a stored item."""
    service = service_of(request)
    collection = service.collection(name)
    asked = requests.query(body, collection, service.limits)
    if not service.startup.is_compiled:
        asked = asked.exactly()

    def work() -> Response:
        start = time.perf_counter()
        try:
            [result] = results_module.search(collection, asked)
        except ix.InvalidVector as error:  # what only the transform shows
            raise requests.only(error, "vector") from None
        seconds = time.perf_counter() - start
        service.metrics.searched(result.totals())
        _require_short(service, collection, [(asked, result)])
        return json_response(results_module.answer(collection, asked, result, seconds))

    answer, _ = await service.workers.search(
        (name, asked.pace),
        results_module.entries(collection),
        work,
        may_block=asked.may_block or results_module.may_compile(collection, asked),
    )
    return answer


@router.post("/explain", response_model=ExplanationAnswer)
async def explain(request: Request, name: str, body: ExplainBody) -> Response:
    """Say what each coordinate adds to the similarity of two items, or vectors."""
    service = service_of(request)
    collection = service.collection(name)
    service.startup.require_kernels()
    a = requests.explained(body.a, service.limits, "a")
    b = requests.explained(body.b, service.limits, "b")

    def work() -> Response:
        return json_response(collection.explain(a, b, limit=body.limit).to_dict())

    return await service.workers.batches.run(work)


_BATCH_BODIES = {
    "required": True,
    "content": {
        bodies.JSON: {
            "schema": {"$ref": f"#/components/schemas/{BatchBody.__name__}"},
        },
        bodies.NPY: {"schema": {"type": "string", "format": "binary"}},
        bodies.ARROW: {"schema": {"type": "string", "format": "binary"}},
    },
}


@batch_router.post(
    "/query/batch", response_model=BatchAnswer, openapi_extra={"requestBody": _BATCH_BODIES}
)
async def query_batch(
    request: Request, name: str, params: Annotated[BatchParams, Query()]
) -> Response:
    """Answer many queries at once: JSON, a matrix as `.npy`, or an Arrow stream of vectors.

    A body without a content type, or of `application/octet-stream`, is known by its first bytes.
    """
    service = service_of(request)
    collection = service.collection(name)
    stated = bodies.stated_media_type(
        request, bodies.JSON, bodies.NPY, bodies.ARROW, hint=formats.LOADS_FILES
    )
    bodies.require_plain(request)
    if stated == bodies.JSON:
        _require_none(params)
    body = await bodies.read(request, service.settings.max_body_bytes)
    kind = stated or formats.media_type_of(body, bodies.JSON)
    if kind == bodies.JSON:
        _require_none(params)
    formats.require_not_foreign(body, kind)

    def work() -> Response:
        if kind == bodies.JSON:
            return _answer_json(service, collection, body)
        return _answer_vectors(service, collection, body, kind, params)

    return await service.workers.batches.run(work)


def _require_none(params: BatchParams) -> None:
    if params.model_fields_set:
        raise ix.InvalidParameter(
            expected="parameters inside each query of a JSON body",
            got="some in the URL",
            loc=(min(params.model_fields_set),),
        )


def _require_count(count: int, service: Service) -> None:
    max_count = service.settings.max_queries_per_request
    if count > max_count:
        raise ix.InvalidParameter(
            expected=f"at most {max_count} queries", got=str(count), loc=("queries",)
        )


def _answer_json(service: Service, collection: ix.Collection, body: bytes) -> Response:
    batch = bodies.parse(BatchBody, body)
    _require_count(len(batch.queries), service)
    queries = requests.batch(batch, collection, service.limits)
    if not service.startup.is_compiled:
        queries = [one.exactly() for one in queries]
    start = time.perf_counter()
    try:
        found, costs = results_module.search_batch(collection, queries)
    except ix.InvalidVector as error:
        raise requests.within(error, "queries", "vector") from None
    seconds = (time.perf_counter() - start) / max(1, len(found))
    service.metrics.searched(costs)
    return _answers(service, collection, queries, found, seconds)


def _answer_vectors(
    service: Service, collection: ix.Collection, body: bytes, kind: str, params: BatchParams
) -> Response:
    """Answer queries that all ask for the same: a matrix, or an Arrow stream of vectors."""
    settings, limits = service.settings, service.limits
    chunks = [body]
    reader = ByteReader(
        lambda: chunks.pop() if chunks else b"", max_read_bytes=settings.max_body_bytes
    )
    try:
        if kind == bodies.NPY:
            array = read_matrix(reader, limits, max_bytes=settings.max_body_bytes)
            vectors: Vectors = DenseRows(array)
        else:
            vectors = read_queries(reader, limits, settings.max_arrow_batch_bytes)
        _require_count(len(vectors), service)
        if isinstance(vectors, NamedRows) and not collection.names.is_open:
            each = vectors.one_by_one(collection.space, Naming(collection, "search"))
            queries = [
                requests.matrix(one, params, limits)._replace(unknown_names=names)
                for one, names in each
            ]
            if not service.startup.is_compiled:
                queries = [one.exactly() for one in queries]
            start = time.perf_counter()
            found, costs = results_module.search_batch(collection, queries)
        else:
            rows = vectors.check(collection.space, Naming(collection, "search together"))
            asked = requests.matrix(rows, params, limits)
            if not service.startup.is_compiled:
                asked = asked.exactly()
            start = time.perf_counter()
            results = results_module.search(collection, asked) if len(rows) else []
            costs, found = results_module.totals(results), [*results]
            queries = [asked] * len(found)
    except ix.InvalidVector as error:
        if not error.loc:  # of no query, but of the whole body
            raise
        raise requests.within(error, "queries", "vector") from None
    seconds = (time.perf_counter() - start) / max(1, len(found))
    service.metrics.searched(costs)
    return _answers(service, collection, queries, found, seconds)


def _require_short(
    service: Service,
    collection: ix.Collection,
    answered: Iterable[tuple[requests.QueryRequest, ix.QueryResult]],
) -> None:
    payload_bytes = vectors = 0
    for asked, result in answered:
        if asked.with_payload:
            payload_bytes += sum(len(payload or b"") for payload in result.payloads)
        if asked.with_vector:
            vectors += len(result.ids)
    require_short_answer(
        payload_bytes, vectors, collection.config.dim, service.settings.max_answer_bytes
    )


def _answers(
    service: Service,
    collection: ix.Collection,
    queries: Sequence[requests.QueryRequest],
    found: Sequence[ix.QueryResult],
    seconds: float,
) -> Response:
    """Return the answers to a batch; ``seconds`` is the mean of one query."""
    _require_short(service, collection, zip(queries, found, strict=True))
    results = [
        results_module.answer(collection, asked, result, seconds)
        for asked, result in zip(queries, found, strict=True)
    ]
    return json_response({"results": results})
