"""What bodies are made of: strictness, examples, ids, vectors."""

import json
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, cast

import numpy as np
import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError, from_json

from gcws_search import index as ix
from gcws_search.index import AnyArray

MAX_ID_LENGTH: Final = 255
_FLOAT_BYTES: Final = 4


def examples(*documents: dict[str, Any]) -> ConfigDict:
    """Return the part of a model's configuration that shows examples on the API page."""
    return ConfigDict(json_schema_extra={"examples": list(documents)})


CONFIGURATION: Final[dict[str, Any]] = {
    "transform": {"center": None, "power": 1.0, "normalize": "none"},
    "backend": {
        "kind": "gcws",
        "params": {"bands": 32, "band_width": None, "encoding": "full", "bits": 8, "seed": 0},
    },
}
"""What a collection is created with unless it is said, for examples."""


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


def without_default(schema: dict[str, Any]) -> None:
    """Let the API page show a field that may be left out, and is not null."""
    del schema["default"]


def bounds(low: int, high: int | None = None) -> dict[str, Any]:
    """Return bounds for the API page alone: it is the index that holds numbers to them."""
    return {"minimum": low} if high is None else {"minimum": low, "maximum": high}


class ShownAs:
    """Shows a field on the API page as another model than its own, or as a field of that."""

    def __init__(self, model: type[BaseModel], field: str | None = None) -> None:
        self._model = model
        self._field = field

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the schema of the other model, or of its field."""
        shown = handler(self._model.__pydantic_core_schema__)
        if self._field is None:
            return shown
        found: dict[str, Any] = handler.resolve_ref_schema(shown)["properties"][self._field]
        return found


class FirstErrorOnly(FailFast):
    """Stop at the first bad entry of a list: one error says enough, a million say no more."""

    __hash__ = object.__hash__  # Python 3.11 wants the parts of a union hashable


Id = Annotated[
    str | int,
    AfterValidator(_id_text),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH},
                {"type": "integer"},
            ],
            "description": f"1 to {MAX_ID_LENGTH} characters; an integer means its decimal string.",
        }
    ),
]
Payload = dict[str, Any]
Numbers = Annotated[list[float], FirstErrorOnly()]
Names = Annotated[list[str], FirstErrorOnly()]


def _float_array(values: Any) -> Any:  # noqa: ANN401
    """Return numbers in a quarter of the memory that Python's take; what is no list as it is."""
    return np.fromiter(values, np.float64, len(values)) if isinstance(values, list) else values


def _index_array(values: list[int]) -> AnyArray | list[int]:
    """Return integers as an array; those beyond 64 bits as they are, for the index to refuse."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except OverflowError:
        return values


def json_text(value: dict[str, Any]) -> bytes:
    """Return a JSON object as compact text, all of it; ValueError at NaN or an infinity."""
    try:
        text = orjson.dumps(value)
    except TypeError:  # integers beyond 64 bits
        return json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        ).encode()
    if b"null" in text:  # what orjson writes for NaN
        json.dumps(value, allow_nan=False)
    return bytes(memoryview(text))  # what orjson returns keeps the 4 KiB that it was written to


def _finite_text(value: dict[str, Any]) -> bytes:
    """Return an object as it is stored: Python's objects take many times the memory."""
    try:
        return json_text(value)
    except ValueError:
        raise PydanticCustomError(
            "not_finite", "expected finite numbers, got NaN or an infinity"
        ) from None


if TYPE_CHECKING:  # what validation makes of them
    Document = bytes
    Weights = AnyArray
else:
    Document = Annotated[
        dict[str, Any],
        AfterValidator(_finite_text),
        PlainSerializer(from_json, return_type=dict[str, Any], when_used="json"),
    ]
    Weights = Annotated[Numbers, AfterValidator(_float_array)]


class Body(BaseModel):
    """What a client sends: nothing unknown, nothing converted, nothing infinite."""

    without_body: ClassVar[bytes] = b""
    """What a request without a body is read as; nothing is no JSON."""
    instead: ClassVar[str] = ""
    """What to do with more than one body holds."""
    limited: ClassVar[dict[str, str | int]] = {}
    """Most entries of lists, or the setting that says it."""

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class Answer(BaseModel):
    """What a client gets; described here, written by hand on the hot path."""


class SparseBody(Body):
    """A vector by its non-zero coordinates: 0-based, in any order, without duplicates."""

    model_config = examples({"indices": [3, 17], "values": [0.5, -1]}, {"indices": [3, 17]})

    indices: Annotated[list[int], FirstErrorOnly(), AfterValidator(_index_array)] = Field(
        description="Coordinates, from 0 to `dim` - 1, or to 2^31 - 2."
    )
    values: Weights | None = Field(
        default=None, description="A number for each of the `indices`; null: 1 each, a set."
    )

    @property
    def weights(self) -> AnyArray:
        """The number for each of the indices."""
        return np.ones(len(self.indices)) if self.values is None else self.values


class NamedBody(Body):
    """A vector by the names of its non-zero coordinates: in any order, none twice."""

    model_config = examples(
        {"names": ["acid", "ester"], "values": [2, 1]}, {"names": ["acid", "ester"]}
    )

    names: Names = Field(description="1 to 255 characters each.")
    values: Weights | None = Field(
        default=None, description="A number for each of the `names`; null: 1 each, a set."
    )

    @property
    def weights(self) -> AnyArray:
        """The number for each of the names."""
        return np.ones(len(self.names)) if self.values is None else self.values


def _whole_floats(packed: bytes) -> bytes:
    """Return bytes that are of whole numbers."""
    if len(packed) % _FLOAT_BYTES:
        raise PydanticCustomError(
            "invalid_base64",
            "expected {size} bytes for each number, got {length} bytes",
            {"size": _FLOAT_BYTES, "length": len(packed)},
        )
    return packed


class PackedBody(Body):
    """A vector by all its coordinates: float32 numbers, the low byte first, as base64."""

    model_config = ConfigDict(
        val_json_bytes="base64", **examples({"base64": "zczMPQAAAMAAAAAAAABAQA=="})
    )

    base64: Annotated[
        bytes,
        Field(strict=False),  # that the validator decodes text
        AfterValidator(_whole_floats),
        WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
    ] = Field(description="4 bytes a number, `dim` of them.")

    @property
    def weights(self) -> AnyArray:
        """The numbers."""
        return np.frombuffer(self.base64, "<f4").astype(np.float32)


# The first form that fits is the one that is meant: no vector fits two of them.
if TYPE_CHECKING:
    VectorBody = AnyArray | SparseBody | NamedBody | PackedBody
else:
    VectorBody = Annotated[
        Numbers | SparseBody | NamedBody | PackedBody,
        Field(union_mode="left_to_right"),
        AfterValidator(_float_array),
    ]


def vector_of(body: VectorBody) -> ix.OneVector:
    """Return a vector as the index takes it; that its names differ is not checked."""
    if isinstance(body, SparseBody):
        return ix.SparseVector(body.indices, body.weights)
    if isinstance(body, NamedBody):
        return ix.NamedVector(body.names, body.weights)
    return body.weights if isinstance(body, PackedBody) else body


class ItemBody(Body):
    """One item."""

    model_config = examples({"id": "a", "vector": [0.1, -2, 0, 3], "payload": {"label": 3}})

    id: Id = Field(
        default=cast("Id", None),
        json_schema_extra=without_default,
        description="Left out: the collection gives the item the next number not taken.",
    )
    vector: VectorBody = Field(
        description="`dim` numbers, or `indices` and `values`; finite, in float32, not all 0."
    )
    payload: Document | None = Field(
        default=None, description="Any JSON object; returned with hits, and what filters look at."
    )


ShownVector = Numbers | SparseBody
"""As answers have it."""
