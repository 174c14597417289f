"""Bodies of requests, with examples that the tests send and check.

Those made of the index's own parameters take fields from their hints, words from their docstrings.
"""

import inspect
import re
from collections.abc import Collection
from dataclasses import MISSING, fields
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    create_model,
)
from pydantic_core import PydanticCustomError

from gcws_search import index as ix
from gcws_search.service.models import (
    CONFIGURATION,
    Body,
    Document,
    FirstErrorOnly,
    Id,
    ItemBody,
    Names,
    Numbers,
    VectorBody,
    bounds,
    examples,
    reference,
)
from gcws_search.service.problems import KIND

_ENTRY: Final = re.compile(r"^(\w+(?:, \w+)*)(?: : .*)?\n((?: {4}.*(?:\n|$))+)", re.MULTILINE)
_MAX_JSON_INTEGER: Final = 2**53
_SHARE: Final[dict[str, Any]] = {"exclusiveMinimum": 0, "maximum": 1}
OnError = Annotated[
    Literal["stop", "skip"],
    Field(
        description="At a query whose vector or parameters are invalid: `stop` answers none; "
        "`skip` gives it no hits and an `error`, and answers all others."
    ),
]


FilterDocument = Annotated[Document, WithJsonSchema(reference("FilterBody"))]
"""`index` parses filters; ``schemas.json`` describes them."""


def field_texts(described: type) -> dict[str, str]:
    """Return what the docstring of a class says of each field, as the API page words it."""
    texts: dict[str, str] = {}
    for names, lines in _ENTRY.findall(inspect.getdoc(described) or ""):
        text = " ".join(line.strip() for line in lines.splitlines())
        text = re.sub(r"\bNone\b", "null", text.replace("``", "`"))
        texts |= dict.fromkeys(names.split(", "), text)
    return texts


def body_of(
    parameters: type[Any],
    name: str,
    *shown: dict[str, Any],
    leave_out: Collection[str] = ("kind",),
    **types: Any,  # noqa: ANN401
) -> type[Body]:
    """Return the body that parameters of the index are read from; the index holds their ranges.

    ``shown`` are examples, ``types`` those of fields that JSON writes otherwise.
    """
    texts = field_texts(parameters)
    hints = get_type_hints(parameters, include_extras=True)
    found: dict[str, Any] = {
        each.name: (
            types.get(each.name) or _plain(hints[each.name]),
            Field(
                default=... if each.default is MISSING else each.default,
                description=texts[each.name],
                json_schema_extra=_bounds(hints[each.name]),
            ),
        )
        for each in fields(parameters)
        if each.name not in leave_out
    }
    return create_model(
        name,
        __base__=Body,
        __doc__=(inspect.getdoc(parameters) or "").partition("\n")[0],
        __cls_kwargs__={"json_schema_extra": {"examples": [*shown]}},
        **found,
    )


def _parts(hint: Any) -> list[Any]:  # noqa: ANN401
    """Return a hint and what it is made of."""
    return [hint, *(inner for part in get_args(hint) for inner in _parts(part))]


def _plain(hint: Any) -> Any:  # noqa: ANN401
    """Return a hint without its ranges."""
    if get_origin(hint) is Annotated:
        return get_args(hint)[0]
    parts = [_plain(part) for part in get_args(hint)]
    return parts[0] | parts[1] if type(None) in parts else hint


def _bounds(hint: Any) -> dict[str, Any] | None:  # noqa: ANN401
    """Return the bounds of a field for the API page."""
    for part in _parts(hint):
        if isinstance(part, ix.Within):
            low = "exclusiveMinimum" if part.is_open else "minimum"
            high = {} if part.high > _MAX_JSON_INTEGER else {"maximum": part.high}
            return {low: part.low, **high}
    return None


_PARAMS: Final[dict[Any, type[Body]]] = {
    Literal["gcws"]: body_of(
        ix.GcwsParams,
        "GcwsParamsBody",
        {"bands": 32, "band_width": None, "encoding": "full", "bits": 8, "seed": 0},
    ),
    Literal["exact"]: body_of(ix.ExactParams, "ExactParamsBody", {}),
    ix.FourierKind: body_of(
        ix.FourierParams, "FourierParamsBody", {"features": 512, "gamma": 1.0, "seed": 0}
    ),
    Literal["random_binning"]: body_of(
        ix.RandomBinningParams,
        "RandomBinningParamsBody",
        {"distribution": "gamma", "shape": 2.0, "scale": 1.0, "bands": 32, "seed": 0},
        {"distribution": "rayleigh", "scale": 0.5},
    ),
    Literal["gmm_nystroem"]: body_of(
        ix.NystroemParams,
        "GmmNystroemParamsBody",
        {"landmarks": 256, "seed": 0},
        leave_out=("kind", "gamma"),
    ),
    Literal["rbf_nystroem"]: body_of(
        ix.NystroemParams, "RbfNystroemParamsBody", {"landmarks": 256, "gamma": 1.0, "seed": 0}
    ),
}
"""The body of the parameters of each kind, or of several."""
_EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "gcws": {"bands": 16, "seed": 7},
    "exact": {},
    "nrff": {"features": 1024, "gamma": 2.5},
    "random_binning": {"distribution": "weibull", "shape": 2.0},
    "gmm_nystroem": {"landmarks": 128},
    "rbf_nystroem": {"landmarks": 128, "gamma": 2.5},
}


def _backend(kinds: Any, params: type[Body]) -> type[Body]:  # noqa: ANN401  # a Literal
    """Return the body of a backend of some kind."""
    shown = [
        {"kind": kind, "params": _EXAMPLES[kind]} for kind in get_args(kinds) if kind in _EXAMPLES
    ]
    usual: Any = "gcws" if "gcws" in get_args(kinds) else ...
    return create_model(
        params.__name__.replace("Params", "Backend"),
        __base__=Body,
        __doc__=params.__doc__,
        __cls_kwargs__={"json_schema_extra": {"examples": shown}},
        kind=(kinds, Field(default=usual, description="The method.")),
        params=(params, Field(default_factory=params, description="Parameters of the method.")),
    )


BODY_OF: Final[dict[str, type[Body]]] = {
    kind: body
    for kinds, params in _PARAMS.items()
    for body in [_backend(kinds, params)]
    for kind in get_args(kinds)
}
"""The body of each kind."""


def _tag(value: object) -> str | None:
    """Return what tells the body that a value's ``kind`` asks for."""
    kind = value.get("kind", "gcws") if isinstance(value, dict) else getattr(value, "kind", None)
    body = BODY_OF.get(kind) if isinstance(kind, str) else None
    return None if body is None else KIND + body.__name__


if TYPE_CHECKING:
    BackendBody = Any
else:
    BackendBody = Annotated[
        Union[  # noqa: UP007
            tuple(
                Annotated[body, Tag(KIND + body.__name__)]
                for body in dict.fromkeys(BODY_OF.values())
            )
        ],
        Discriminator(
            _tag,
            custom_error_type="unknown_kind",
            custom_error_message=f"expected an object with kind {' or '.join(map(repr, BODY_OF))}",
        ),
    ]

_AnyParams = Annotated[
    dict[str, Any],
    WithJsonSchema({"anyOf": [reference(each.__name__) for each in _PARAMS.values()]}),
]


class AttachBody(Body):
    """A comparison backend to be made from the stored vectors."""

    model_config = examples(
        {"kind": "nrff"},
        {"kind": "gcws", "name": "one_bit", "params": {"encoding": "b_bit", "bits": 1}},
        {"kind": "random_binning", "params": {"distribution": "rayleigh", "scale": 4.0}},
        {"kind": "gmm_nystroem", "params": {"landmarks": 2}},
    )

    kind: ix.BackendKind = Field(description="The method.")
    name: str | None = Field(
        default=None,
        description="What queries call it; null: its kind, or `nrff_2` and so on where that is "
        "taken.",
        json_schema_extra={"minLength": 1, "maxLength": 128},
    )
    params: _AnyParams = Field(default_factory=dict, description="Parameters of its kind.")


if TYPE_CHECKING:
    TransformBody = Any
else:
    TransformBody = body_of(
        ix.Transform,
        "TransformBody",
        {"center": None, "power": 0.5, "normalize": "l1"},
        center=Numbers | None,
    )


class CreateBody(Body):
    """A collection's configuration; it stays fixed."""

    without_body = b"{}"  # so that the field that is missing is named

    model_config = examples(
        {"dim": 4}, {"dim": 784, **CONFIGURATION}, {"dim": None, "backend": {"kind": "exact"}}
    )

    dim: int | None = Field(
        description="Number of coordinates, 1 to 2^31 - 1; null: an open slot space, sparse "
        "vectors only. Up to 4096 vectors are returned dense, otherwise sparse.",
        json_schema_extra=bounds(1, 2**31 - 1),
    )
    transform: TransformBody = Field(
        default_factory=TransformBody, description="What is done to every vector first."
    )
    backend: BackendBody = Field(
        default_factory=BODY_OF["gcws"], description="How the collection is searched."
    )
    storage: ix.Storage = Field(
        default="memory",
        description="Where vectors lie: in memory, or `mapped` from a file, whose pages the "
        "system drops when memory is short.",
    )


_PayloadKey = Annotated[str, Field(min_length=1, max_length=1024)]


def _rising(values: list[float]) -> list[float]:
    """Return two numbers, the lesser first."""
    if len(values) != len(("low", "high")) or not values[0] < values[1]:
        raise PydanticCustomError(
            "invalid_range", "expected two numbers, the lesser first, got {got}", {"got": values}
        )
    return values


class ImageBody(Body):
    """How vectors are drawn as pictures: row by row, the channels of a pixel side by side."""

    model_config = examples(
        {"width": 28, "height": 28, "range": [0, 255]}, {"width": 2, "height": 2}
    )

    width: Annotated[int, Field(ge=1)] = Field(description="Pixels of a row.")
    height: Annotated[int, Field(ge=1)] = Field(description="Rows of pixels.")
    channels: Literal[1, 3, 4] = Field(
        default=1, description="1: grey; 3: red, green, blue; 4: these and opacity."
    )
    range: Annotated[Numbers, AfterValidator(_rising)] | None = Field(
        default=None,
        description="The darkest and the brightest value; null: those of the vectors shown.",
    )


class ViewBody(Body):
    """What of an item is shown, and how: keys of its payload, dots reaching into objects."""

    model_config = examples(
        {"title": "name", "url": "links.shop", "color": "roast"},
        {"image": {"width": 2, "height": 2}},
    )

    title: _PayloadKey | None = Field(default=None, description="Key of the items' headings.")
    text: _PayloadKey | None = Field(default=None, description="Key of a text.")
    smiles: _PayloadKey | None = Field(default=None, description="Key of a molecule, as SMILES.")
    url: _PayloadKey | None = Field(default=None, description="Key of an address.")
    color: _PayloadKey | None = Field(
        default=None, description="Key of the value that items are coloured by."
    )
    image: ImageBody | None = Field(
        default=None,
        description="Vectors are pictures: `width` × `height` × `channels` is `dim`, where that "
        "is fixed.",
    )


class MetadataBody(Body):
    """Any JSON object of at most 64 KiB; its `view` says how items are shown."""

    model_config = ConfigDict(
        extra="allow",
        **examples({"source": "Cup of Excellence", "view": {"title": "name", "color": "roast"}}),
    )

    view: ViewBody | None = Field(default=None, description="How items are shown; null: unsaid.")


class PatchBody(Body):
    """What of a collection may change."""

    model_config = examples(
        {"metadata": {"source": "a survey", "view": {"title": "label"}}}, {"metadata": None}
    )

    metadata: MetadataBody | None = Field(
        description="In the place of all before; null: it is removed."
    )


class NamesBody(Body):
    """Names of the first coordinates of a collection of fixed `dim`."""

    model_config = examples(
        {"names": ["acidity", "body", "sweetness", "bitterness"]}, {"names": []}
    )

    names: Names = Field(
        description="At most `dim`, each 1 to 255 characters, none twice; none: they are removed."
    )


class NamesParams(BaseModel):
    """Which names are shown."""

    model_config = ConfigDict(extra="forbid")

    prefix: str | None = Field(
        default=None, description="Names that begin so, in order; without it, in order of indices."
    )
    limit: int = Field(default=20, ge=1, description="Most names; for `prefix`, and without it.")
    indices: str | None = Field(
        default=None,
        description="The names of these coordinates, with commas between them: `3,17`; those that "
        "have none are left out.",
    )


class CurveParams(BaseModel):
    """What the costs of recall are asked for."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(default=10, ge=1, description="How many hits a query wants.")


class PutItemsBody(Body):
    """Items to store, all or nothing."""

    instead = "POST …/load takes items of any number"
    limited: ClassVar = {"items": "max_items_per_request"}
    model_config = examples(
        {
            "items": [
                {"id": "a", "vector": [0.1, -2, 0, 3], "payload": {"label": 3}},
                {"id": 7, "vector": {"indices": [1, 3], "values": [-2, 2.5]}},
            ]
        },
        {"items": [{"id": "b", "vector": [1, 0, 0, 1]}], "mode": "insert"},
    )

    items: Annotated[list[ItemBody], FirstErrorOnly()] = Field(
        description="The items; of an id given twice the last one counts, where `mode` permits it."
    )
    mode: ix.Mode = Field(
        default="upsert",
        description="`upsert` replaces the vector and the payload of an id that exists; `insert` "
        "refuses it.",
    )


class DeleteItemsBody(Body):
    """Items to delete, by their ids or by a filter."""

    limited: ClassVar = {"ids": "max_items_per_request"}
    model_config = examples(
        {"ids": ["a", 7]}, {"filter": {"must": [{"key": "label", "match": {"value": 3}}]}}
    )

    ids: Annotated[list[Id], FirstErrorOnly()] | None = Field(
        default=None, description="Ids; those of no item are passed over."
    )
    filter: FilterDocument | None = Field(
        default=None, description="Deletes every item that passes; instead of `ids`."
    )


class CountBody(Body):
    """Which items are counted."""

    model_config = examples(
        {"filter": {"must": [{"key": "label", "match": {"value": 3}}]}}, {"filter": None}
    )

    filter: FilterDocument | None = Field(
        default=None, description="Only items whose payloads pass are counted; null: all."
    )


class PageParams(BaseModel):
    """Which page of items."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(default=100, ge=1, description="Most items of the page.")
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before.")
    with_vector: bool = Field(default=False, description="Show vectors too.")
    filter: str | None = Field(
        default=None,
        description="A filter as of a query, its JSON text percent-encoded: only items that pass.",
    )
    ids: list[str] | None = Field(
        default=None,
        description="Only these items, instead of `filter`: `ids=a,b`, or `ids=a&ids=b`. Where "
        "the parameter is repeated, commas are part of ids. Those of no item are left out.",
    )


class LoadParams(BaseModel):
    """How a stream of items is loaded."""

    model_config = ConfigDict(extra="forbid")

    mode: ix.Mode = Field(
        default="upsert",
        description="`upsert` replaces the vector and the payload of an id that exists; `insert` "
        "refuses it.",
    )
    on_error: Literal["stop", "skip"] = Field(
        default="stop",
        description="At a row that cannot be stored: `stop` ends the load, and the chunks "
        "committed before stay; `skip` lists the row under `rejected` and goes on.",
    )
    id_start: int | None = Field(
        default=None,
        ge=0,
        lt=2**63,
        description="npy only: id of the first row; the others count on. Without it rows get the "
        "next numbers not taken.",
    )
    columns: Literal["payload"] | None = Field(
        default=None,
        description="Arrow only: `payload` makes columns that items do not have fields of their "
        "payloads; without it such columns are refused.",
    )
    payloads: Literal["replace", "keep"] | None = Field(
        default=None,
        description="What becomes of the payload of an item that exists where its row has none. "
        "`replace`, the default: an upsert leaves none; `keep`: it stays.",
    )
    max_rejected: int | None = Field(
        default=None,
        ge=0,
        le=10_000,
        description="How many rejected rows the summary lists; the first 1,000 unless the service "
        "is set otherwise. All are counted.",
    )


Limit = Annotated[
    int,
    Field(
        description="How many hits; at most the server's `max_limit`, 100,000 unless set.",
        json_schema_extra=bounds(1),
    ),
]
Recall = Annotated[
    float,
    Field(
        description="Expected share of the true hits, in (0, 1]; 1 is an exact scan.",
        json_schema_extra=_SHARE,
    ),
]
Candidates = Annotated[
    int | None,
    Field(
        description="How many of the best by a comparison backend's estimate are scored exactly; "
        "null: 100, or 10 times `limit`.",
        json_schema_extra=bounds(1),
    ),
]


class SearchOptions(BaseModel):
    """What one query, or many, ask for."""

    limit: Limit = 10
    offset: int = Field(
        default=0,
        description="Hits of the ranking that are left out before the first one shown. `offset` "
        "and `limit` together are at most `max_limit`. Pages of one `limit` share no hit and leave "
        "none out.",
        json_schema_extra=bounds(0),
    )
    recall: Recall = 0.9
    min_score: float = Field(
        default=0.0,
        description="Hits below this score are not wanted, in [0, 1]. At 0, items that share "
        "nothing with the query may be returned too, with score 0.",
        json_schema_extra=bounds(0, 1),
    )
    guarantee: ix.Guarantee = Field(
        default="measured",
        description="In which sense `recall` is promised. `measured`: as the mean over queries "
        "like the collection's own items, by calibration; the quickest. `proven`: as this query's "
        "expected share, by the collision law, whatever the data. Where `band_width` is a number, "
        "`measured` returns what the tables hold, and `proven` turns to a scan where that is not "
        "enough.",
    )
    with_payload: bool = Field(default=True, description="Show the hits' payloads.")
    with_vector: bool = Field(default=False, description="Show the hits' vectors.")
    backend: str | None = Field(
        default=None,
        description="Name of one of the collection's `backends`; null: the one it was created "
        "with, whose name is its `kind`. Any other: 404.",
    )
    rerank: ix.Rerank = Field(
        default="gmm",
        description="How hits are scored, and ranked by it: `gmm`, the exact GMM; `own`, the "
        "exact kernel that the backend estimates; `none`, its own estimate. `exact` gives the "
        "exact GMM always.",
    )
    candidates: Candidates = None
    explain: bool = Field(default=False, description="Say what the query cost.")
    allow_partial: bool = Field(
        default=False,
        description="In a cluster: answer without the shards that gave no answer in time, and say "
        "which, rather than not at all.",
    )
    consistency: Literal["session", "strict"] = Field(
        default="session",
        description="In a cluster: `session` finds what was acknowledged by the process that is "
        "asked, `strict` what was acknowledged by any. One process alone is always strict.",
    )


class QueryBody(SearchOptions, Body):
    """What to search for: a ``vector``, or the ``id`` of a stored item."""

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
    id: Id | None = Field(
        default=None, description="Searches around this stored item, which is left out of the hits."
    )
    filter: FilterDocument | None = Field(
        default=None, description="Only items whose payloads pass are found; null: all."
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

    model_config = ConfigDict(extra="forbid")

    on_error: OnError = "stop"


class PairsBody(Body):
    """Which pairs of items are wanted."""

    model_config = examples({"min_score": 0.8}, {"min_score": 0.5, "limit": 10})

    min_score: float = Field(
        description="Least score of a pair, in (0, 1].",
        json_schema_extra=_SHARE,
    )
    limit: int | None = Field(
        default=None, description="Most pairs; null: all.", json_schema_extra=bounds(1)
    )
    recall: float = Field(
        default=0.9,
        description="Expected share of the pairs found, in (0, 1].",
        json_schema_extra=_SHARE,
    )


class CompareBody(Body):
    """What to compare a collection's backends by."""

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

    queries: Annotated[list[VectorBody], FirstErrorOnly()] | None = Field(
        default=None, description="Vectors to search for; instead of `sample`."
    )
    sample: int | None = Field(
        default=None,
        description="Searches around this many stored items, each left out of its own hits; 100 "
        "where neither this nor `queries` is given.",
        json_schema_extra=bounds(1),
    )
    seed: int = Field(
        default=0, description="Of the choice of the sample.", json_schema_extra=bounds(0)
    )
    limit: Limit = 10
    recall: Recall = 0.9
    candidates: Candidates = None
    backends: Annotated[list[str], Field(json_schema_extra={"minItems": 1})] | None = Field(
        default=None, description="Names of the backends to compare; null: all that are ready."
    )


class ExplainedBody(Body):
    """A stored item by its ``id``, or a ``vector``."""

    model_config = examples({"id": "a"}, {"vector": [0.1, -2, 0, 3]})

    id: Id | None = Field(default=None, description="A stored item.")
    vector: VectorBody | None = Field(default=None, description="A vector, instead of `id`.")


class ExplainBody(Body):
    """Whose similarity is explained."""

    model_config = examples(
        {"a": {"id": "a"}, "b": {"vector": [0.1, -2, 0, 3]}},
        {"a": {"id": "a"}, "b": {"vector": {"indices": [1], "values": [-2]}}, "limit": 1},
    )

    a: ExplainedBody = Field(description="The one.")
    b: ExplainedBody = Field(description="The other.")
    limit: int = Field(
        default=ix.SHARES,
        description="Coordinates that are listed; all others are summed.",
        json_schema_extra=bounds(1, ix.MAX_SHARES),
    )


class SketchBody(Body):
    """Vectors to hash with the collection's own randomness."""

    limited: ClassVar = {"vectors": "max_items_per_request"}
    model_config = examples(
        {"vectors": [[0.1, -2, 0, 3]], "encoding": "full"},
        {"vectors": [{"indices": [1], "values": [-2]}], "encoding": "b_bit"},
    )

    vectors: Annotated[list[VectorBody], FirstErrorOnly()] = Field(
        description="The vectors; a collection whose backend is `exact` does not hash."
    )
    encoding: ix.Encoding = Field(
        default="full",
        description="What is returned of a sample (i*, t*): `slots` and `levels`; `slots`, "
        "which are `codes` too; or `codes` of the collection's `bits` bits.",
    )


class SimilarityBody(Body):
    """Two vectors and the kernel to compare them by."""

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

    a: VectorBody = Field(description="The one vector.")
    b: VectorBody = Field(description="The other; two lists of numbers are of one length.")
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
        description="Of `gmm`: none. Of `rbf` and `folded_rbf`: `gamma`. Of `laplace` and "
        "`gaussian`: `scale`. Of `polya`: `distribution`, `shape`, `scale`.",
        json_schema_extra={
            "properties": {
                "gamma": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": 1e6,
                    "default": 1.0,
                    "description": "How fast similarity falls with the angle.",
                },
                "scale": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": 1e9,
                    "default": 1.0,
                    "description": "At which distance similarity has fallen; the mean pitch.",
                },
                "distribution": {
                    "type": "string",
                    "enum": [*ix.SHAPES],
                    "default": "gamma",
                    "description": "Of the pitches.",
                },
                "shape": {
                    "type": ["number", "null"],
                    "maximum": 1e6,
                    "default": None,
                    "description": "s > 0 of `gamma` (2), degrees of freedom > 0 of `chi_square` "
                    "(4) and `chi` (3), m from 0.5 of `nakagami` (1), k from 0.05 of `weibull` "
                    "(2), mu > 0 of `shifted_poisson` (1); the others have none.",
                },
            },
            "additionalProperties": False,
        },
    )
