"""Comparison backends: attach, drop, compare."""

import threading
from dataclasses import asdict
from typing import Annotated, ClassVar, Final

import numpy as np
from fastapi import Request, Response
from pydantic import Field, ValidationError

from gcws_search import index as ix
from gcws_search.service.api import requests
from gcws_search.service.api.bodies import BODY_OF, AnyParams
from gcws_search.service.api.query import Candidates, Limit, Recall, search_params
from gcws_search.service.http import (
    CollectionOf,
    JsonResponse,
    ServiceOf,
    json_router,
    may_read,
    may_write,
)
from gcws_search.service.limits import require_at_least, require_at_most
from gcws_search.service.models import Body, FirstErrorOnly, PointBody, bounds, examples
from gcws_search.service.problems import invalid_request
from gcws_search.service.responses import BODY_PROBLEMS, WRITE_PROBLEMS, shows
from gcws_search.service.settings import Settings

writing = json_router("/v1/collections/{name}/backends", "backends", may_write, WRITE_PROBLEMS)
reading = json_router("/v1/collections/{name}", "backends", may_read, BODY_PROBLEMS)
_SAMPLE: Final = 100
"""Stored items that a comparison searches for unless it says otherwise."""


class AttachBody(Body):
    """A comparison backend to build from the stored vectors."""

    model_config = examples(
        {"kind": "nrff"},
        {"kind": "gcws", "name": "one_bit", "params": {"encoding": "b_bit", "bits": 1}},
        {"kind": "random_binning", "params": {"distribution": "rayleigh", "scale": 4.0}},
        {"kind": "gmm_nystroem", "params": {"landmarks": 2}},
    )

    kind: ix.BackendKind = Field(description="The method.")
    name: str | None = Field(
        default=None,
        description="Name for queries; null: its kind, or `nrff_2` and so on if that is taken.",
        json_schema_extra={"minLength": 1, "maxLength": 128},
    )
    params: AnyParams = Field(default_factory=dict, description="Parameters of its kind.")


class CompareBody(Body):
    """Parameters of a comparison of backends."""

    limited: ClassVar = {"queries": "max_queries_per_request", "backends": 1000}
    model_config = examples(
        {"sample": 3, "limit": 2},
        {
            "queries": [[0.1, -2, 0, 3], {"indices": [1, 3], "values": [-2, 3]}],
            "limit": 2,
            "recall": 0.9,
            "backends": ["gcws"],
        },
    )

    queries: Annotated[list[PointBody], FirstErrorOnly()] | None = Field(
        default=None, description="Vectors, or texts, to search for; instead of `sample`."
    )
    sample: int | None = Field(
        default=None,
        description="Search around this many stored items, each left out of its own hits; 100 if "
        "neither this nor `queries` is given.",
        json_schema_extra=bounds(1),
    )
    seed: int = Field(
        default=0, description="Seed of the choice of the sample.", json_schema_extra=bounds(0)
    )
    limit: Limit = 10
    recall: Recall = 0.9
    candidates: Candidates = None
    backends: Annotated[list[str], Field(json_schema_extra={"minItems": 1})] | None = Field(
        default=None, description="Names of the backends to compare; null: all that are ready."
    )


@writing.post("", status_code=201, responses=shows("BackendAnswer", 201))
async def attach_backend(
    service: ServiceOf, collection: CollectionOf, body: AttachBody
) -> Response:
    """Attach a comparison backend, built from stored vectors beside queries and writes.

    The request is answered when it is ready; until then `GET /v1/collections/{name}` shows its
    progress.
    """
    service.startup.require_kernels()
    model = BODY_OF[body.kind]
    try:
        checked = model.model_validate({"kind": body.kind, "params": body.params})
    except ValidationError as error:
        raise invalid_request(error, model) from None
    with ix.place_errors("params"):
        params = ix.backend_params(body.kind, checked.model_dump()["params"])
    service.room.require()
    described = await service.workers.builds.run(collection.attach, params, body.name)
    return JsonResponse(asdict(described), 201)


@writing.delete("/{backend}", status_code=204)
async def drop_backend(service: ServiceOf, collection: CollectionOf, backend: str) -> Response:
    """Drop a comparison backend and free its memory. A build in progress is cancelled."""
    await service.workers.writes.run(collection.detach, backend)
    return Response(status_code=204)


@reading.post("/compare", responses=shows("CompareAnswer"))
async def compare(
    request: Request, service: ServiceOf, collection: CollectionOf, body: CompareBody
) -> Response:
    """Run the same queries on several backends: the recall and cost of each."""
    service.startup.require_kernels()
    limits = service.settings
    params, sample = _comparison(body, limits)

    def work(stop: threading.Event) -> Response:
        queries, order = None, []
        if body.queries is not None:
            parts = requests.with_unknown_apart(body.queries, collection, limits, "queries")
            queries = [vectors for _, vectors in parts]
            order = [number for numbers, _ in parts for number in numbers]
        try:
            found = collection.compare(
                queries, params, sample=sample, seed=body.seed, backends=body.backends, stop=stop
            )
        except ix.InvalidVector as error:
            error.move_row(order.__getitem__, "queries")
            raise
        similarities = found.similarities
        if order:
            similarities = similarities[np.argsort(order)]
        return JsonResponse(
            {
                "queries": len(similarities),
                "limit": params.limit,
                "recall": params.recall,
                "backends": [asdict(each) for each in found.backends],
                "mean_similarity": similarities,
            }
        )

    return await service.workers.joins.run_while_awaited(work, request.is_disconnected)


def _comparison(body: CompareBody, limits: Settings) -> tuple[ix.SearchParams, int]:
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
    sample = _SAMPLE if body.sample is None else body.sample
    require_at_most(sample, limits.max_queries_per_request, "sample")
    require_at_least(sample, 1, "sample")
    require_at_least(body.seed, 0, "seed")
    params = search_params(limits.max_limit, body.limit, body.recall, body.candidates)
    return params, sample
