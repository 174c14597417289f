"""Queries: one, and many at once; how many items pass a filter; why two are similar.

Of pages of a ranking by ``offset`` no hit is on two, and none is between them. A search for more
hits may find other ones first, so pages cut out of searches of their own would overlap. Here the
first page is the search itself. Deeper searches, for 100 hits, 1,000 and so on, continue its
ranking with the hits that it lacks.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import numpy as np
import orjson
from fastapi import Query, Request, Response

from gcws_search import index as ix
from gcws_search.service import models, problems
from gcws_search.service.api import requests
from gcws_search.service.api.bodies import (
    BatchBody,
    BatchParams,
    CountBody,
    ExplainBody,
    QueryBody,
    SimilarityBody,
)
from gcws_search.service.contract import CollectionProtocol, QueryRequest
from gcws_search.service.http import (
    Service,
    json_router,
    may_read,
    media_type,
    read_body,
    read_model,
    read_params,
    refuse_parameters,
    require_plain,
    service_of,
    stated_media_type,
)
from gcws_search.service.ingest import formats
from gcws_search.service.ingest.npy import read_matrix
from gcws_search.service.ingest.source import ByteReader
from gcws_search.service.limits import AnswerBytes
from gcws_search.service.models import Body, reference, require_short_vector
from gcws_search.service.responses import (
    ARROW,
    BODY_PROBLEMS,
    JSON,
    NPY,
    JsonResponse,
    json_bytes,
    query_json,
    shows,
)

T = TypeVar("T")
_PACKED: Final = (NPY, ARROW)
_FIRST_DEPTH: Final = 100
_GROWTH: Final = 10
_PAGE: Final = 10
"""Hits of a page: a deep search may miss as many hits in all as a search for one page."""
_Bad: TypeAlias = dict[int, ix.InvalidInput]
"""What is wrong with queries that are left out, by their numbers."""


router = json_router("/v1/collections/{name}", "search", may_read, BODY_PROBLEMS)
comparing = json_router("/v1", "search", may_read, BODY_PROBLEMS)


def _bodies(model: type[Body]) -> dict[str, Any]:
    """Return how the API page describes a body of JSON, `.npy` or Arrow."""
    by_json = {"schema": reference(model.__name__)}
    binary = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in _PACKED}
    content = {JSON: by_json, **binary}
    return {"requestBody": {"required": True, "content": content}}


@router.post("/query", responses=shows("QueryAnswer"), openapi_extra=_bodies(QueryBody))
async def query(request: Request, name: str) -> Response:
    """Find the stored items most similar to a vector, or to a stored item.

    A vector may come as `.npy` or as an Arrow stream of one row, too. Then the parameters stand in
    the URL, as of a batch.
    """
    kind = media_type(request)
    if kind in _PACKED:
        return await query_packed(request, name, kind)
    refuse_parameters(request)
    body = await read_model(request, QueryBody)
    service = service_of(request)
    collection = service.collection(name)
    if body.consistency == "strict" and requests.reads_names(body):
        await service.workers.searches.run(collection.load_names)
    asked = requests.query(body, collection, service.settings)
    return await _answer_one(service, collection, asked)


async def query_packed(request: Request, name: str, kind: str) -> Response:
    """Find the stored items most similar to the only vector of an `.npy` or Arrow body."""
    service = service_of(request)
    collection = service.collection(name)
    require_plain(request)
    params = read_params(request, BatchParams)
    if params.on_error == "skip":
        raise ix.InvalidParameter(expected="'stop' for one query", got="'skip'", loc=("on_error",))
    body = await read_body(request, service.settings.max_body_bytes)
    formats.require_not_foreign(body, kind)

    def read() -> QueryRequest:
        try:
            vectors = _read_vectors(service, body, kind, is_one=True)
            if len(vectors) == 1:
                return _query_of_vectors(service, collection, vectors, params)[0]
        except ix.InvalidVector as error:
            raise requests.only(error, "vector") from None
        raise ix.InvalidParameter(expected="one vector", got=str(len(vectors)), loc=("vector",))

    is_long = len(body) > models.LONG_BYTES
    asked = await service.workers.parsing.run(read) if is_long else read()
    return await _answer_one(service, collection, asked)


async def _answer_one(
    service: Service, collection: CollectionProtocol, asked: QueryRequest
) -> Response:
    def show(found: Sequence[ix.QueryResult]) -> Response:
        return JsonResponse(query_json(asked, found[0]))

    try:
        if asked.offset:
            return await search_page(service, collection, asked, show)
        return await service.searches.search(collection, asked, show)
    except ix.InvalidVector as error:  # what only the transform shows
        raise requests.only(error, "vector") from None


@router.post("/count", responses=shows("CountAnswer"))
async def count_items(request: Request, name: str, body: CountBody) -> Response:
    """Count the items that pass a filter, exactly."""
    service = service_of(request)
    collection = service.collection(name)
    where, _ = requests.condition(body.filter, service.settings)
    count = await service.workers.searches.run(collection.count, where)
    return JsonResponse({"count": count})


@router.post("/explain", responses=shows("ExplanationAnswer"))
async def explain(request: Request, name: str, body: ExplainBody) -> Response:
    """Say what each coordinate adds to the similarity of two items, or vectors."""
    service = service_of(request)
    collection = service.collection(name)
    service.startup.require_kernels()
    a = requests.point_to_explain(body.a, service.settings, "a")
    b = requests.point_to_explain(body.b, service.settings, "b")

    def work() -> Response:
        return JsonResponse(collection.explain(a, b, limit=body.limit).to_dict())

    return await service.workers.batches.run(work)


@comparing.post("/similarity", responses=shows("SimilarityAnswer"))
async def similarity(request: Request, body: SimilarityBody) -> Response:
    """Compare two vectors by an exact kernel; all but the zero vector can be compared."""
    kernel = ix.kernel_named(body.kernel, body.params)
    service = service_of(request)
    service.startup.require_kernels()
    limits = service.settings
    require_short_vector(body.a, limits, "a")
    require_short_vector(body.b, limits, "b")
    try:
        a, b = requests.pair_of(body.a, body.b)
        score = await service.workers.searches.run(ix.score, kernel, a, b)
    except ix.InvalidVector as error:
        row, *rest = error.loc or (0,)
        raise ix.InvalidVector(
            expected=error.expected, got=error.got, loc=("ab"[int(row)], *rest)
        ) from None
    return JsonResponse({"score": score})


@router.post("/query/batch", responses=shows("BatchAnswer"), openapi_extra=_bodies(BatchBody))
async def query_batch(
    request: Request, name: str, params: Annotated[BatchParams, Query()]
) -> Response:
    """Answer many queries at once: JSON, a matrix as `.npy`, or an Arrow stream of vectors.

    A body without a content type, or of `application/octet-stream`, is known by its first bytes.
    """
    service = service_of(request)
    collection = service.collection(name)
    stated = stated_media_type(request, JSON, NPY, ARROW, hint=formats.LOADS_FILES)
    require_plain(request)
    if stated == JSON:
        _require_none(params)
    body = await read_body(request, service.settings.max_body_bytes)
    kind = stated or formats.media_type_of(body, JSON)
    if kind == JSON:
        _require_none(params)
    formats.require_not_foreign(body, kind)

    def read() -> tuple[list[QueryRequest], _Bad]:
        if kind == JSON:
            return _read_json(service, collection, body)
        vectors = _read_vectors(service, body, kind)
        bad: _Bad = {}
        if params.on_error == "skip":
            vectors, bad = _usable(service, collection, vectors, params)
        asked = _query_of_vectors(service, collection, vectors, params)
        return asked if len(vectors) else [], bad

    try:
        asked, bad = await service.workers.batches.run(read)
        if not asked:
            return _answers(asked, bad, [])
        return await search_batch(service, collection, asked, partial(_answers, asked, bad))
    except ix.InvalidVector as error:
        if not error.loc or error.loc[0] == "queries":  # of no query, or named already
            raise
        raise requests.within(error, "queries", "vector") from None


def _require_none(params: BatchParams) -> None:
    if params.model_fields_set:
        raise ix.InvalidParameter(
            expected="parameters inside each query of a JSON body",
            got="some in the URL",
            loc=(min(params.model_fields_set),),
        )


def _read_json(
    service: Service, collection: CollectionProtocol, body: bytes
) -> tuple[list[QueryRequest], _Bad]:
    batch = models.parse(BatchBody, body, service.settings)
    if any(map(requests.reads_names, batch.queries)):
        collection.load_names()
    asked: list[QueryRequest] = []
    bad: _Bad = {}
    for number, one in enumerate(batch.queries):
        try:
            query = requests.query(one, collection, service.settings)
            if batch.on_error == "skip":
                _require_a_rest(query, collection)
        except ix.InvalidInput as error:
            bad[number] = error.at("queries", number)
            if batch.on_error == "stop":
                raise bad[number] from None
        else:
            asked.append(query)
    return asked, bad


def _require_a_rest(query: QueryRequest, collection: CollectionProtocol) -> None:
    """Raise InvalidVector where the transform leaves nothing of a query's vector."""
    if query.vectors is not None:
        try:
            collection.space.prepare(query.vectors)
        except ix.InvalidVector as error:
            raise requests.only(error, "vector") from None


def _usable(
    service: Service, collection: CollectionProtocol, vectors: ix.InputVectors, params: BatchParams
) -> tuple[ix.InputVectors, _Bad]:
    """Return the vectors that can be searched for, and what is wrong with the others."""

    def check(rows: slice) -> None:
        for query in _query_of_vectors(service, collection, vectors.part(rows), params):
            if query.vectors is not None:
                collection.space.prepare(query.vectors)

    bad: _Bad = {
        row: requests.only(error, "queries", row, "vector")
        for row, error in ix.bad_rows(len(vectors), check, ix.InvalidVector).items()
    }
    good = [row for row in range(len(vectors)) if row not in bad]
    return vectors.part(np.array(good, np.int64)), bad


def _read_vectors(
    service: Service, body: bytes, kind: str, *, is_one: bool = False
) -> ix.InputVectors:
    """Return the vectors of an `.npy` body, or of an Arrow stream.

    Where one is expected, an array of one dimension is that.
    """
    settings = service.settings
    chunks = [body]
    reader = ByteReader(
        lambda: chunks.pop() if chunks else b"", max_read_bytes=settings.max_body_bytes
    )
    if kind == NPY:
        max_bytes = settings.max_body_bytes
        return ix.InputVectors(read_matrix(reader, settings, max_bytes=max_bytes, is_one=is_one))
    from gcws_search.service.ingest.arrow import (  # noqa: PLC0415  # no start waits for it
        read_queries,
    )

    return read_queries(reader, settings, settings.max_body_bytes)


def _query_of_vectors(
    service: Service, collection: CollectionProtocol, vectors: ix.InputVectors, params: BatchParams
) -> list[QueryRequest]:
    """Return the queries of vectors that all ask for the same: one for all of them together.

    There is one for each where names may be unknown.
    """
    limits = service.settings
    if vectors.names is not None and params.consistency == "strict":
        collection.load_names()
    if vectors.names is not None and not collection.names.is_open:
        each = vectors.one_by_one(collection.space, requests.finder(collection, []))
        return [
            requests.matrix(one, params, limits)._replace(unknown_names=names)
            for one, names in each
        ]
    find = requests.finder(collection, [], beyond_dim=False)
    rows = vectors.check(collection.space, find)
    return [requests.matrix(rows, params, limits)]


def _answers(asked: Sequence[QueryRequest], bad: _Bad, found: Sequence[ix.QueryResult]) -> Response:
    """Return the answers to a batch, whose vectors may all be of one request."""
    each = asked if len(asked) == len(found) else repeat(asked[0], len(found))
    # As text at once: objects take six times the memory.
    good = (
        orjson.Fragment(json_bytes(query_json(one, hits)))
        for one, hits in zip(each, found, strict=True)
    )
    shown = [
        {"hits": [], "error": problems.document(bad[number])} if number in bad else next(good)
        for number in range(len(found) + len(bad))
    ]
    return JsonResponse({"results": shown})


# Pages


def page_searches(params: ix.SearchParams, offset: int, max_limit: int) -> list[ix.SearchParams]:
    """Return the searches that a page needs, each deeper than the one before, up to ``max_limit``.

    The limit of ``params`` is the length of the page, ``offset`` the hits before it.
    """
    end = offset + params.limit
    if params.recall == 1 or params.candidates is not None:  # every depth has the same ranking
        return [replace(params, limit=end)]
    found, depth = [params], _FIRST_DEPTH
    while found[-1].limit < end:
        if depth > params.limit:
            limit = min(depth, max_limit)
            recall = max(params.recall, 1 - (1 - params.recall) * _PAGE / limit)
            found.append(replace(params, limit=limit, recall=recall))
        depth *= _GROWTH
    return found


async def search_page(
    service: Service,
    collection: CollectionProtocol,
    asked: QueryRequest,
    show: Callable[[Sequence[ix.QueryResult]], T],
) -> T:
    """Search for one query, or for several vectors, and show a page of each ranking.

    Results and errors are those of `contract.SearchesProtocol.search`; ``show`` is called in a
    thread.
    """
    first, *deeper = page_searches(asked.params, asked.offset, service.settings.max_limit)
    ids_only = asked._replace(offset=0, with_payload=False, with_vector=False, is_shown=False)
    found = await service.searches.search_batch(collection, [ids_only._replace(params=first)], list)
    for params in deeper:
        more = await service.searches.search_batch(
            collection, [ids_only._replace(params=params)], list
        )
        found = [_continue(*each, params.limit) for each in zip(found, more, strict=True)]

    def finish() -> T:
        pages = [_cut(ranking, asked.offset, asked.params.limit) for ranking in found]
        return show(_add_items(service, collection, asked, pages))

    return await service.workers.batches.run(finish)


async def search_batch(
    service: Service,
    collection: CollectionProtocol,
    asked: Sequence[QueryRequest],
    show: Callable[[Sequence[ix.QueryResult]], T],
) -> T:
    """Search for many queries; each may ask for a page of its ranking.

    Results and errors are those of `contract.SearchesProtocol.search_batch`.
    """
    paged = [number for number, one in enumerate(asked) if one.offset]
    if not paged:
        return await service.searches.search_batch(collection, asked, show)
    if len(asked) == 1:
        return await search_page(service, collection, asked[0], show)
    found: dict[int, ix.QueryResult] = {}
    rest = [number for number, one in enumerate(asked) if not one.offset]
    for numbers in [rest, *([number] for number in paged)]:
        try:
            if numbers is rest:
                alone = [asked[number] for number in rest]
                some = await service.searches.search_batch(collection, alone, list)
            else:
                some = await search_page(service, collection, asked[numbers[0]], list)
        except ix.InvalidVector as error:
            error.move_row(numbers.__getitem__)
            raise
        found.update(zip(numbers, some, strict=True))
    ranked = [found[number] for number in range(len(asked))]
    return await service.workers.batches.run(show, ranked)


def _continue(ranking: ix.QueryResult, deeper: ix.QueryResult, limit: int) -> ix.QueryResult:
    """Return a ranking and then what a deeper search found besides."""
    known = {*ranking.ids}
    hits = zip(deeper.ids, deeper.scores, strict=True)
    more = [hit for hit in hits if hit[0] not in known]
    cost = deeper.explanation
    before = ranking.explanation
    if cost is not None and before is not None:
        cost = cost._replace(seconds=(before.seconds or 0.0) + (cost.seconds or 0.0))
    return replace(
        deeper,
        ids=[*ranking.ids, *(item_id for item_id, _ in more)][:limit],
        scores=[*ranking.scores, *(score for _, score in more)][:limit],
        explanation=cost,
    )


def _cut(ranking: ix.QueryResult, offset: int, limit: int) -> ix.QueryResult:
    """Return the hits of a page, by falling score."""
    end = offset + limit
    page = zip(ranking.scores[offset:end], ranking.ids[offset:end], strict=True)
    hits = sorted(page, key=lambda hit: (-hit[0], hit[1]))
    return replace(ranking, ids=[hit[1] for hit in hits], scores=[hit[0] for hit in hits])


def _add_items(
    service: Service,
    collection: CollectionProtocol,
    asked: QueryRequest,
    pages: list[ix.QueryResult],
) -> list[ix.QueryResult]:
    """Return pages with the payloads and vectors that they show; None for an item deleted since."""
    ids = [item_id for page in pages for item_id in page.ids]
    items: dict[str, ix.StoredItem] = {}
    if ids and (asked.with_payload or asked.with_vector):
        found = collection.page(
            limit=len(ids), cursor=None, with_vector=asked.with_vector, where=None, ids=ids
        )
        items = {item.id: item for item in found.items}
    payloads = {item_id: item.payload for item_id, item in items.items() if asked.with_payload}
    vectors = {item_id: item.vector for item_id, item in items.items() if asked.with_vector}
    size = AnswerBytes(service.settings.max_answer_bytes)
    size.add_hits(ids, [*payloads.values()])
    size.add_vectors([*vectors.values()])
    return [
        replace(
            page,
            payloads=[payloads.get(each) for each in page.ids] if asked.with_payload else None,
            vectors=[vectors.get(each) for each in page.ids] if asked.with_vector else None,
        )
        for page in pages
    ]
