"""The similarity of two vectors, without a collection."""

from collections.abc import Callable
from typing import Any, Final

from fastapi import APIRouter, Depends, Request, Response

import index as ix
from service import parsing
from service.answers import SimilarityAnswer
from service.dependencies import may_read, service_of
from service.responses import BODY_PROBLEMS, json_response
from service.routing import JsonRoute
from service.schemas import SimilarityBody
from service.shapes import SparseBody, VectorBody

router = APIRouter(
    prefix="/v1", tags=["search"], dependencies=[Depends(may_read)],
    responses=BODY_PROBLEMS, route_class=JsonRoute,
)  # fmt: skip

_Vector = list[float] | ix.SparseVector


def _gmm(a: _Vector, b: _Vector, params: dict[str, Any]) -> float:
    _permit(params)
    return ix.similarity(a, b)


def _rbf(a: _Vector, b: _Vector, params: dict[str, Any]) -> float:
    _permit(params, "gamma")
    gamma = params.get("gamma", 1.0)
    if isinstance(gamma, bool) or not isinstance(gamma, int | float) or not 0 < gamma < MAX_GAMMA:
        raise ix.InvalidParameter(
            expected=f"a number above 0 and below {MAX_GAMMA:g}", got=repr(gamma)[:80],
            loc=("params", "gamma"),
        )  # fmt: skip
    return ix.rbf(a, b, gamma=float(gamma))


MAX_GAMMA: Final = 1e9
KERNELS: Final[dict[str, Callable[[_Vector, _Vector, dict[str, Any]], float]]] = {
    "gmm": _gmm,
    "rbf": _rbf,
}
"""Name of each kernel, and what computes it from two vectors and its parameters."""


def _permit(params: dict[str, Any], *names: str) -> None:
    for name in params:
        if name not in names:
            expected = " or ".join(names) or "no parameters"
            raise ix.InvalidParameter(expected=expected, got=repr(name)[:80], loc=("params",))


def _vector(sent: VectorBody) -> _Vector:
    return parsing.sparse(sent) if isinstance(sent, SparseBody) else sent


@router.post("/similarity", response_model=SimilarityAnswer)
async def similarity(request: Request, body: SimilarityBody) -> Response:
    """Compare two vectors: `gmm`, or `rbf` (exp(-gamma (1 - cosine)))."""
    kernel = KERNELS.get(body.kernel)
    if kernel is None:
        names = " or ".join(map(repr, KERNELS))
        raise ix.InvalidParameter(expected=names, got=repr(body.kernel)[:80], loc=("kernel",))
    service = service_of(request)
    service.startup.require_kernels()
    a, b = _vector(body.a), _vector(body.b)
    try:
        score = await service.workers.searches.run(kernel, a, b, body.params)
    except ix.InvalidVector as error:
        row, *rest = error.loc or (0,)
        raise ix.InvalidVector(
            expected=error.expected, got=error.got, loc=("ab"[int(row)], *rest)
        ) from None
    return json_response({"score": score})
