"""What bodies are made of: strictness, examples, ids, vectors."""

from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError

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


def bounds(low: int, high: int | None = None) -> dict[str, Any]:
    """Return bounds for the API page alone: it is the index that holds numbers to them."""
    return {"minimum": low} if high is None else {"minimum": low, "maximum": high}


class ShownAs:
    """Shows a field on the API page as another model than the one that reads it.

    Parameters
    ----------
    model : type
    field : str or None
        Only as this field of the model.
    """

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
Numbers = Annotated[list[float], FirstErrorOnly()]
Indices = Annotated[list[int], FirstErrorOnly()]
Names = Annotated[list[str], FirstErrorOnly()]
Payload = dict[str, Any]


class Body(BaseModel):
    """What a client sends: nothing unknown, nothing converted, nothing infinite."""

    without_body: ClassVar[bytes] = b""
    """What a request without a body is read as; nothing is no JSON."""
    instead: ClassVar[str] = ""
    """What to do with more than one body holds."""

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class Answer(BaseModel):
    """What a client gets; described here, written by hand on the hot path."""


class SparseBody(Body):
    """A vector by its non-zero coordinates: 0-based, in any order, without duplicates."""

    model_config = examples(
        {"indices": [3, 17], "values": [0.5, -1]},
        {"indices": [3, 17]},
    )

    indices: Indices = Field(description="Coordinates, from 0 to `dim` - 1, or to 2^31 - 2.")
    values: Numbers | None = Field(
        default=None, description="A number for each of the `indices`; null: 1 each, a set."
    )

    @property
    def weights(self) -> list[float]:
        """The number for each of the indices."""
        return [1.0] * len(self.indices) if self.values is None else self.values


class NamedBody(Body):
    """A vector by the names of its non-zero coordinates: in any order, none twice."""

    model_config = examples(
        {"names": ["acid", "ester"], "values": [2, 1]},
        {"names": ["acid", "ester"]},
    )

    names: Names = Field(description="1 to 255 characters each.")
    values: Numbers | None = Field(
        default=None, description="A number for each of the `names`; null: 1 each, a set."
    )

    @property
    def weights(self) -> list[float]:
        """The number for each of the names."""
        return [1.0] * len(self.names) if self.values is None else self.values


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
VectorBody = Annotated[
    Numbers | SparseBody | NamedBody | PackedBody, Field(union_mode="left_to_right")
]
ShownVector = Numbers | SparseBody
"""As answers have it."""
