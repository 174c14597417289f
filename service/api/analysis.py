"""Relations of items and vectors: similarity explained, pairs, groups, map, profile, hashes."""

import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, fields, replace
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from gcws_search import index as ix
from gcws_search.service.api import requests
from gcws_search.service.api.bodies import BODY_OF, body_of
from gcws_search.service.api.query import Score, hints_json, hints_on_key
from gcws_search.service.contract import Point
from gcws_search.service.http import CollectionOf, JsonResponse, ServiceOf, json_router, may_read
from gcws_search.service.limits import AnswerBytes
from gcws_search.service.models import (
    Body,
    FilterDocument,
    FirstErrorOnly,
    Id,
    PointBody,
    VectorBody,
    bounds,
    examples,
    point_of,
    require_short_vector,
    vector_of,
)
from gcws_search.service.responses import BODY_PROBLEMS, NDJSON, json_bytes, shows
from gcws_search.service.settings import Settings

router = json_router("/v1/collections/{name}", "search", may_read, BODY_PROBLEMS)
comparing = json_router("/v1", "search", may_read, BODY_PROBLEMS)
_LINES_A_PIECE: Final = 1000
_VECTORS_AT_ONCE: Final = 1024


_Key = Annotated[str, Field(min_length=1, max_length=1024)]
_MapOptions: Any = body_of(ix.MapParams, "MapOptions", key=_Key | None)


class MapBody(_MapOptions):  # type: ignore[misc]  # made of what the index takes
    """Parameters of a map."""

    without_body = b"{}"
    limited: ClassVar = {"also": ix.MAX_ALSO}

    model_config = examples(
        {"sample": 3},
        {
            "sample": 5000,
            "landmarks": 256,
            "seed": 0,
            "filter": {"must": [{"key": "label", "match": {"value": 3}}]},
            "also": ["a", [0.1, -2, 0, 3], {"indices": [1], "values": [-2]}],
            "key": "label",
        },
    )

    filter: FilterDocument | None = Field(
        default=None, description="Only items with matching payloads are drawn; null: all."
    )
    also: Annotated[list[Id | PointBody], FirstErrorOnly()] = Field(
        default=[],
        description="Ids, and vectors or texts, to place as well, with neighbours.",
        json_schema_extra={"maxItems": ix.MAX_ALSO},
    )


_PairOptions: Any = body_of(ix.PairParams, "PairOptions")
_GroupOptions: Any = body_of(ix.GroupParams, "GroupOptions", keep=_Key)


class PairsBody(_PairOptions):  # type: ignore[misc]  # made of what the index takes
    """Parameters of the pairs."""

    model_config = examples({"min_score": 0.8}, {"min_score": 0.5, "limit": 10})

    score: Score = "gmm"


class GroupsBody(_GroupOptions):  # type: ignore[misc]  # made of what the index takes
    """Parameters of the groups."""

    model_config = examples(
        {"min_score": 0.8},
        {
            "min_score": 0.5,
            "mode": "leaders",
            "keep": "length",
            "filter": {"must": [{"key": "label", "match": {"value": 3}}]},
        },
    )

    filter: FilterDocument | None = Field(
        default=None, description="Only items that match are grouped."
    )
    score: Score = "gmm"


class SketchBody(Body):
    """Vectors to hash with the collection's own randomness."""

    limited: ClassVar = {"vectors": "max_items_per_request"}
    model_config = examples(
        {"vectors": [[0.1, -2, 0, 3]], "encoding": "full"},
        {"vectors": [{"indices": [1], "values": [-2]}], "encoding": "b_bit"},
    )

    vectors: Annotated[list[PointBody], FirstErrorOnly()] = Field(
        description="The vectors, or texts; a collection with the backend `exact` does not hash."
    )
    encoding: ix.Encoding = Field(
        default="full",
        description="What to return of a sample (i*, t*): `slots` and `levels`; `slots`, which "
        "equal the `codes`; or `codes` of the collection's `bits` bits.",
    )


class ExplainedBody(Body):
    """A stored item by its ``id``, a ``vector``, or a ``text``."""

    model_config = examples({"id": "a"}, {"vector": [0.1, -2, 0, 3]})

    id: Id | None = Field(default=None, description="A stored item.")
    vector: VectorBody | None = Field(default=None, description="A vector, instead of `id`.")
    text: str | None = Field(
        default=None, description="A text, instead of `id`, in a collection of texts."
    )


class ExplainBody(Body):
    """The two whose similarity is explained."""

    model_config = examples(
        {"a": {"id": "a"}, "b": {"vector": [0.1, -2, 0, 3]}},
        {"a": {"id": "a"}, "b": {"vector": {"indices": [1], "values": [-2]}}, "limit": 1},
    )

    a: ExplainedBody = Field(description="The first one.")
    b: ExplainedBody = Field(description="The second one.")
    limit: int = Field(
        default=ix.SHARES,
        description="Maximum number of coordinates listed; all others are summed.",
        json_schema_extra=bounds(1, ix.MAX_SHARES),
    )


def _describe_kernel_params(schema: dict[str, Any]) -> None:
    """Show kernel parameters on the API page like those of backends that estimate the kernels."""
    for kind, names in (
        ("nrff", ["gamma"]),
        ("random_binning", ["distribution", "shape", "scale"]),
    ):
        params: Any = BODY_OF[kind].model_fields["params"].annotation
        known = params.model_json_schema()["properties"]
        schema.setdefault("properties", {}).update({name: known[name] for name in names})
    schema["additionalProperties"] = False


class SimilarityBody(Body):
    """Two vectors and the kernel to compare them with."""

    model_config = examples(
        {"a": [0.1, -2, 0, 3], "b": {"indices": [1, 3], "values": [-2, 2.5]}},
        {"a": [1, 0], "b": [0.6, 0.8], "kernel": "rbf", "params": {"gamma": 1.0}},
        {"a": [1, 0], "b": [0.6, 0.8], "kernel": "laplace", "params": {"scale": 2.0}},
        {
            "a": [1, 0],
            "b": [0.6, 0.8],
            "kernel": "polya",
            "params": {"distribution": "weibull", "shape": 3.0, "scale": 5.0},
        },
    )

    a: VectorBody = Field(description="The first vector.")
    b: VectorBody = Field(description="The second; two lists of numbers must have the same length.")
    kernel: str = Field(
        default="gmm",
        description="With c the cosine of a and b, `gmm`: signed weighted Jaccard. `rbf`: "
        "exp(-gamma (1 - c)). `folded_rbf`: the mean of exp(-gamma (1 - c)) and "
        "exp(-gamma (1 + c)). `laplace`: exp(-|a - b|_1 / scale). `gaussian`: "
        "exp(-|a - b|^2 / (2 scale^2)). `polya`: the product over coordinates d of "
        "E[max(0, 1 - |a_d - b_d| / S)], S a pitch of mean `scale` from `distribution`.",
        json_schema_extra={"enum": [*ix.KERNEL_NAMES]},
    )
    params: dict[str, Any] = Field(
        default_factory=dict,
        description="For `gmm`: none. For `rbf` and `folded_rbf`: `gamma`. For `laplace` and "
        "`gaussian`: `scale`. For `polya`: `distribution`, `shape`, `scale`.",
        json_schema_extra=_describe_kernel_params,
    )


class ProfileBody(Body):
    """Parameters of a profile."""

    without_body = b"{}"

    model_config = examples({}, {"sample": 1000, "seed": 0})

    sample: int = Field(
        default=ix.PROFILE_SAMPLE,
        description="Maximum number of items in the sample, drawn at random.",
        json_schema_extra=bounds(1, ix.MAX_PROFILE_SAMPLE),
    )
    seed: int = Field(
        default=0,
        description="Seed of the choice of the sample and the pairs.",
        json_schema_extra=bounds(0),
    )


@router.post("/explain", responses=shows("ExplanationAnswer"))
async def explain(service: ServiceOf, collection: CollectionOf, body: ExplainBody) -> Response:
    """Show how much each coordinate contributes to the similarity of two items, or vectors."""
    service.startup.require_kernels()
    a = _point_to_explain(body.a, collection, service.settings, "a")
    b = _point_to_explain(body.b, collection, service.settings, "b")

    def work() -> Response:
        return JsonResponse(collection.explain(a, b, limit=body.limit).to_dict())

    return await service.workers.batches.run(work)


@comparing.post("/similarity", responses=shows("SimilarityAnswer"))
async def similarity(service: ServiceOf, body: SimilarityBody) -> Response:
    """Compare two vectors by an exact kernel; all but the zero vector can be compared."""
    kernel = ix.kernel_named(body.kernel, body.params)
    service.startup.require_kernels()
    limits = service.settings
    require_short_vector(body.a, limits, "a")
    require_short_vector(body.b, limits, "b")
    try:
        a, b = _pair_of(body.a, body.b)
        score = await service.workers.searches.run(ix.score, kernel, a, b)
    except ix.InvalidVector as error:
        row = int(error.loc[0]) if error.loc else 0
        raise error.at("ab"[row], skip=1) from None
    return JsonResponse({"score": score})


@router.post("/pairs", response_class=Response, responses=shows("PairAnswer", kind=NDJSON))
async def pairs(
    request: Request, service: ServiceOf, collection: CollectionOf, body: PairsBody
) -> Response:
    """Find the pairs of items above a score, most similar first; one line a pair."""
    service.startup.require_kernels()
    least = ix.least_ranked(body.score, body.min_score)
    asked = asdict(ix.PairParams(min_score=least, recall=body.recall, limit=body.limit))

    def work(stop: threading.Event) -> list[tuple[str, str, float]]:
        return collection.pairs(**asked, ranking=ix.ranking_of(body.score), stop=stop)

    found = await service.workers.joins.run_while_awaited(work, request.is_disconnected)
    return StreamingResponse(_lines(found, body.score), media_type=NDJSON)


@router.post("/groups", response_class=Response)
async def groups(
    request: Request, service: ServiceOf, collection: CollectionOf, body: GroupsBody
) -> Response:
    """Group near-duplicates, largest group first; one line each, and a last one with totals.

    Scores are exact, between a member and the representative.
    """
    service.startup.require_kernels()
    asked = {each.name: getattr(body, each.name) for each in fields(ix.GroupParams)}
    params = ix.GroupParams(**asked | {"min_score": ix.least_ranked(body.score, body.min_score)})
    where = requests.condition(body.filter, service.settings)
    began = time.monotonic()

    def work(stop: threading.Event) -> tuple[list[ix.Group], dict[str, list[str]]]:
        found = collection.groups(params, where, stop, ranking=ix.ranking_of(body.score))
        hints = hints_on_key(collection, params.key)
        return found, hints_json(None if found else where, collection.hints, hints)

    run = service.workers.joins.run_while_awaited
    found, hints = await run(work, request.is_disconnected)
    seconds = time.monotonic() - began
    return StreamingResponse(_group_lines(found, seconds, body.score, hints), media_type=NDJSON)


async def _group_lines(
    found: list[ix.Group], seconds: float, kind: ix.ScoreKind, hints: dict[str, list[str]]
) -> AsyncIterator[bytes]:
    items = 0
    for group in found:
        items += len(group.members)
        yield (
            json_bytes(
                {
                    "representative": group.representative,
                    "size": len(group.members),
                    "members": [
                        {"id": member, "score": ix.score_of(kind, score)}
                        for member, score in group.members
                    ],
                    "weakest": ix.score_of(kind, group.weakest),
                }
            )
            + b"\n"
        )
    last = {"groups": len(found), "items": items, "seconds": seconds, **hints}
    yield json_bytes(last) + b"\n"


async def _lines(found: list[tuple[str, str, float]], kind: ix.ScoreKind) -> AsyncIterator[bytes]:
    for first in range(0, len(found), _LINES_A_PIECE):
        piece = found[first : first + _LINES_A_PIECE]
        yield b"".join(
            json_bytes({"a": a, "b": b, "score": ix.score_of(kind, s)}) + b"\n" for a, b, s in piece
        )


@router.post("/map", responses=shows("MapAnswer"))
async def show_map(
    request: Request, service: ServiceOf, collection: CollectionOf, body: MapBody
) -> Response:
    """Place a sample of items, and others, in a plane, with neighbours within the sample.

    Places come from kernel PCA of the exact GMM, optionally rearranged by the neighbours.
    """
    service.startup.require_kernels()
    where = requests.condition(body.filter, service.settings)
    also = [
        str(each)
        if isinstance(each, str | int)
        else _one_vector(each, collection, service.settings, "also", number)
        for number, each in enumerate(body.also)
    ]
    params = ix.MapParams(**{each.name: getattr(body, each.name) for each in fields(ix.MapParams)})

    def work(stop: threading.Event) -> Response:
        found = collection.map_items(params, where, also, stop)
        values = {} if found.values is None else {"values": found.values}
        places = _places(found.sample)
        islands = [each._asdict() for each in found.islands or ()]
        arranged = {} if found.islands is None else {"islands": islands}
        others = _places(found.also)
        is_shown = any(each is not None for each in found.values or ())
        more = [] if is_shown else hints_on_key(collection, params.key)
        hints = hints_json(None if found.ids else where, collection.hints, more)
        answer = {"ids": found.ids, **places, **values, "also": others, **arranged, **hints}
        return JsonResponse(answer)

    # Places alone are computed fast: they do not wait for other maps.
    is_long = params.neighbours or params.places == "islands" or also
    pool = service.workers.analyses if is_long else service.workers.batches
    same = collection.name, replace(params, key=None), str(body.filter)
    return await pool.run_while_awaited(work, request.is_disconnected, same)


def _places(found: ix.Places) -> dict[str, Any]:
    neighbours: Any = found.neighbours
    scores: Any = found.scores
    present = neighbours != ix.NO_NEIGHBOUR
    if not present.all():
        sizes = present.sum(axis=1).tolist()
        neighbours, scores = (
            [line[:size] for line, size in zip(column.tolist(), sizes, strict=True)]
            for column in (neighbours, scores)
        )
    x, y = np.ascontiguousarray(found.xy.T)
    return {"x": x, "y": y, "neighbours": neighbours, "scores": scores}


@router.post("/profile", responses=shows("ProfileAnswer"))
async def show_profile(service: ServiceOf, collection: CollectionOf, body: ProfileBody) -> Response:
    """Show how similar items are, how full their vectors, and how large their buckets.

    Histograms describe a sample of items, under the collection's transform.
    """
    service.startup.require_kernels()
    found = await service.workers.analyses.run(collection.profile, body.sample, body.seed)
    return JsonResponse(found)


@router.post("/sketch", responses=shows("SketchAnswer"))
async def sketch(service: ServiceOf, collection: CollectionOf, body: SketchBody) -> Response:
    """Hash vectors with the collection's own randomness."""

    def work() -> Response:
        parts = requests.with_unknown_apart(body.vectors, collection, service.settings, "vectors")
        answer: dict[str, Any] = {}
        size = AnswerBytes(service.settings.max_answer_bytes)
        for rows, vectors in (run for part in parts for run in _runs(*part)):
            try:
                sketched = collection.sketch(vectors, body.encoding)
            except ix.InvalidVector as error:
                error.move_row(rows.__getitem__, "vectors")
                raise
            for word, found in _columns(sketched, body.encoding).items():
                size.add_integers(found)
                whole = answer.setdefault(
                    word, np.empty((len(body.vectors), found.shape[1]), found.dtype)
                )
                whole[rows] = found
        return JsonResponse(answer)

    return await service.workers.batches.run(work)


def _runs(
    rows: list[int], vectors: ix.RawBatch | ix.SparseVector
) -> Iterator[tuple[list[int], ix.RawBatch | ix.SparseVector]]:
    """Yield vectors in batches; each is hashed before its answer is counted."""
    if isinstance(vectors, ix.SparseVector) or len(rows) <= _VECTORS_AT_ONCE:
        yield rows, vectors
        return
    for first in range(0, len(rows), _VECTORS_AT_ONCE):
        run = slice(first, first + _VECTORS_AT_ONCE)
        yield rows[run], vectors[run]


def _columns(sketched: Any, encoding: str) -> dict[str, Any]:  # noqa: ANN401
    """Return the samples of vectors in the form of the answer."""
    match encoding:
        case "full":
            return {"slots": sketched.slots, "levels": sketched.levels}
        case "zero_bit":  # with 0 bits of t*, the code is i* itself
            return {"slots": sketched.slots, "codes": sketched.slots}
    return {"codes": sketched}


def _point_to_explain(
    body: ExplainedBody, collection: ix.StoredCollection, limits: Settings, word: str
) -> Point:
    """Return the point to explain: an id, a vector or a text; errors are at ``word``."""
    with ix.place_errors(word):
        ix.require_one(id=body.id, vector=body.vector, text=body.text)
    if body.vector is not None:
        return _one_vector(body.vector, collection, limits, word, "vector")
    if body.text is None:
        return str(body.id)
    text = ix.Text(body.text)
    require_short_vector(text, limits, word, "text")
    return text


def _one_vector(
    raw: PointBody, collection: ix.StoredCollection, limits: Settings, *loc: str | int
) -> ix.OneVector:
    require_short_vector(raw, limits, *loc)
    vector = point_of(raw)
    if isinstance(vector, ix.Text):
        return vector
    with ix.place_errors(*loc):
        collection.space.refuse_vectors()
        ix.require_different_names(vector)
    return vector


def _pair_of(a: VectorBody, b: VectorBody) -> list[ix.AnyArray | ix.SparseVector]:
    """Return two vectors outside of a collection; coordinates are shared, by names or indices."""
    coordinates: dict[str, int] = {}
    found: list[ix.AnyArray | ix.SparseVector] = []
    both = vector_of(a), vector_of(b)
    for row, vector in enumerate(both):
        if isinstance(vector, ix.SparseVector) and vector.names is not None:
            if ix.names_of(both[1 - row]) is None:
                raise ix.InvalidVector(
                    expected="names in both vectors or in neither", got="them in one", loc=(row,)
                )
            with ix.place_errors(row):
                ix.require_different_names(vector)
            indices = [coordinates.setdefault(name, len(coordinates)) for name in vector.names]
            found.append(ix.SparseVector(indices, vector.values))
        else:
            found.append(vector)
    return found
