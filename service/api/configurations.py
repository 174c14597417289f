"""From checked bodies to configurations of collections, their metadata, and other backends."""

from __future__ import annotations

from math import prod

from pydantic import ValidationError

from gcws_search import index as ix
from gcws_search.service.api.backend_bodies import BODY_OF, AttachBody
from gcws_search.service.api.bodies import CreateBody, MetadataBody
from gcws_search.service.api.requests import place_errors
from gcws_search.service.guards.limits import Limits
from gcws_search.service.models import json_text
from gcws_search.service.problems import invalid_request


def config(body: CreateBody, limits: Limits) -> ix.CollectionConfig:
    """Return a collection's configuration.

    Raises
    ------
    InvalidParameter
    """
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
    """Return the metadata of a collection of this dim as JSON text; None for none.

    Raises
    ------
    InvalidParameter
    """
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
    """Return the parameters of a backend to be attached.

    Raises
    ------
    InvalidRequest, InvalidParameter
    """
    model = BODY_OF[body.kind]
    try:
        checked = model.model_validate({"kind": body.kind, "params": body.params})
    except ValidationError as error:
        raise invalid_request(error, model) from None
    params = checked.model_dump()["params"]
    return place_errors(ix.backend_params, "params", kind=body.kind, params=params)
