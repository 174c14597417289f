"""Bodies of requests and answers, with examples that the tests send and check."""

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, FailFast, Field, Tag
from pydantic_core import PydanticCustomError

MAX_ID_LENGTH: Final = 255


def examples(*documents: dict[str, Any]) -> ConfigDict:
    """Return the part of a model's configuration that shows examples on the API page."""
    return ConfigDict(json_schema_extra={"examples": list(documents)})


def _id_text(value: str | int) -> str:
    """Return the id as text; an integer means its decimal string."""
    text = value if isinstance(value, str) else str(value)
    if not 1 <= len(text) <= MAX_ID_LENGTH:
        raise PydanticCustomError(
            "invalid_id",
            "expected a string of 1 to {most} characters or an integer, got {length} characters",
            {"most": MAX_ID_LENGTH, "length": len(text)},
        )
    return text


class FirstErrorOnly(FailFast):
    """Stop at the first bad entry of a list: one error says enough, a million say no more."""

    __hash__ = object.__hash__  # Python 3.11 wants the parts of a union hashable


Id = Annotated[str | int, AfterValidator(_id_text)]
Numbers = Annotated[list[float], FirstErrorOnly()]
Indices = Annotated[list[int], FirstErrorOnly()]
Payload = dict[str, Any]


class Body(BaseModel):
    """What a client sends: nothing unknown, nothing converted, nothing infinite."""

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class SparseBody(Body):
    """A vector by its non-zero coordinates: 0-based, in any order, without duplicates."""

    model_config = examples(
        {"indices": [3, 17], "values": [0.5, -1]},
    )

    indices: Indices
    values: Numbers


VectorBody = Numbers | SparseBody


class TransformBody(Body):
    """What is done to every vector first: subtract ``center``, raise to ``power``, normalise."""

    model_config = examples(
        {"center": None, "power": 0.5, "normalize": "l1"},
    )

    center: Numbers | None = None
    power: float = 1.0
    normalize: Literal["none", "l1", "l2"] = "none"


class GcwsParamsBody(Body):
    """Parameters of the hash tables."""

    model_config = examples(
        {"bands": 32, "band_width": None, "encoding": "full", "bits": 8, "seed": 0},
    )

    bands: int = Field(default=32, description="Number of tables, 1 to 256.")
    band_width: int | None = Field(
        default=None, description="Samples of every band, 1 to 64; null: depth is chosen per query."
    )
    encoding: Literal["full", "zero_bit", "b_bit"] = Field(
        default="full", description="What of a sample (i*, t*) goes into a key."
    )
    bits: int = Field(default=8, description="b of b_bit, 1 to 16.")
    seed: int = Field(default=0, description="Seed of all randomness, 0 to 2^63 - 1.")


class ExactParamsBody(Body):
    """The exact scan has no parameters."""

    model_config = examples(
        {},
    )


class GcwsBackendBody(Body):
    """Hash tables over GCWS samples."""

    model_config = examples(
        {"kind": "gcws", "params": {"bands": 16, "seed": 7}},
    )

    kind: Literal["gcws"] = "gcws"
    params: GcwsParamsBody = Field(default_factory=GcwsParamsBody)


class ExactBackendBody(Body):
    """No index: every query scans all items."""

    model_config = examples(
        {"kind": "exact", "params": {}},
    )

    kind: Literal["exact"]
    params: ExactParamsBody = Field(default_factory=ExactParamsBody)


BACKEND_KINDS: Final = ("gcws", "exact")


def _backend_kind(value: object) -> object:
    kind = value.get("kind", "gcws") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) else None


BackendBody = Annotated[
    Annotated[GcwsBackendBody, Tag("gcws")] | Annotated[ExactBackendBody, Tag("exact")],
    Discriminator(
        _backend_kind,
        custom_error_type="unknown_kind",
        custom_error_message="expected an object with kind 'gcws' or 'exact'",
    ),
]


class CreateBody(Body):
    """A collection's configuration; it stays fixed."""

    model_config = examples(
        {"dim": 4},
        {
            "dim": 784,
            "transform": {"center": None, "power": 1.0, "normalize": "none"},
            "backend": {
                "kind": "gcws",
                "params": {
                    "bands": 32,
                    "band_width": None,
                    "encoding": "full",
                    "bits": 8,
                    "seed": 0,
                },
            },
        },
        {"dim": None, "backend": {"kind": "exact"}},
    )

    dim: int | None = Field(description="Number of coordinates; null: an open slot space, sparse.")
    transform: TransformBody = Field(default_factory=TransformBody)
    backend: BackendBody = Field(default_factory=GcwsBackendBody)


class ItemBody(Body):
    """One item."""

    model_config = examples(
        {"id": "a", "vector": [0.1, -2, 0, 3], "payload": {"label": 3}},
    )

    id: Id
    vector: VectorBody
    payload: Payload | None = None


class PutItemsBody(Body):
    """Items to store, all or nothing."""

    model_config = examples(
        {
            "items": [
                {"id": "a", "vector": [0.1, -2, 0, 3], "payload": {"label": 3}},
                {"id": 7, "vector": {"indices": [1, 3], "values": [-2, 2.5]}},
            ]
        },
        {"items": [{"id": "b", "vector": [1, 0, 0, 1]}], "mode": "insert"},
    )

    items: Annotated[list[ItemBody], FirstErrorOnly()]
    mode: Literal["upsert", "insert"] = "upsert"


class DeleteItemsBody(Body):
    """Items to delete, by their ids or by a filter."""

    model_config = examples(
        {"ids": ["a", 7]},
        {"filter": {"must": [{"key": "label", "match": {"value": 3}}]}},
    )

    ids: Annotated[list[Id], FirstErrorOnly()] | None = None
    filter: dict[str, Any] | None = None


class PageParams(BaseModel):
    """Which page of items."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(default=100, ge=1, description="Most items of the page.")
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before.")
    with_vector: bool = False


class LoadParams(BaseModel):
    """How a stream of items is loaded."""

    model_config = ConfigDict(extra="forbid")

    mode: Literal["upsert", "insert"] = "upsert"
    on_error: Literal["stop", "skip"] = "stop"
    id_start: int | None = Field(
        default=None,
        ge=0,
        lt=2**63,
        description="npy only: id of the first row; the others count on. Default 0.",
    )


class QueryBody(Body):
    """What to search for: a ``vector``, or the ``id`` of a stored item."""

    model_config = examples(
        {"vector": [0.1, -2, 0, 3], "limit": 10},
        {"id": "a", "limit": 1, "with_vector": True},
        {
            "vector": {"indices": [1, 3], "values": [-2, 3]},
            "limit": 5,
            "recall": 0.95,
            "min_score": 0.1,
            "filter": {"must": [{"key": "label", "match": {"value": 3}}]},
            "guarantee": "proven",
            "with_payload": True,
            "with_vector": False,
            "backend": None,
            "rerank": "gmm",
            "explain": True,
        },
    )

    vector: VectorBody | None = None
    id: Id | None = None
    limit: int = Field(default=10, description="How many hits, at least 1.")
    recall: float = Field(
        default=0.9, description="Expected share of the true hits, in (0, 1]; 1 is an exact scan."
    )
    min_score: float = Field(
        default=0.0, description="Hits below this score are not wanted, in [0, 1]."
    )
    filter: dict[str, Any] | None = Field(
        default=None, description="A condition on payloads: must, should, must_not; match, range."
    )
    guarantee: Literal["measured", "proven"] = "measured"
    with_payload: bool = True
    with_vector: bool = False
    backend: str | None = None
    rerank: Literal["gmm", "none"] = "gmm"
    explain: bool = False


class BatchBody(Body):
    """Several queries."""

    model_config = examples(
        {"queries": [{"vector": [0.1, -2, 0, 3]}, {"id": "a", "limit": 2}]},
    )

    queries: Annotated[list[QueryBody], FirstErrorOnly()]


class BatchParams(BaseModel):
    """What the queries of an ``.npy`` body ask for."""

    model_config = ConfigDict(extra="forbid")

    limit: int = 10
    recall: float = 0.9
    min_score: float = 0.0
    guarantee: Literal["measured", "proven"] = "measured"
    with_payload: bool = True
    with_vector: bool = False
    backend: str | None = None
    rerank: Literal["gmm", "none"] = "gmm"
    explain: bool = False


class PairsBody(Body):
    """Which pairs of items are wanted."""

    model_config = examples(
        {"min_score": 0.8},
        {"min_score": 0.5, "limit": 10},
    )

    min_score: float = Field(description="Least score of a pair, in (0, 1].")
    limit: int | None = Field(default=None, description="Most pairs; null: all.")
    recall: float = Field(default=0.9, description="Expected share of the pairs found, in (0, 1].")


class SketchBody(Body):
    """Vectors to hash with the collection's own randomness."""

    model_config = examples(
        {"vectors": [[0.1, -2, 0, 3]], "encoding": "full"},
        {"vectors": [{"indices": [1], "values": [-2]}], "encoding": "b_bit"},
    )

    vectors: Annotated[list[VectorBody], FirstErrorOnly()]
    encoding: Literal["full", "zero_bit", "b_bit"] = "full"


class SimilarityBody(Body):
    """Two vectors and the kernel to compare them by."""

    model_config = examples(
        {"a": [0.1, -2, 0, 3], "b": {"indices": [1, 3], "values": [-2, 2.5]}},
        {"a": [1, 0], "b": [0.6, 0.8], "kernel": "rbf", "params": {"gamma": 1.0}},
    )

    a: VectorBody
    b: VectorBody
    kernel: str = "gmm"
    params: dict[str, Any] = Field(default_factory=dict)
