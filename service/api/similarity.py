"""The similarity of two vectors, without a collection."""

from fastapi import Request, Response

from gcws_search import index as ix
from gcws_search.service.api.answers import SimilarityAnswer
from gcws_search.service.api.bodies import SimilarityBody
from gcws_search.service.execution.context import may_read, service_of
from gcws_search.service.guards.limits import require_short_vector
from gcws_search.service.http.dispatch import json_router
from gcws_search.service.ingest import names
from gcws_search.service.responses import BODY_PROBLEMS, json_response

router = json_router("/v1", "search", may_read, BODY_PROBLEMS)


@router.post("/similarity", response_model=SimilarityAnswer)
async def similarity(request: Request, body: SimilarityBody) -> Response:
    """Compare two vectors by an exact kernel; all but the zero vector can be compared."""
    kernel = ix.kernel_named(body.kernel, body.params)
    service = service_of(request)
    service.startup.require_kernels()
    limits = service.limits
    require_short_vector(body.a, limits, "a")
    require_short_vector(body.b, limits, "b")
    try:
        a, b = names.pair_of(body.a, body.b)
        score = await service.workers.searches.run(ix.score, kernel, a, b)
    except ix.InvalidVector as error:
        row, *rest = error.loc or (0,)
        raise ix.InvalidVector(
            expected=error.expected, got=error.got, loc=("ab"[int(row)], *rest)
        ) from None
    return json_response({"score": score})
