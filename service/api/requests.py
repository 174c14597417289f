"""From checked bodies to the index's own words: vectors, items, queries, configurations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from pydantic import ValidationError
from pydantic_core import from_json

from gcws_search import index as ix
from gcws_search.service.api.bodies import (
    BODY_OF,
    AttachBody,
    BatchParams,
    CompareBody,
    CreateBody,
    ExplainedBody,
    MetadataBody,
    NamesParams,
    PageParams,
    QueryBody,
    SearchOptions,
)
from gcws_search.service.contract import CollectionProtocol, Point, QueryRequest
from gcws_search.service.limits import (
    id_in_url,
    require_at_least,
    require_at_most,
    require_count,
    require_short_id,
    require_short_payload,
)
from gcws_search.service.models import (
    ItemBody,
    NamedBody,
    PackedBody,
    VectorBody,
    json_text,
    require_short_vector,
    vector_of,
)
from gcws_search.service.problems import invalid_request
from gcws_search.service.settings import Settings

T = TypeVar("T")
Find: TypeAlias = Callable[[Sequence[str]], list[int]]
"""Returns the coordinates of different names; InvalidVector is at ``(place,)``."""
_MAX_DIGITS: Final = 10
"""Of a coordinate."""
SAMPLE: Final = 100
"""Stored items that a comparison searches for unless it says otherwise."""


def finder(collection: CollectionProtocol, unknown: list[str], *, beyond_dim: bool = True) -> Find:
    """Return what looks up the names of a query.

    A name that no coordinate has gets one for this query alone, and is added to ``unknown``.
    Without ``beyond_dim`` a space of fixed dim refuses it.
    """

    def find(names: Sequence[str]) -> list[int]:
        found, more = collection.names.find(names, beyond_dim=beyond_dim)
        unknown.extend(more)
        return found

    return find


def vector(
    body: VectorBody,
    collection: CollectionProtocol,
    find: Find,
    limits: Settings,
    *loc: str | int,
) -> ix.RawBatch:
    """Return one vector as a batch; errors give its place from ``loc`` inwards."""
    if isinstance(body, np.ndarray):
        return _dense(body, collection.space, limits, *loc)
    if isinstance(body, PackedBody):
        return _dense(body.weights, collection.space, limits, *loc)
    require_short_vector(body, limits, *loc)
    try:
        return ix.InputVectors(mixed=[vector_of(body)]).check(collection.space, find)
    except ix.InvalidVector as error:
        raise only(error, *loc) from None


def _dense(
    row: ix.AnyArray, space: ix.VectorSpace, limits: Settings, *loc: str | int
) -> ix.RawBatch:
    """Return the numbers of one vector as a batch; errors as of `vector`."""
    if len(row) > limits.max_nonzeros:
        require_count(len(row), limits, *loc)
    try:
        return space.from_dense(row.reshape(1, -1))
    except ix.InvalidVector as error:
        raise only(error, *loc) from None


def vectors(
    raw: Sequence[VectorBody],
    collection: CollectionProtocol,
    find: Find,
    limits: Settings,
    name: str,
    *inner: str,
) -> ix.RawBatch:
    """Return vectors of any form as one batch; errors are at ``name``, the number, ``inner``."""
    if len(raw) == 1:  # as most writes have: read in 20 µs for 23.5
        return vector(raw[0], collection, find, limits, name, 0, *inner)
    rows: list[ix.AnyArray] = []
    for number, one in enumerate(raw):
        if not isinstance(one, np.ndarray) or len(one) > limits.max_nonzeros:
            require_short_vector(one, limits, name, number, *inner)
        else:
            rows.append(one)
    try:
        if len(rows) == len(raw):
            return collection.space.from_items(rows)
        return ix.InputVectors(mixed=[*map(vector_of, raw)]).check(collection.space, find)
    except ix.InvalidVector as error:
        raise within(error, name, *inner) from None


def only(error: ix.InvalidInput, *loc: str | int) -> ix.InvalidInput:
    """Return an error whose location starts with the row of an only one as one inside ``loc``."""
    return type(error)(expected=error.expected, got=error.got, loc=(*loc, *error.loc[1:]))


def within(error: ix.InvalidInput, name: str, *inner: str) -> ix.InvalidInput:
    """Return an error whose location starts with a row as one inside ``name[row].inner``."""
    row, rest = error.loc[:1], error.loc[1:]
    return type(error)(expected=error.expected, got=error.got, loc=(name, *row, *inner, *rest))


def place_errors(make: Callable[..., T], *outer: str, **arguments: Any) -> T:  # noqa: ANN401
    """Call and put ``outer`` before the location of what is invalid."""
    try:
        return make(**arguments)
    except ix.InvalidInput as error:
        raise error.at(*outer) from None


def condition(text: bytes | None, limits: Settings) -> tuple[ix.Filter | None, bytes]:
    """Return a filter that is given as JSON, and its text; none for none."""
    if text is None:
        return None, b""
    found = place_errors(
        ix.parse_filter,
        "filter",
        document=from_json(text),
        max_depth=limits.max_filter_depth,
        max_conditions=limits.max_filter_conditions,
        max_values=limits.max_filter_values,
    )
    return found, text


def items(
    raw: Sequence[ItemBody], collection: CollectionProtocol, limits: Settings
) -> ix.ItemBatch:
    """Return items as the index stores them."""
    ids: list[str | None] = []
    payloads: list[bytes | None] = []
    given: list[VectorBody] = []
    for row, item in enumerate(raw):
        item_id = None if item.id is None else str(item.id)
        if item_id is not None and len(item_id) > limits.max_id_length:
            require_short_id(item_id, limits, "items", row, "id")
        if item.payload is not None and len(item.payload) > limits.max_payload_bytes:
            require_short_payload(item.payload, limits, "items", row, "payload")
        ids.append(item_id)
        payloads.append(item.payload)
        given.append(item.vector)
    return ix.ItemBatch(
        ids=ids,
        vectors=vectors(given, collection, collection.names.reserve, limits, "items", "vector"),
        payloads=payloads,
    )


def page_filter(params: PageParams, limits: Settings) -> ix.Filter | None:
    """Return the filter of a page, which its URL holds as JSON."""
    if params.filter is None:
        return None
    if params.ids is not None:
        raise ix.InvalidParameter(expected="one of 'filter' and 'ids'", got="both")
    text = params.filter.encode()
    try:
        if from_json(text, allow_inf_nan=False) is None:
            return None
    except ValueError as error:
        raise ix.InvalidFilter(
            expected="a filter as JSON", got=f"no JSON ({error})", loc=("filter",)
        ) from None
    return condition(text, limits)[0]


def page_ids(params: PageParams, count: int) -> list[str] | None:
    """Return the ids of the items of a page, at most ``count``; None for those of any.

    One value is a list with commas. Of several, each is an id.
    """
    if params.ids is None:
        return None
    words = params.ids[0].split(",") if len(params.ids) == 1 else params.ids
    require_at_most(len(words), count, "ids")
    return [id_in_url(word, "ids") for word in words]


def indices(params: NamesParams, count: int) -> list[int]:
    """Return the coordinates that are listed in a URL, at most ``count``."""
    if params.prefix is not None:
        raise ix.InvalidParameter(expected="one of 'prefix' and 'indices'", got="both")
    words = (params.indices or "").split(",")
    require_at_most(len(words), count, "indices")
    for word in words:
        if not (word.isascii() and word.isdecimal() and len(word) <= _MAX_DIGITS):
            raise ix.InvalidParameter(
                expected="coordinates with commas between them, such as 3,17",
                got=repr(word)[:80],
                loc=("indices",),
            )
    return [*map(int, words)]


@lru_cache(maxsize=256)
def _search_params(  # noqa: PLR0913, PLR0917  # a key of the cache
    max_limit: int,
    limit: int,
    recall: float,
    candidates: int | None,
    offset: int = 0,
    min_score: float = 0.0,
    guarantee: ix.Guarantee = "measured",
    rerank: ix.Rerank = "gmm",
) -> ix.SearchParams:
    """Return what a query asks for, made and checked once: most ask for the same."""
    require_at_most(limit, max_limit, "limit")
    if candidates is not None:
        require_at_most(candidates, max_limit, "candidates")
    require_at_least(offset, 0, "offset")
    require_at_least(limit, 1, "limit")
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
    )


def comparison(body: CompareBody, limits: Settings) -> tuple[ix.SearchParams, int]:
    """Return what a comparison asks for, and how many stored items it samples."""
    if body.queries is not None and body.sample is not None:
        raise ix.InvalidParameter(expected="one of 'queries' and 'sample'", got="both")
    if body.queries == []:
        raise ix.InvalidParameter(expected="at least one", got="none", loc=("queries",))
    if body.backends == []:
        raise ix.InvalidParameter(
            expected="at least one name, or null for all that are ready",
            got="none",
            loc=("backends",),
        )
    sample = SAMPLE if body.sample is None else body.sample
    require_at_most(sample, limits.max_queries_per_request, "sample")
    require_at_least(sample, 1, "sample")
    require_at_least(body.seed, 0, "seed")
    params = _search_params(limits.max_limit, body.limit, body.recall, body.candidates)
    return params, sample


def reads_names(body: QueryBody) -> bool:
    """Whether a query asks for names that any process may have stored just now."""
    return body.consistency == "strict" and isinstance(body.vector, NamedBody)


def query(body: QueryBody, collection: CollectionProtocol, limits: Settings) -> QueryRequest:
    """Return a checked query."""
    if (body.vector is None) == (body.id is None):
        got = "neither" if body.vector is None else "both"
        raise ix.InvalidParameter(expected="one of 'vector' and 'id'", got=got)
    asked = query_of(body, limits)
    raw = body.vector
    if raw is None:
        return asked
    if isinstance(raw, np.ndarray):
        return asked._replace(vectors=_dense(raw, collection.space, limits, "vector"))
    unknown: list[str] = []
    with_unknown, found = None, None
    if isinstance(raw, NamedBody) and not collection.names.is_open:
        with_unknown = _with_unknown(raw, collection, unknown, limits, "vector")
    if with_unknown is None:
        found = vector(raw, collection, finder(collection, unknown), limits, "vector")
    return asked._replace(vectors=found, unknown_names=unknown, with_unknown=with_unknown)


def query_of(body: SearchOptions, limits: Settings) -> QueryRequest:
    """Return all of checked queries but their vectors."""
    item_id, where, text = None, None, b""
    if isinstance(body, QueryBody):
        item_id = None if body.id is None else str(body.id)
        if body.filter is not None:
            where, text = condition(body.filter, limits)
    return QueryRequest(
        vectors=None,
        item_id=item_id,
        params=_search_params(
            limits.max_limit,
            body.limit,
            body.recall,
            body.candidates,
            body.offset,
            body.min_score,
            body.guarantee,
            body.rerank,
        ),
        where=where,
        filter_text=text,
        backend=body.backend,
        with_payload=body.with_payload,
        with_vector=body.with_vector,
        explain=body.explain,
        allow_partial=body.allow_partial,
        is_strict=body.consistency == "strict",
        offset=body.offset,
    )


def _with_unknown(
    body: NamedBody,
    collection: CollectionProtocol,
    unknown: list[str],
    limits: Settings,
    *loc: str | int,
) -> ix.SparseVector | None:
    """Return a vector where some of its names have no coordinate, None where all have."""
    require_short_vector(body, limits, *loc)
    try:
        vector = ix.NamedVector(body.names, body.weights)
        found = ix.with_coordinates(vector, finder(collection, unknown))
    except ix.InvalidVector as error:
        raise error.at(*loc) from None
    return found if unknown else None


def with_unknown_apart(
    raw: Sequence[VectorBody], collection: CollectionProtocol, limits: Settings, name: str
) -> list[tuple[list[int], ix.RawBatch | ix.SparseVector]]:
    """Return vectors together, and those apart that have names a space of fixed dim does not have.

    Each part comes with the numbers of its vectors.
    """
    apart: dict[int, ix.SparseVector] = {}
    for number, body in enumerate(() if collection.names.is_open else raw):
        if isinstance(body, NamedBody):
            found = _with_unknown(body, collection, [], limits, name, number)
            if found is not None:
                apart[number] = found
    rest = [number for number in range(len(raw)) if number not in apart]
    parts: list[tuple[list[int], ix.RawBatch | ix.SparseVector]] = [
        ([number], found) for number, found in apart.items()
    ]
    if not rest and apart:
        return parts
    try:
        find = finder(collection, [])
        together = vectors([raw[number] for number in rest], collection, find, limits, name)
    except ix.InvalidVector as error:
        _, row, *inner = error.loc
        error.loc = (name, rest[int(row)], *inner)
        raise
    return [(rest, together), *parts]


def matrix(rows: ix.RawBatch | ix.SparseVector, raw: BatchParams, limits: Settings) -> QueryRequest:
    """Return the queries of a matrix, all asking for the same.

    One query with names that a space of fixed dim does not have is a SparseVector.
    """
    asked = query_of(raw, limits)
    if isinstance(rows, ix.RawBatch):
        return asked._replace(vectors=rows)
    return asked._replace(with_unknown=rows)


def point_to_explain(body: ExplainedBody, limits: Settings, word: str) -> Point:
    """Return an id or a vector whose similarity is to be explained; errors are at ``word``."""
    raw = body.vector
    if (raw is None) == (body.id is None):
        got = "neither" if raw is None else "both"
        raise ix.InvalidParameter(expected="one of 'vector' and 'id'", got=got, loc=(word,))
    return str(body.id) if raw is None else _one_vector(raw, limits, word, "vector")


def point_to_map(raw: str | int | VectorBody, limits: Settings, number: int) -> Point:
    """Return an id or a vector that is given a place on a map besides the sample."""
    return str(raw) if isinstance(raw, str | int) else _one_vector(raw, limits, "also", number)


def _one_vector(raw: VectorBody, limits: Settings, *loc: str | int) -> ix.OneVector:
    require_short_vector(raw, limits, *loc)
    vector = vector_of(raw)
    if isinstance(vector, ix.NamedVector):
        try:
            ix.require_different_names(vector)
        except ix.InvalidVector as error:
            raise error.at(*loc) from None
    return vector


def config(body: CreateBody, limits: Settings) -> ix.CollectionConfig:
    """Return a collection's configuration."""
    if body.dim is not None and body.dim > limits.max_dim:
        raise ix.InvalidParameter(
            expected=f"null or 1 to {limits.max_dim}", got=str(body.dim), loc=("dim",)
        )
    center = body.transform.center
    transform = place_errors(
        ix.Transform,
        "transform",
        center=None if center is None else tuple(center),
        power=body.transform.power,
        normalize=body.transform.normalize,
    )
    backend = place_errors(
        ix.backend_params,
        "backend",
        "params",
        kind=body.backend.kind,
        params=body.backend.params.model_dump(),
    )
    try:
        return ix.CollectionConfig(
            dim=body.dim, transform=transform, backend=backend, storage=body.storage
        )
    except ix.InvalidParameter as error:
        raise (error.at("transform") if error.loc[:1] == ("center",) else error) from None


def metadata(body: MetadataBody | None, dim: int | None) -> bytes | None:
    """Return the metadata of a collection of this dim as JSON text; None for none."""
    if body is None:
        return None
    image = None if body.view is None else body.view.image
    if image is not None and dim is not None:
        shape = image.width, image.height, image.channels
        if prod(shape) != dim:
            raise ix.InvalidParameter(
                expected=f"width × height × channels to be dim, {dim}",
                got="{} × {} × {}".format(*shape),
                loc=("metadata", "view", "image"),
            )
    try:
        return json_text(body.model_dump(exclude_unset=True))
    except ValueError:
        raise ix.InvalidParameter(
            expected="finite numbers", got="NaN or an infinity", loc=("metadata",)
        ) from None


def params_to_attach(body: AttachBody) -> ix.BackendParams:
    """Return the parameters of a backend to be attached."""
    model = BODY_OF[body.kind]
    try:
        checked = model.model_validate({"kind": body.kind, "params": body.params})
    except ValidationError as error:
        raise invalid_request(error, model) from None
    params = checked.model_dump()["params"]
    return place_errors(ix.backend_params, "params", kind=body.kind, params=params)


def pair_of(a: VectorBody, b: VectorBody) -> list[ix.AnyArray | ix.SparseVector]:
    """Return two vectors of no collection; names of both are coordinates that they share.

    InvalidVector, at ``(0 or 1, …)``: a name stands twice, or one vector alone has names.
    """
    coordinates: dict[str, int] = {}
    found: list[ix.AnyArray | ix.SparseVector] = []
    both = vector_of(a), vector_of(b)
    for row, vector in enumerate(both):
        if isinstance(vector, ix.NamedVector):
            if not isinstance(both[1 - row], ix.NamedVector):
                raise ix.InvalidVector(
                    expected="names in both vectors, or in none", got="them in one", loc=(row,)
                )
            try:
                ix.require_different_names(vector)
            except ix.InvalidVector as error:
                raise error.at(row) from None
            indices = [coordinates.setdefault(name, len(coordinates)) for name in vector.names]
            found.append(ix.SparseVector(indices, vector.values))
        else:
            found.append(vector)
    return found
