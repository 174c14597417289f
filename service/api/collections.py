"""Collections: list, create, describe, annotate, drop; their names, and what recall costs."""

from collections.abc import Sequence
from dataclasses import asdict
from math import prod
from typing import Annotated, Any, Final, Literal

from fastapi import Query, Response
from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from gcws_search import index as ix
from gcws_search.service.api.bodies import BODY_OF, AnyWeights, BackendBody, TextBody, TransformBody
from gcws_search.service.http import (
    CollectionOf,
    JsonResponse,
    ServiceOf,
    json_router,
    may_read,
    may_write,
)
from gcws_search.service.limits import require_at_most
from gcws_search.service.models import (
    CONFIGURATION,
    Body,
    Names,
    Numbers,
    bounds,
    examples,
    json_text,
    without_default,
)
from gcws_search.service.responses import READ_PROBLEMS, WRITE_PROBLEMS, metadata_json, shows
from gcws_search.service.settings import Settings

reading = json_router("/v1/collections", "collections", may_read, READ_PROBLEMS)
writing = json_router("/v1/collections", "collections", may_write, WRITE_PROBLEMS)
_MAX_DIGITS: Final = 10
"""Of a coordinate."""


def _without_default(schema: dict[str, Any]) -> None:
    """Let the API page show bounds without a default."""
    without_default(schema)
    schema |= bounds(1, 2**31 - 1)


class CreateBody(Body):
    """A collection's configuration; it stays fixed."""

    without_body = b"{}"  # so that the error names the missing field

    model_config = examples(
        {"dim": 4},
        {"dim": 784, **CONFIGURATION},
        {"dim": None, "backend": {"kind": "exact"}},
        {"text": {"tokens": "words", "weights": "counts"}},
    )

    dim: int | None = Field(
        default=None,
        description="Number of coordinates, 1 to 2^31 - 1; null: an open slot space, sparse "
        "vectors only. Up to 4096 vectors are returned dense, otherwise sparse. "
        "Omitted for a collection of texts, and only for that.",
        json_schema_extra=_without_default,
    )
    text: TextBody | None = Field(
        default=None,
        description="How texts become vectors, in a collection of texts; null: items and queries "
        "are vectors.",
    )
    ttl: float | None = Field(
        default=None,
        description="Seconds after its write at which an item without its own `expires` expires, "
        "above 0, at most 1e9; null: never.",
    )
    transform: TransformBody = Field(
        default_factory=TransformBody, description="Transform applied to every vector first."
    )
    backend: BackendBody = Field(
        default_factory=BODY_OF["gcws"], description="How the collection is searched."
    )
    storage: ix.Storage = Field(
        default="auto",
        description="Where vectors are kept: in memory, or `mapped` from a file, whose pages the "
        "system drops when memory is short; `auto`: in memory up to 1 GiB, or a "
        "third of the memory.",
    )


_PayloadKey = Annotated[str, Field(min_length=1, max_length=1024)]


def _rising(values: list[float]) -> list[float]:
    if len(values) != len(("low", "high")) or not values[0] < values[1]:
        raise PydanticCustomError(
            "invalid_range", "expected two numbers, the smaller first, got {got}", {"got": values}
        )
    return values


class ImageBody(Body):
    """How vectors are drawn as pictures: row by row, the channels of a pixel side by side."""

    model_config = examples(
        {"width": 28, "height": 28, "range": [0, 255]}, {"width": 2, "height": 2}
    )

    width: Annotated[int, Field(ge=1)] = Field(description="Pixels per row.")
    height: Annotated[int, Field(ge=1)] = Field(description="Rows of pixels.")
    channels: Literal[1, 3, 4] = Field(
        default=1, description="1: grey; 3: red, green, blue; 4: these and opacity."
    )
    range: Annotated[Numbers, AfterValidator(_rising)] | None = Field(
        default=None,
        description="The darkest and the brightest value; null: those of the vectors shown.",
    )


class ViewBody(Body):
    """How items are displayed: keys of their payload; dots reach into objects."""

    model_config = examples(
        {"title": "name", "url": "links.shop", "color": "roast"},
        {"image": {"width": 2, "height": 2}},
    )

    title: _PayloadKey | None = Field(default=None, description="Payload key of the title.")
    text: _PayloadKey | None = Field(default=None, description="Payload key of a text.")
    smiles: _PayloadKey | None = Field(
        default=None, description="Payload key of a molecule, as SMILES."
    )
    url: _PayloadKey | None = Field(default=None, description="Payload key of an address.")
    color: _PayloadKey | None = Field(
        default=None, description="Payload key of the value that items are coloured by."
    )
    image: ImageBody | None = Field(
        default=None,
        description="Vectors are pictures: `width` × `height` × `channels` must be a fixed `dim`.",
    )


class MetadataBody(Body):
    """Any JSON object of at most 64 KiB; its `view` says how items are displayed."""

    model_config = ConfigDict(
        extra="allow",
        **examples({"source": "Cup of Excellence", "view": {"title": "name", "color": "roast"}}),
    )

    view: ViewBody | None = Field(
        default=None, description="How items are displayed; null: not specified."
    )


class PatchBody(Body):
    """Changes to a collection."""

    model_config = examples(
        {"metadata": {"source": "a survey", "view": {"title": "label"}}}, {"metadata": None}
    )

    metadata: MetadataBody | None = Field(
        description="Replaces the previous metadata; null: removes it."
    )


class FitBody(Body):
    """The weights of coordinates to learn or set."""

    without_body = b"{}"

    model_config = examples({"weights": "standard"}, {"weights": [0.5, 1.0, 2.0, 1.0]})

    weights: AnyWeights | None = Field(
        default=None,
        description="What to learn from the items, or `dim` numbers above 0; null: the last "
        "request.",
    )


class NamesBody(Body):
    """Names of the first coordinates of a collection of fixed `dim`."""

    model_config = examples(
        {"names": ["acidity", "body", "sweetness", "bitterness"]}, {"names": []}
    )

    names: Names = Field(
        description="At most `dim`, each 1 to 255 characters, without duplicates; an empty list "
        "removes all."
    )
    replace: bool = Field(
        default=True,
        description="False: existing names stay, and the answer shows them; an empty list "
        "removes the names of a collection without items.",
    )


def collection_json(collection: ix.StoredCollection) -> dict[str, Any]:
    """Return the description of a collection: its configuration first, then its contents."""
    found = collection.describe()
    return found.to_dict() | {"metadata": metadata_json(found.metadata)}


@reading.get("", responses=shows("CollectionList"))
async def list_collections(service: ServiceOf) -> Response:
    """List all collections."""
    shown = ("name", "items", "dim", "backends")
    collections = [
        {name: getattr(each, name) for name in shown} | {"bytes": each.bytes_on_disk}
        for each in await service.workers.searches.run(service.catalog.list)
    ]
    return JsonResponse({"collections": collections})


@writing.put("/{name}", responses=shows("CollectionAnswer", 200, 201))
async def create_collection(service: ServiceOf, name: str, body: CreateBody) -> Response:
    """Create a collection: 201, or 200 if it exists with the same configuration."""
    config = _config(body, service.settings)
    collection, is_new = await service.workers.writes.run(service.create, name, config)
    description = await service.workers.searches.run(collection_json, collection)
    return JsonResponse(description, 201 if is_new else 200)


@reading.get("/{name}", responses=shows("CollectionAnswer"))
async def describe_collection(service: ServiceOf, collection: CollectionOf) -> Response:
    """Show a collection's configuration, its exact item count, its sizes and statistics."""
    return JsonResponse(await service.workers.searches.run(collection_json, collection))


@writing.patch("/{name}", responses=shows("CollectionAnswer"))
async def change_collection(
    service: ServiceOf, collection: CollectionOf, body: PatchBody
) -> Response:
    """Replace the metadata of a collection: any JSON object, visible to every reader.

    Its `view` says how items are displayed; null removes the metadata.
    """
    metadata = _metadata_text(body.metadata, collection.config.dim)
    service.room.require()
    await service.workers.writes.run(collection.replace_metadata, metadata)
    return JsonResponse(await service.workers.searches.run(collection_json, collection))


@writing.post("/{name}/transform/fit", responses=shows("WeightsAnswer"))
async def fit_weights(service: ServiceOf, collection: CollectionOf, body: FitBody) -> Response:
    """Learn the weights of coordinates from the present items, or set them.

    The request is answered when all items are encoded with them. Reads and writes continue
    meanwhile, with the old weights.
    """
    service.startup.require_kernels()
    service.room.require()
    weights = tuple(body.weights) if isinstance(body.weights, list) else body.weights
    return JsonResponse(asdict(await service.workers.builds.run(collection.fit, weights)))


@reading.get("/{name}/recall", responses=shows("RecallAnswer"))
async def show_recall(service: ServiceOf, collection: CollectionOf) -> Response:
    """Show requested recall beside recall found, by queries that were also answered exactly."""
    return JsonResponse((await service.workers.searches.run(collection.audited)).to_dict())


@reading.get("/{name}/curve", responses=shows("CurveAnswer"))
async def show_curve(
    service: ServiceOf,
    collection: CollectionOf,
    limit: Annotated[int, Query(ge=1, description="Number of hits of the query.")] = 10,
) -> Response:
    """Show the calibrated cost of each recall for a limit: candidates and time of a query.

    Without a neighbour graph there are no points, but a reason.
    """
    require_at_most(limit, service.settings.max_limit, "limit")
    curve = await service.workers.searches.run(collection.curve, limit)
    return JsonResponse(curve.to_dict())


@writing.put("/{name}/names", responses=shows("NamesAnswer"))
async def set_names(service: ServiceOf, collection: CollectionOf, body: NamesBody) -> Response:
    """Set the names of coordinates of a collection of fixed `dim`, replacing earlier ones.

    An open slot space takes names from its items.
    """
    service.room.require()
    await service.workers.writes.run(lambda: collection.set_names(body.names, replace=body.replace))
    found = await service.workers.searches.run(collection.find_names)
    return JsonResponse(_name(collection, found))


@reading.get("/{name}/names", responses=shows("NamesAnswer"))
async def list_names(
    service: ServiceOf,
    collection: CollectionOf,
    prefix: Annotated[
        str | None,
        Query(description="Names with this prefix, in order; without it, in order of indices."),
    ] = None,
    limit: Annotated[
        int, Query(ge=1, description="Maximum number of names; with or without `prefix`.")
    ] = 20,
    indices: Annotated[
        str | None,
        Query(
            description="The names of these coordinates, separated by commas: `3,17`; "
            "coordinates without names are left out."
        ),
    ] = None,
) -> Response:
    """Show names of coordinates: the first, those with a prefix, or those of some indices."""
    max_limit = service.settings.max_page_limit
    require_at_most(limit, max_limit, "limit")
    if indices is None:
        found = await service.workers.searches.run(collection.find_names, prefix or "", limit)
    elif prefix is not None:
        raise ix.InvalidParameter(expected="one of 'prefix' and 'indices'", got="both")
    else:
        found = collection.names.of(_coordinates(indices, max_limit))
    return JsonResponse(_name(collection, found))


def _name(collection: ix.StoredCollection, found: Sequence[ix.NamedCoordinate]) -> dict[str, Any]:
    named = [{"index": index, "name": name} for index, name in found]
    return {"names": named, "count": len(collection.names)}


@writing.delete("/{name}", status_code=204)
async def drop_collection(service: ServiceOf, name: str) -> Response:
    """Drop a collection and its file."""
    await service.workers.writes.run(service.catalog.drop, name)
    return Response(status_code=204)


# Conversion of bodies and parameters to types of the index
def _coordinates(text: str, count: int) -> list[int]:
    words = text.split(",")
    require_at_most(len(words), count, "indices")
    for word in words:
        if not (word.isascii() and word.isdecimal() and len(word) <= _MAX_DIGITS):
            raise ix.InvalidParameter(
                expected="coordinates separated by commas, such as 3,17",
                got=repr(word)[:80],
                loc=("indices",),
            )
    return [*map(int, words)]


def _config(body: CreateBody, limits: Settings) -> ix.CollectionConfig:
    if body.text is None and "dim" not in body.model_fields_set:
        raise ix.InvalidParameter(expected="a value", got="none", loc=("dim",))
    if body.dim is not None and body.dim > limits.max_dim:
        raise ix.InvalidParameter(
            expected=f"null or 1 to {limits.max_dim}", got=str(body.dim), loc=("dim",)
        )
    config = ix.CollectionConfig.from_dict(body.model_dump(warnings=False))
    if config.text is not None:
        with ix.place_errors("text"):
            config.text.require_tokens()
    return config


def _metadata_text(body: MetadataBody | None, dim: int | None) -> bytes | None:
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
