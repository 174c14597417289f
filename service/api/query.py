"""Queries: one, and many at once; how many items pass a filter."""

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import repeat
from math import inf
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeVar

import numpy as np
import orjson
from fastapi import Query, Request, Response
from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from gcws_search import index as ix
from gcws_search.service import models, problems
from gcws_search.service.api import requests
from gcws_search.service.contract import QueryRequest
from gcws_search.service.http import (
    HEADERS,
    CollectionOf,
    JsonResponse,
    Service,
    ServiceOf,
    json_router,
    may_read,
    media_type,
    read_body,
    read_model,
    read_params,
    refuse_parameters,
    require_plain,
    stated_media_type,
)
from gcws_search.service.ingest import formats
from gcws_search.service.ingest.npy import read_matrix
from gcws_search.service.ingest.source import ByteReader
from gcws_search.service.limits import AnswerBytes, require_at_least, require_at_most
from gcws_search.service.models import (
    Body,
    FilterDocument,
    FirstErrorOnly,
    Id,
    NamedBody,
    VectorBody,
    bounds,
    examples,
    json_text,
    weights_of,
)
from gcws_search.service.responses import (
    ARROW,
    BODY_PROBLEMS,
    JSON,
    NPY,
    json_bytes,
    payload_json,
    shows,
    vector_json,
)
from gcws_search.service.settings import Settings

T = TypeVar("T")
_PACKED: Final = (NPY, ARROW)
_JSON: Final = JSON.encode()
_GROWTH: Final = 10
_MAX_SEEN: Final = 1 << 31
"""More hits than any pages show."""
_LONG_TEXT: Final = 4096
"""Characters of a text that becomes a vector in less than a millisecond."""
Hint: TypeAlias = Callable[[ix.Filter], list[str]]
"""Returns what may be wrong with a filter that no item passes."""
Condition: TypeAlias = Callable[[bytes | None, Settings], ix.Filter | None]
"""Returns the filter in a JSON text."""
_Bad: TypeAlias = dict[int, ix.InvalidInput]
"""What is wrong with queries that are left out, by their numbers."""


OnError = Annotated[
    Literal["stop", "skip"],
    Field(
        description="At a query with an invalid vector or invalid parameters: `stop` answers "
        "none; `skip` gives it no hits and an `error`, and answers all others."
    ),
]
SHARE: Final[dict[str, Any]] = {"exclusiveMinimum": 0, "maximum": 1}
Limit = Annotated[
    int,
    Field(
        description="Number of hits; at most the server's `max_limit`, 100,000 by default.",
        json_schema_extra=bounds(1),
    ),
]
Recall = Annotated[
    float,
    Field(
        description="Expected share of the true hits, in (0, 1]; 1 is an exact scan.",
        json_schema_extra=SHARE,
    ),
]
Candidates = Annotated[
    int | None,
    Field(
        description="Number of the best candidates, by a comparison backend's estimate, that are "
        "scored exactly; null: 100, or 10 times `limit`.",
        json_schema_extra=bounds(1),
    ),
]


def _known_score(word: object) -> ix.ScoreKind:
    """Validate a kind of score; an error names what other fields call it."""
    try:
        return ix.check_score(word)
    except ix.InvalidParameter as error:
        words = {"expected": error.expected, "got": error.got}
        raise PydanticCustomError(
            "unknown_score", "expected {expected}, got {got}", words
        ) from None


Score = Annotated[
    ix.ScoreKind,
    BeforeValidator(_known_score),
    Field(
        description="Kind of the scores, and of `min_score`: `gmm`, the GMM J; `bray_curtis`, 2 "
        "J / (1 + J), 1 minus the Bray-Curtis dissimilarity, in the same order; "
        "`containment`, the sum of minima over the sum of the query, or of the "
        "smaller item of a pair: hits are ranked by it, exactly, by a scan."
    ),
]


class SearchOptions(BaseModel):
    """What one query, or many, ask for."""

    limit: Limit = 10
    offset: int = Field(
        default=0,
        description="Number of hits of the ranking to skip. `offset` and `limit` together are at "
        "most `max_limit`. Pages of one `limit` neither overlap nor leave gaps.",
        json_schema_extra=bounds(0),
    )
    recall: Recall = 0.9
    min_score: float = Field(
        default=0.0,
        description="Hits below this score are left out, in [0, 1]. At 0, items that share "
        "nothing with the query may be returned too, with score 0.",
        json_schema_extra=bounds(0, 1),
    )
    score: Score = "gmm"
    guarantee: ix.Guarantee = Field(
        default="measured",
        description="The sense in which `recall` is promised. `measured`: as the mean over "
        "queries like the collection's own items, by calibration; the fastest. "
        "`proven`: as this query's expected share, by the collision law, whatever "
        "the data. If `band_width` is a number, `measured` returns what the tables "
        "hold, and `proven` falls back to a scan if that is not enough.",
    )
    with_payload: bool = Field(default=True, description="Return the hits' payloads.")
    with_vector: bool = Field(default=False, description="Return the hits' vectors.")
    backend: str | None = Field(
        default=None,
        description="Name of one of the collection's `backends`; null: the one it was created "
        "with, whose name is its `kind`. Any other: 404.",
    )
    rerank: ix.Rerank = Field(
        default="gmm",
        description="How hits are scored and ranked: `gmm`, the exact GMM; `own`, the exact "
        "kernel that the backend estimates; `none`, its own estimate. `exact` always "
        "gives the exact GMM.",
    )
    candidates: Candidates = None
    explain: bool = Field(default=False, description="Report the cost of the query.")
    allow_partial: bool = Field(
        default=False,
        description="In a cluster: answer without the shards that did not answer in time, and "
        "name them, instead of failing.",
    )
    consistency: Literal["session", "strict"] = Field(
        default="session",
        description="In a cluster: `session` finds the writes acknowledged by the process that "
        "is asked, `strict` those acknowledged by any. A single process is always "
        "strict.",
    )


class QueryBody(SearchOptions, Body):
    """What to search for: a ``vector``, a ``text``, or the ``id`` of a stored item."""

    model_config = examples(
        {"vector": [0.1, -2, 0, 3], "limit": 10},
        {"id": "a", "limit": 1, "with_vector": True},
        {
            "vector": {"indices": [1, 3], "values": [-2, 3]},
            "limit": 5,
            "offset": 0,
            "recall": 0.95,
            "min_score": 0.1,
            "filter": {"must": [{"key": "label", "match": {"value": 3}}]},
            "guarantee": "proven",
            "with_payload": True,
            "with_vector": False,
            "backend": None,
            "rerank": "gmm",
            "candidates": None,
            "explain": True,
        },
    )

    vector: VectorBody | None = Field(
        default=None, description="The vector to search for; instead of `id`."
    )
    text: str | None = Field(
        default=None, description="The text to search for, in a collection of texts."
    )
    cursor: bool | str | None = Field(
        default=None,
        description="`true` requests the first page of a ranking, `false` no pages; the `cursor` "
        "of an answer, sent with the same query, requests the next page. Only for a "
        "single query, without `offset`. Pages reach as far as `max_limit` hits.",
    )
    group_by: str | None = Field(
        default=None,
        description="Payload key: of the items that share a value there, only the best "
        "`group_size` are hits, and `limit` counts such groups. Items without a "
        "value, or with several, are left out. Only for a single query, without "
        "`offset` or `cursor`.",
        json_schema_extra={"minLength": 1},
    )
    group_size: int | None = Field(
        default=None,
        description="With `group_by`: maximum number of hits per group; null: 1. At most the "
        "server's `max_limit`, times `limit`.",
        json_schema_extra=bounds(1),
    )
    id: Id | None = Field(
        default=None, description="Searches around this stored item, which is left out of the hits."
    )
    filter: FilterDocument | None = Field(
        default=None, description="Only items with matching payloads are found; null: all."
    )


class BatchBody(Body):
    """Several queries."""

    limited: ClassVar = {"queries": "max_queries_per_request"}
    model_config = examples({"queries": [{"vector": [0.1, -2, 0, 3]}, {"id": "a", "limit": 2}]})

    queries: Annotated[list[QueryBody], FirstErrorOnly()] = Field(
        description="The queries, answered in this order."
    )
    on_error: OnError = "stop"


class BatchParams(SearchOptions):
    """What the queries of an ``.npy`` body or an Arrow stream ask for."""

    on_error: OnError = "stop"


class CountBody(Body):
    """Which items are counted."""

    model_config = examples(
        {"filter": {"must": [{"key": "label", "match": {"value": 3}}]}}, {"filter": None}
    )

    filter: FilterDocument | None = Field(
        default=None, description="Only items with matching payloads are counted; null: all."
    )


router = json_router("/v1/collections/{name}", "search", may_read, BODY_PROBLEMS)


@lru_cache(maxsize=256)
def search_params(  # noqa: PLR0913, PLR0917  # a key of the cache
    max_limit: int,
    limit: int,
    recall: float,
    candidates: int | None,
    offset: int = 0,
    min_score: float = 0.0,
    guarantee: ix.Guarantee = "measured",
    rerank: ix.Rerank = "gmm",
    ranking: ix.Ranking = "gmm",
) -> ix.SearchParams:
    """Return the parameters of a query, made and checked once: most queries share theirs."""
    require_at_most(limit, max_limit, "limit")
    require_at_most(candidates or 0, max_limit, "candidates")
    require_at_least(offset, 0, "offset")
    if offset + limit > max_limit:
        raise ix.InvalidParameter(
            expected=f"at most {max_limit} together with 'limit'",
            got=str(offset + limit),
            loc=("offset",),
        )
    return ix.SearchParams(
        limit=limit,
        recall=recall,
        min_score=min_score,
        guarantee=guarantee,
        rerank=rerank,
        candidates=candidates,
        ranking=ranking,
    )


def reads_names(body: QueryBody) -> bool:
    """Whether a query uses names that another process may just have stored."""
    return body.consistency == "strict" and isinstance(body.vector, NamedBody)


def request_of(
    body: QueryBody,
    collection: ix.StoredCollection,
    limits: Settings,
    *,
    gives_hints: bool = True,
    condition: Condition = requests.condition,
) -> QueryRequest:
    """Return a checked query, with hints on its names unless they are disabled."""
    if (body.vector is not None) + (body.text is not None) + (body.id is not None) != 1:
        ix.require_one(vector=body.vector, text=body.text, id=body.id)
    asked, space = query_of(body, limits, condition), collection.space
    if space.text is not None:
        asked = asked._replace(shows_texts=True)
    if body.text is not None:
        text = ix.Text(body.text)
        vectors = requests.vector(text, collection, requests.finder(collection, []), limits, "text")
        return asked._replace(vectors=vectors)
    raw = body.vector
    if raw is None:
        return asked
    if isinstance(raw, np.ndarray):  # most queries: read in 2 µs less than by `requests.vector`
        models.require_short_vector(raw, limits, "vector")
        try:
            return asked._replace(vectors=space.from_dense(raw.reshape(1, -1)))
        except ix.InvalidVector as error:
            raise error.at("vector", skip=1) from None
    unknown: list[str] = []
    if isinstance(raw, NamedBody) and gives_hints:
        asked = asked._replace(hints=ix.name_hints(collection.names, raw.names))
    if isinstance(raw, NamedBody) and not collection.names.is_open:
        found = requests.with_unknown(raw, collection, unknown, limits, "vector")
        if found is not None:
            return asked._replace(with_unknown=found, unknown_names=unknown)
    find = requests.finder(collection, unknown)
    vectors = requests.vector(raw, collection, find, limits, "vector")
    return asked._replace(vectors=vectors, unknown_names=unknown)


def query_of(
    body: SearchOptions, limits: Settings, condition: Condition = requests.condition
) -> QueryRequest:
    """Return the options of checked queries, without vectors."""
    ids, where, text = list[str](), None, None
    if isinstance(body, QueryBody):
        ids += () if body.id is None else (str(body.id),)
        text = body.filter
        if body.group_size is not None:
            require_at_least(body.group_size, 1, "group_size")
        if text is not None:
            where = condition(text, limits)
    least, sense, rerank = body.min_score, body.guarantee, body.rerank
    depth = body.limit, body.recall, body.candidates, body.offset
    ranking: ix.Ranking = "gmm"
    if body.score != "gmm":
        if rerank != "gmm":
            expected = f"'gmm' for the score {body.score!r}"
            raise ix.InvalidParameter(expected=expected, got=repr(rerank), loc=("rerank",))
        ranking, least = ix.ranking_of(body.score), ix.least_ranked(body.score, least)
    return QueryRequest(
        vectors=None,
        item_ids=ids,
        params=search_params(limits.max_limit, *depth, least, sense, rerank, ranking),
        where=where,
        filter_text=text or b"",
        backend=body.backend,
        with_payload=body.with_payload,
        with_vector=body.with_vector,
        explain=body.explain,
        allow_partial=body.allow_partial,
        is_strict=body.consistency == "strict",
        offset=body.offset,
        score=body.score,
    )


@router.post("/query", responses=shows("QueryAnswer"))
async def query(request: Request, service: ServiceOf, name: str) -> Response:
    """Find the stored items most similar to a vector, or to a stored item.

    A vector may also be sent as `.npy` or as an Arrow stream of one row. The parameters are then in
    the URL, as for a batch.
    """
    if request.scope[HEADERS].get(b"content-type") != _JSON:
        kind = media_type(request)
        if kind in _PACKED:
            return await query_packed(request, service, service.collection(name), kind)
    if request.scope["query_string"]:
        refuse_parameters(request)
    body = await read_model(request, QueryBody)
    collection = service.collection(name)
    if body.consistency == "strict" and reads_names(body):
        await service.workers.searches.run(collection.load_names)
    if len(body.text or "") > _LONG_TEXT:
        read = service.workers.parsing.run
        asked = await read(request_of, body, collection, service.settings)
    else:
        asked = request_of(body, collection, service.settings)
    return await _answer_one(service, collection, asked, body)


async def query_packed(
    request: Request, service: Service, collection: ix.StoredCollection, kind: str
) -> Response:
    """Find the stored items most similar to the only vector of an `.npy` or Arrow body."""
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
                asked = _query_of_vectors(service, collection, vectors, params)
                return _hinted(asked, collection, vectors)[0]
        except ix.InvalidVector as error:
            raise error.at("vector", skip=1) from None
        raise ix.InvalidParameter(expected="one vector", got=str(len(vectors)), loc=("vector",))

    is_long = len(body) > models.LONG_BYTES
    asked = await service.workers.parsing.run(read) if is_long else read()
    return await _answer_one(service, collection, asked)


def hinter(collection: ix.StoredCollection) -> Hint:
    """Return a function that gives hints on the filters of one answer, the first of them."""
    known: dict[ix.Filter, list[str]] = {}

    def hint(where: ix.Filter) -> list[str]:
        if where not in known and len(known) < ix.MAX_HINTED:
            known[where] = collection.hints(where)
        return known.get(where, [])

    return hint


def hints_json(
    where: ix.Filter | None, hint: Hint, more: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Return the part of an answer that explains why no item passes a filter, if known."""
    hints = [*more] if where is None else [*more, *hint(where)]
    return {"hints": hints} if hints else {}


def hints_on_key(collection: ix.StoredCollection, key: str | None) -> list[str]:
    """Return a hint on a requested key of payloads that no item has."""
    return [] if key is None else collection.hints(ix.with_key(None, key))


def query_json(asked: QueryRequest, found: ix.QueryResult, hint: Hint) -> dict[str, Any]:
    """Return the JSON answer to one query; may read payloads."""
    hits: list[dict[str, Any]]
    scores = found.scores
    if asked.score != "gmm":
        scores = [ix.score_of(asked.score, each) for each in scores]
    if asked.with_payload and found.payloads is not None and asked.shows_texts:
        hits = [
            {"id": item_id, "score": score, **payload_json(payload, has_text=True)}
            for item_id, score, payload in zip(found.ids, scores, found.payloads, strict=True)
        ]
    elif asked.with_payload and found.payloads is not None:
        hits = [
            {
                "id": item_id,
                "score": score,
                "payload": None if payload is None else orjson.Fragment(payload),
            }
            for item_id, score, payload in zip(found.ids, scores, found.payloads, strict=True)
        ]
    else:
        hits = [
            {"id": item_id, "score": score}
            for item_id, score in zip(found.ids, scores, strict=True)
        ]
    if found.vectors is not None:
        for hit, vector in zip(hits, found.vectors, strict=True):
            hit["vector"] = vector_json(vector)
    more: dict[str, Any] = {} if found.shards is None else {"shards": found.shards._asdict()}
    if asked.hints or not hits:
        more |= hints_json(None if hits else asked.where, hint, asked.hints)
    if not asked.explain or found.explanation is None:
        return {"hits": hits, **more}
    explained = found.explanation._asdict()
    if asked.unknown_names:
        explained["unknown_names"] = asked.unknown_names
    if found.explanation.measured_recall is None:
        del explained["measured_recall"]
    return {"hits": hits, "explain": explained, **more}


async def _answer_one(
    service: Service,
    collection: ix.StoredCollection,
    asked: QueryRequest,
    body: QueryBody | None = None,  # None: a vector alone, without pages or groups
) -> Response:
    def show(found: Sequence[ix.QueryResult]) -> Response:
        return JsonResponse(query_json(asked, found[0], collection.hints))

    try:
        if body is not None and body.group_by is not None:
            return await answer_groups(service, collection, asked, body)
        if body is not None and body.cursor not in (None, False):
            return await answer_page(service, collection, asked, body.vector, body.cursor)
        if asked.offset:
            return await search_page(service, collection, asked, show)
        return await service.searches.search(collection, asked, show)
    except ix.InvalidVector as error:  # an error of the transform
        raise error.at(collection.space.word, skip=1) from None


@router.post("/count", responses=shows("CountAnswer"))
async def count_items(service: ServiceOf, collection: CollectionOf, body: CountBody) -> Response:
    """Count the items that pass a filter, exactly."""
    where = requests.condition(body.filter, service.settings)

    def work() -> Response:
        count = collection.count(where)
        more = {} if count else hints_json(where, collection.hints)
        return JsonResponse({"count": count, **more})

    return await service.workers.searches.run(work)


@router.post("/query/batch", responses=shows("BatchAnswer"))
async def query_batch(
    request: Request,
    service: ServiceOf,
    collection: CollectionOf,
    params: Annotated[BatchParams, Query()],
) -> Response:
    """Answer many queries at once: JSON, a matrix as `.npy`, or an Arrow stream of vectors.

    Without a content type, or with `application/octet-stream`, the first bytes decide the format.
    """
    stated = stated_media_type(request, JSON, NPY, ARROW, hint=formats.LOADS_FILES)
    require_plain(request)
    body = await read_body(request, service.settings.max_body_bytes)
    kind = stated or formats.media_type_of(body, JSON)
    if kind == JSON and params.model_fields_set:
        raise ix.InvalidParameter(
            expected="parameters inside each query of a JSON body",
            got="some in the URL",
            loc=(min(params.model_fields_set),),
        )
    formats.require_not_foreign(body, kind)

    def read() -> tuple[list[QueryRequest], _Bad]:
        if kind == JSON:
            return _read_json(service, collection, body)
        vectors = _read_vectors(service, body, kind)
        bad: _Bad = {}
        if params.on_error == "skip":
            vectors, bad = _usable(service, collection, vectors, params)
        asked = _query_of_vectors(service, collection, vectors, params)
        return _hinted(asked, collection, vectors) if len(vectors) else [], bad

    try:
        asked, bad = await service.workers.batches.run(read)
        if not asked:
            return _answers(asked, bad, collection, [])
        show = partial(_answers, asked, bad, collection)
        return await search_batch(service, collection, asked, show)
    except ix.InvalidVector as error:
        if not error.loc or error.loc[0] == "queries":  # no query, or numbered
            raise
        raise requests.within(error, "queries", collection.space.word) from None


def _read_json(
    service: Service, collection: ix.StoredCollection, body: bytes
) -> tuple[list[QueryRequest], _Bad]:
    batch = models.parse(BatchBody, body, service.settings)
    if any(map(reads_names, batch.queries)):
        collection.load_names()
    asked: list[QueryRequest] = []
    bad: _Bad = {}
    hinted = 0
    condition = cache(requests.condition)  # equal filters of many queries are parsed once
    for number, one in enumerate(batch.queries):
        try:
            if one.cursor not in (None, False):
                raise ix.InvalidParameter(
                    expected="no cursor in a batch", got="one", loc=("cursor",)
                )
            if one.group_by is not None:
                raise ix.InvalidParameter(
                    expected="no groups in a batch", got="some", loc=("group_by",)
                )
            gives_hints = hinted < ix.MAX_HINTED
            more: dict[str, Any] = {"gives_hints": gives_hints, "condition": condition}
            query = request_of(one, collection, service.settings, **more)
            hinted += bool(query.hints)
            if batch.on_error == "skip":
                _require_a_rest(query, collection)
        except ix.InvalidInput as error:
            if batch.on_error == "stop":
                raise error.at("queries", number) from None
            bad[number] = error.at("queries", number)
        else:
            asked.append(query)
    return asked, bad


def _require_a_rest(query: QueryRequest, collection: ix.StoredCollection) -> None:
    if query.vectors is not None:
        try:
            collection.space.prepare(query.vectors)
        except ix.InvalidVector as error:
            raise error.at(collection.space.word, skip=1) from None


def _usable(
    service: Service, collection: ix.StoredCollection, vectors: ix.InputVectors, params: BatchParams
) -> tuple[ix.InputVectors, _Bad]:
    def check(rows: slice) -> None:
        for query in _query_of_vectors(service, collection, vectors.part(rows), params):
            if query.vectors is not None:
                collection.space.prepare(query.vectors)

    bad: _Bad = {
        row: error.at("queries", row, "vector", skip=1)
        for row, error in ix.bad_rows(len(vectors), check, ix.InvalidVector).items()
    }
    good = [row for row in range(len(vectors)) if row not in bad]
    return vectors.part(np.array(good, np.int64)), bad


def _read_vectors(
    service: Service, body: bytes, kind: str, *, is_one: bool = False
) -> ix.InputVectors:
    """Return the vectors of an Arrow stream or an `.npy` body; one may have one dimension."""
    settings = service.settings
    chunks = [body]
    reader = ByteReader(
        lambda: chunks.pop() if chunks else b"", max_read_bytes=settings.max_body_bytes
    )
    if kind == NPY:
        max_bytes = settings.max_body_bytes
        return ix.InputVectors(read_matrix(reader, settings, max_bytes=max_bytes, is_one=is_one))
    from gcws_search.service.ingest.arrow import read_queries  # noqa: PLC0415  # no start waits for it

    return read_queries(reader, settings, settings.max_body_bytes)


def _query_of_vectors(
    service: Service, collection: ix.StoredCollection, vectors: ix.InputVectors, params: BatchParams
) -> list[QueryRequest]:
    """Return one query of all vectors, or one query each if names may be unknown."""
    asked = query_of(params, service.settings)
    if vectors.names is not None and params.consistency == "strict":
        collection.load_names()
    if vectors.names is not None and not collection.names.is_open:
        each = vectors.one_by_one(collection.space, requests.finder(collection, []))
        return [
            asked._replace(vectors=one, unknown_names=names)
            if isinstance(one, ix.RawBatch)
            else asked._replace(with_unknown=one, unknown_names=names)
            for one, names in each
        ]
    unknown: list[str] = []
    find = requests.finder(collection, unknown, beyond_dim=False)
    rows = vectors.check(collection.space, find)
    if not unknown or not params.explain:
        return [asked._replace(vectors=rows)]
    names_of = (vectors.part(slice(row, row + 1)).names or () for row in range(len(rows)))
    told = ([name for name in names if name in {*unknown}] for names in names_of)
    return [
        asked._replace(vectors=rows[row : row + 1], unknown_names=names)
        for row, names in enumerate(told)
    ]


def _hinted(
    asked: list[QueryRequest], collection: ix.StoredCollection, vectors: ix.InputVectors
) -> list[QueryRequest]:
    """Return queries with hints on their names; one per vector if there are any."""
    hints = ix.hints_on_rows(collection.names, vectors)
    if not any(hints):
        return asked
    rows = asked[0].vectors
    if len(asked) < len(vectors) and rows is not None:
        asked = [asked[0]._replace(vectors=rows[row : row + 1]) for row in range(len(rows))]
    return [one._replace(hints=some) for one, some in zip(asked, hints, strict=True)]


def _answers(
    asked: Sequence[QueryRequest],
    bad: _Bad,
    collection: ix.StoredCollection,
    found: Sequence[ix.QueryResult],
) -> Response:
    """Return the answers to a batch, whose vectors may all belong to one request."""
    hint = hinter(collection)
    each = asked if len(asked) == len(found) else repeat(asked[0], len(found))
    # Converted to text at once: objects take six times the memory.
    good = (
        orjson.Fragment(json_bytes(query_json(one, hits, hint)))
        for one, hits in zip(each, found, strict=True)
    )
    shown = [
        {"hits": [], "error": problems.document(bad[number])} if number in bad else next(good)
        for number in range(len(found) + len(bad))
    ]
    return JsonResponse({"results": shown})


# Pages


async def search_page(
    service: Service,
    collection: ix.StoredCollection,
    asked: QueryRequest,
    show: Callable[[Sequence[ix.QueryResult]], T],
) -> T:
    """Search for one query, or for several vectors, and return a page of each ranking.

    Results and errors are those of `contract.SearchesProtocol.search`; ``show`` is called in a
    thread.
    """
    first, *deeper = ix.page_searches(asked.params, asked.offset, service.settings.max_limit)
    found = await _rank(service, collection, asked, first)
    for params in deeper:
        more = await _rank(service, collection, asked, params)
        found = [ix.continue_ranking(*each, params.limit) for each in zip(found, more, strict=True)]

    def finish() -> T:
        pages = [ix.cut_page(ranking, asked.offset, asked.params.limit) for ranking in found]
        return show(_add_items(service, collection, asked, pages))

    return await service.workers.batches.run(finish)


async def _rank(
    service: Service,
    collection: ix.StoredCollection,
    asked: QueryRequest,
    params: ix.SearchParams,
    **more: Any,  # noqa: ANN401  # of the query
) -> list[ix.QueryResult]:
    """Return the rankings from which pages, or groups, are made."""
    more = {"with_payload": False, **more}
    plain = asked._replace(params=params, offset=0, with_vector=False, is_shown=False, **more)
    return await service.searches.search_batch(collection, [plain], list)


async def search_batch(
    service: Service,
    collection: ix.StoredCollection,
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


def _query_mark(
    collection: ix.StoredCollection, asked: QueryRequest, vector: VectorBody | None
) -> int:
    """Return a CRC-32 of a query and its collection, except its number of hits."""
    parts: list[bytes] = [
        collection.name.encode(),
        repr((replace(asked.params, limit=1), asked.backend, *asked.item_ids)).encode(),
        asked.filter_text,
        asked.score.encode(),
    ]
    if isinstance(vector, NamedBody):  # a name gets another coordinate when an item stores it
        parts.append(repr(sorted(zip(vector.names, weights_of(vector), strict=True))).encode())
    elif asked.vectors is not None:
        arrays = (asked.vectors.dense, asked.vectors.indices, asked.vectors.values)
        parts += [array.tobytes() for array in arrays]
    return zlib.crc32(b"\0".join(parts))


def _read_cursor(cursor: str, mark: int) -> tuple[int, float, str]:
    """Return the number of hits on earlier pages, and the score and id of the last of them.

    InvalidParameter if the cursor belongs to another query.
    """
    try:
        found, seen, score, item_id = orjson.loads(urlsafe_b64decode(cursor))
        kinds = isinstance(seen, int), isinstance(score, float), isinstance(item_id, str)
        if found == mark and all(kinds) and 0 < seen < _MAX_SEEN:
            return seen, score, item_id
    except (ValueError, TypeError):
        pass
    raise ix.InvalidParameter(
        expected="the cursor that an answer to the same query had",
        got=repr(cursor[:40]),
        loc=("cursor",),
    )


async def answer_page(
    service: Service,
    collection: ix.StoredCollection,
    asked: QueryRequest,
    vector: VectorBody | None,
    cursor: bool | str,
) -> Response:
    """Answer with a page of a ranking: the hits after the last one of the previous page.

    A hit comes twice only if a write lowers its score meanwhile. With a recall of 1, none that
    keeps its score is left out. Below, a deeper search may find hits that earlier pages have
    missed. A page that begins or ends within equal scores is exact: hits continue by id there.
    """
    if asked.offset:
        raise ix.InvalidParameter(
            expected="0 beside a cursor", got=str(asked.offset), loc=("offset",)
        )
    mark = _query_mark(collection, asked, vector)
    limit, max_limit = asked.params.limit, service.settings.max_limit
    seen, least, last = _read_cursor(cursor, mark) if isinstance(cursor, str) else (0, inf, "")
    params, depth = asked.params, seen + limit + 1  # one more shows whether another page follows
    while True:
        depth = min(depth, max_limit)
        [found] = await _rank(service, collection, asked, ix.deepen(params, depth))
        ranked = sorted((-score, each) for score, each in zip(found.scores, found.ids, strict=True))
        behind = [hit for hit in ranked if hit > (-least, last)]
        begins_tied = sum(score == -least for score, _ in ranked) > 1
        ends_tied = len(behind) > limit and behind[limit - 1][0] == behind[limit][0]
        if params.recall < 1 and (begins_tied or ends_tied):  # only a scan finds all equal hits
            params = replace(params, recall=1.0)
            continue
        if len(behind) > limit or len(ranked) < depth or depth == max_limit:
            break
        depth *= _GROWTH
    is_cut = len(ranked) == max_limit and len(behind) <= limit
    if is_cut and not behind:
        raise ix.InvalidParameter(
            expected=f"a page within the first {max_limit} hits of a ranking",
            got=f"one behind {seen}",
            loc=("cursor",),
        )
    shown = behind[:limit]
    page = replace(found, ids=[each for _, each in shown], scores=[-score for score, _ in shown])

    def finish() -> Response:
        [whole] = _add_items(service, collection, asked, [page])
        answer = query_json(asked, whole, collection.hints)
        if len(behind) > limit or is_cut:
            place = mark, seen + len(shown), -shown[-1][0], shown[-1][1]
            answer["cursor"] = urlsafe_b64encode(orjson.dumps(place)).decode()
        return JsonResponse(answer)

    return await service.workers.batches.run(finish)


async def answer_groups(
    service: Service, collection: ix.StoredCollection, asked: QueryRequest, body: QueryBody
) -> Response:
    """Answer with the best hits of each of the best groups, by descending score."""
    size, limits = 1 if body.group_size is None else body.group_size, service.settings
    if not body.group_by:
        raise ix.InvalidParameter(
            expected="a key of payloads", got="an empty one", loc=("group_by",)
        )
    if asked.offset or body.cursor not in (None, False):
        word = "offset" if asked.offset else "cursor"
        raise ix.InvalidParameter(expected="no pages of groups", got="one", loc=(word,))
    require_at_most(size, limits.max_limit // asked.params.limit, "group_size")
    steps = ix.search_groups(body.group_by, asked.params.limit, size, asked.where)
    (where, limit), found = next(steps), ix.QueryResult([], [])
    while True:
        text = b"" if where is None else json_text(where.to_dict())
        params = replace(asked.params, limit=limit)
        more: dict[str, Any] = {"where": where, "filter_text": text, "with_payload": True}
        [result] = await _rank(service, collection, asked, params, **more)
        found = found if found.ids else result
        try:
            where, limit = steps.send(result)
        except StopIteration as end:
            hits: list[ix.GroupedHit] = end.value
            break
    page = replace(found, ids=[hit.id for hit in hits], scores=[hit.score for hit in hits])

    def finish() -> Response:
        [whole] = _add_items(service, collection, asked, [page])
        if asked.with_payload:  # those from which the groups were made
            whole = replace(whole, payloads=[hit.payload for hit in hits])
        grouped = asked._replace(where=ix.with_key(asked.where, body.group_by or ""))
        answer = query_json(grouped, whole, collection.hints)
        for shown, hit in zip(answer["hits"], hits, strict=True):
            shown["group"] = hit.group
        return JsonResponse(answer)

    return await service.workers.batches.run(finish)


def _add_items(
    service: Service,
    collection: ix.StoredCollection,
    asked: QueryRequest,
    pages: list[ix.QueryResult],
) -> list[ix.QueryResult]:
    """Return pages with the requested payloads and vectors; None for an item deleted since."""
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
