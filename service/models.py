"""Models of bodies, and how JSON becomes one of them.

A compiled parser holds Python's lock until it ends, and makes objects that take up to 400 times the
size of the text. 32 MiB parsed at once blocked other threads for 0.5 s (vectors) to 3 s (empty
lists, in 11 times the bytes), and for 25 ms in pieces. So NumPy first counts brackets and commas
outside of strings of a long body, in blocks and without the lock. Long lists at any depth are
removed from the text for the parser, and then read in pieces of whole entries. Numbers go directly
into one array.
"""

from __future__ import annotations

import codecs
import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

import numpy as np
import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError, from_json, to_json

from gcws_search import index as ix
from gcws_search.index import MAX_ID_LENGTH, AnyArray, InvalidFilter, InvalidParameter
from gcws_search.service.errors import MalformedBody
from gcws_search.service.limits import require_at_most, require_count
from gcws_search.service.problems import invalid_request, models_in
from gcws_search.service.settings import Settings

try:
    from simdjson import Parser
except ImportError:  # there is no wheel for this Python version
    Parser = None

MAX_VERSION: Final = 2**63 - 1
_FLOAT_BYTES: Final = 4
Model = TypeVar("Model", bound="Body")
Place = tuple[str | int, ...]

PIECE_BYTES: Final = 1 << 17
"""Parsed in one or two milliseconds."""
LONG_BYTES: Final = 1 << 18
"""A longer body is parsed in a thread."""
_BACK_BYTES: Final = 1 << 10
_MAX_CONTAINERS: Final = 1 << 14
"""Lists and objects that are parsed together: the parser takes 300 bytes for an empty one."""
_SMALL: Final = 16
"""Parts of a piece that has more of them."""
_MAX_DEEP: Final = 200
"""About as deep as the parser itself goes."""
_MAX_MEMBERS: Final = 256
_MAX_OPTION_VALUES: Final = 1 << 16
"""Values of a field that holds no vector, payload or filter."""
_FILTER_WORDS: Final = 100
"""More than a condition has commas and brackets, values apart."""
_QUOTE, _COMMA = ord('"'), ord(",")
_CASE: Final = 32
"""Between square and curly brackets, in ASCII."""
_NAME: Final = re.compile(
    rb'[ \t\r\n]*+("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\r\n]*+:[ \t\r\n]*+', re.DOTALL
)
_PLAIN_HEAD: Final = re.compile(
    rb'(\{(?:"id": ?(?:"[^"\\]*+"|[0-9]++), ?)?)"vector": ?(?=\[|\{"ind)'
)
_BLANKS: Final = re.compile(rb"[ \t\r\n]*+")
_STRICT: Final = ConfigDict(strict=True, allow_inf_nan=False, hide_input_in_errors=True)


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
    """Let the API page show an optional field that cannot be null."""
    del schema["default"]


def bounds(low: int, high: int | None = None) -> dict[str, Any]:
    """Return bounds for the API page alone: the index checks the numbers."""
    return {"minimum": low} if high is None else {"minimum": low, "maximum": high}


def reference(name: str) -> dict[str, Any]:
    """Return the API page's reference to a schema of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


class FirstErrorOnly(FailFast):
    """Stop at the first bad entry of a list: further errors add nothing."""

    __hash__ = object.__hash__  # Python 3.11 requires hashable parts of a union


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
Names = Annotated[list[str], FirstErrorOnly()]


def _float_array(values: Any) -> Any:  # noqa: ANN401
    """Return numbers as an array, a quarter of the size of a list; sparse vectors unchanged."""
    if isinstance(values, PackedBody):
        return np.frombuffer(values.base64, "<f4").astype(np.float32)
    return np.fromiter(values, np.float64, len(values)) if isinstance(values, list) else values


def _index_array(values: list[int]) -> AnyArray | list[int]:
    """Return integers as an array; those beyond 64 bits unchanged, for the index to refuse."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except OverflowError:
        return values


def json_text(value: dict[str, Any]) -> bytes:
    """Return a JSON object as compact text; ValueError for NaN or an infinity."""
    try:
        text = orjson.dumps(value)
    except TypeError:  # integers beyond 64 bits
        return json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        ).encode()
    if b"null" in text:  # orjson writes it for NaN
        json.dumps(value, allow_nan=False)
    return bytes(memoryview(text))  # a copy: orjson's result holds a buffer of 4 KiB


def _finite_text(value: dict[str, Any]) -> bytes:
    """Return an object as stored text: Python's objects take many times the memory."""
    try:
        return json_text(value)
    except ValueError:
        raise PydanticCustomError(
            "not_finite", "expected finite numbers, got NaN or an infinity"
        ) from None


if TYPE_CHECKING:  # the types after validation
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


FilterDocument = Annotated[Document, WithJsonSchema(reference("FilterBody"))]
"""`index` parses filters; ``schemas.json`` describes them."""


class SparseBody(Body):
    """A vector by its non-zero coordinates: 0-based, in any order, without duplicates."""

    model_config = examples({"indices": [3, 17], "values": [0.5, -1]}, {"indices": [3, 17]})

    indices: Annotated[list[int], FirstErrorOnly(), AfterValidator(_index_array)] = Field(
        description="Coordinates, from 0 to `dim` - 1, or to 2^31 - 2."
    )
    values: Weights | None = Field(
        default=None, description="A number for each of the `indices`; null: 1 each, a set."
    )


class NamedBody(Body):
    """A vector by the names of its non-zero coordinates: in any order, without duplicates."""

    model_config = examples(
        {"names": ["acid", "ester"], "values": [2, 1]}, {"names": ["acid", "ester"]}
    )

    names: Names = Field(description="1 to 255 characters each.")
    values: Weights | None = Field(
        default=None, description="A number for each of the `names`; null: 1 each, a set."
    )


def _whole_floats(packed: bytes) -> bytes:
    if len(packed) % _FLOAT_BYTES:
        raise PydanticCustomError(
            "invalid_base64",
            "expected {size} bytes for each number, got {length} bytes",
            {"size": _FLOAT_BYTES, "length": len(packed)},
        )
    return packed


class PackedBody(Body):
    """A vector by all its coordinates: little-endian float32 numbers in base64."""

    model_config = ConfigDict(
        val_json_bytes="base64", **examples({"base64": "zczMPQAAAMAAAAAAAABAQA=="})
    )

    base64: Annotated[
        bytes,
        Field(strict=False),  # decoded by the validator
        AfterValidator(_whole_floats),
        WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
    ] = Field(description="4 bytes per number, `dim` numbers.")


# The first form that fits is used: no vector fits two of them.
class TextPointBody(Body):
    """A text instead of a vector, in a collection of texts."""

    model_config = examples({"text": "large tables of numbers"})

    text: str = Field(description="The text.")


def _array_or_text(point: Any) -> Any:  # noqa: ANN401
    """Return a point as `_float_array` does, a text as the index expects it."""
    return ix.Text(point.text) if isinstance(point, TextPointBody) else _float_array(point)


if TYPE_CHECKING:
    VectorBody = AnyArray | SparseBody | NamedBody
    PointBody = VectorBody | ix.Text
else:
    VectorBody = Annotated[
        Numbers | SparseBody | NamedBody | PackedBody,
        Field(union_mode="left_to_right"),
        AfterValidator(_float_array),
    ]
    PointBody = Annotated[
        Numbers | SparseBody | NamedBody | PackedBody | TextPointBody,
        Field(union_mode="left_to_right"),
        AfterValidator(_array_or_text),
    ]


def point_of(body: PointBody) -> ix.OneVector:
    """Return a vector, or a text, as the index expects it; see `vector_of`."""
    return body if isinstance(body, ix.Text) else vector_of(body)


def weights_of(body: SparseBody | NamedBody) -> AnyArray:
    """Return the number for each of the indices or names."""
    count = len(body.indices if isinstance(body, SparseBody) else body.names)
    return np.ones(count) if body.values is None else body.values


def vector_of(body: VectorBody) -> ix.AnyArray | ix.SparseVector:
    """Return a vector as the index expects it; duplicate names are not checked."""
    if isinstance(body, SparseBody):
        return ix.SparseVector(body.indices, weights_of(body))
    if isinstance(body, NamedBody):
        return ix.named_vector(body.names, weights_of(body))
    return body


class ItemBody(Body):
    """One item."""

    model_config = examples({"id": "a", "vector": [0.1, -2, 0, 3], "payload": {"label": 3}})

    id: Id = Field(
        default=cast("Id", None),
        json_schema_extra=without_default,
        description="If omitted, the collection gives the item the next free number.",
    )
    vector: VectorBody = Field(
        default=cast("VectorBody", None),
        json_schema_extra=without_default,
        description="`dim` numbers, or `indices` and `values`; finite, in float32, not all 0.",
    )
    text: str = Field(
        default=cast("str", None),
        json_schema_extra=without_default,
        description="In a collection of texts, instead of `vector`. Filters see it as the key "
        "`text` of the payload.",
    )
    payload: Document | None = Field(
        default=None,
        description="Any JSON object; returned with hits, and used by filters. Beside a `text` "
        "it must not have the key `text`.",
    )
    version: int | None = Field(
        default=None, description="As shown by an item; ignored: use `if_version` to check it."
    )

    expires: str | float | None = Field(
        default=None,
        description="A time such as `2027-01-01T00:00:00Z`, or seconds after the write: from "
        "then on the item is not found, and it is deleted. Omitted or null: after "
        "the `ttl` of the collection, or never.",
    )

    def point(self) -> PointBody:
        """Return the vector, or the text; InvalidVector unless it has one of both."""
        if (self.vector is None) == (self.text is None):
            got = "neither" if self.vector is None else "both"
            expected = "one of 'vector' and 'text'"
            raise ix.InvalidVector(expected=expected, got=got, loc=("vector",))
        return self.vector if self.text is None else ix.Text(self.text)

    def stored_payload(self) -> bytes | None:
        """Return the payload, including the text if there is one."""
        return self.payload if self.text is None else ix.with_text(self.payload, self.text)


class PutItemBody(ItemBody):
    """One item, which replaces a stored one of the same id."""

    if_version: int | None = Field(
        default=None,
        ge=0,
        le=MAX_VERSION,
        description="Store it only if the item of this id has this version, or 0: does not "
        "exist; else 409 `version_conflict`, and nothing of the body is stored.",
    )


def require_short_vector(vector: PointBody, limits: Settings, *loc: str | int) -> None:
    """Raise InvalidVector if a vector or a text exceeds its limit of numbers or characters."""
    if isinstance(vector, ix.Text):
        if len(vector.text) > limits.max_payload_bytes:
            raise ix.InvalidVector(
                expected=f"at most {limits.max_payload_bytes} characters",
                got=str(len(vector.text)),
                loc=loc,
            )
        return
    count = len(vector if isinstance(vector, np.ndarray) else weights_of(vector))
    if count > limits.max_nonzeros:
        require_count(count, limits, *loc)


# Reading


def parse(model: type[Model], body: bytes, limits: Settings) -> Model:
    """Return a body as its model: compiled code parses and checks JSON.

    A byte order mark of UTF-8 is skipped; other encodings are refused by name.
    """
    body = body.removeprefix(codecs.BOM_UTF8) or model.without_body
    if not body:
        raise MalformedBody("expected a JSON object, got an empty body")
    try:
        if len(body) > LONG_BYTES:
            return parse_in_pieces(model, body, limits)
        found = _parse_around_vector(model, body) or model.model_validate_json(body)
    except (ValidationError, MalformedBody) as error:
        encoding = json.detect_encoding(body)
        if encoding != "utf-8":
            raise MalformedBody(f"expected JSON in UTF-8, got {encoding.upper()}") from None
        raise (
            error if isinstance(error, MalformedBody) else invalid_request(error, model)
        ) from None
    for name, limit in model.limited.items():
        count = len(getattr(found, name) or ())
        if count > (limit if isinstance(limit, int) else getattr(limits, limit)):
            require_at_most(count, list_limit(model, name, limits), name)
    return found


def _parse_around_vector(model: type[Model], body: bytes) -> Model | None:
    """Parse a body that begins with a numeric vector, or an id and one; None for any other.

    The numbers become arrays without Python objects: 784 of them in 7 µs instead of 26. The
    validator reads the rest, and the whole body if anything is irregular.
    """
    head = _PLAIN_HEAD.match(body)
    if head is None or Parser is None:
        return None
    start = head.end()
    is_list = body[start : start + 1] == b"["
    end = body.find(b"]" if is_list else b"}", start) + 1
    before, text, behind = head[1], body[start:end], body[end:]
    if behind.startswith(b"}"):
        before = before.rstrip(b", ")
    elif behind.startswith((b',"', b', "')):
        behind = behind[1:]
    else:
        return None
    try:
        parsed = Parser().parse(text)
        vector = np.frombuffer(parsed.as_buffer(of_type="d")) if is_list else _sparse(parsed, text)
        found = model.model_validate_json(before + behind)
        if "vector" in found.model_fields_set:  # it is there twice
            return None
        found.vector = vector  # type: ignore[attr-defined]
    except (KeyError, ValueError, TypeError, RuntimeError):  # ours, the parser's, or pydantic's
        return None
    return found


def _sparse(parsed: Any, text: bytes) -> SparseBody:  # noqa: ANN401  # of the parser
    """Return the indices and values of a parsed object; raise for any other content."""
    if len(parsed) != 2 or text.count(b"[") != 2:  # noqa: PLR2004  # it flattens lists in lists
        raise ValueError
    indices = np.frombuffer(parsed["indices"].as_buffer(of_type="i"), np.int64)
    values = np.frombuffer(parsed["values"].as_buffer(of_type="d"))
    return SparseBody.model_construct(indices=indices, values=values)


def list_limit(model: type[Body], name: str, settings: Settings) -> int:
    """Return the limit of entries of a body's list, which is among its ``limited``."""
    limit = model.limited[name]
    return limit if isinstance(limit, int) else int(getattr(settings, limit))


def parse_in_pieces(
    model: type[Model], body: bytes, limits: Settings, *, piece_bytes: int = PIECE_BYTES
) -> Model:
    """Return a body as its model: count its parts first, then read it in pieces."""
    found: Model = _Reader(model, body, limits, piece_bytes).read()
    return found


class _Kind(NamedTuple):
    """The type of a value: its validator, its models, and the type of its entries."""

    adapter: TypeAdapter[Any]
    models: tuple[type[BaseModel], ...]
    takes_lists: bool
    entries: _Kind | None

    @classmethod
    def of(cls, annotation: Any, metadata: Any = None) -> _Kind:  # noqa: ANN401
        is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
        is_plain = is_model or metadata is None
        whole: Any = annotation if is_plain else Annotated[annotation, metadata]
        adapter = TypeAdapter[Any](whole, config=None if is_model else _STRICT)
        models = tuple(models_in(annotation))
        entry = entry_annotation(annotation)
        has_parts = entry is not None and bool([*models_in(entry)])
        try:
            adapter.validate_json(b"[]")
        except ValidationError:
            return cls(adapter, models, False, None)
        return cls(adapter, models, True, cls.of(entry) if has_parts else None)


def _are_closed(models: Sequence[type[BaseModel]]) -> bool:
    """Whether objects of these models have no other fields."""
    closed = [model.model_config.get("extra") == "forbid" for model in models]
    return bool(closed) and all(closed)


def entry_annotation(annotation: Any) -> Any:  # noqa: ANN401
    """Return the type of the entries of a list; None if an annotation has no list."""
    if get_origin(annotation) is list:
        return get_args(annotation)[0]
    found = (entry_annotation(part) for part in get_args(annotation))
    return next((entry for entry in found if entry is not None), None)


@lru_cache
def _kind_of_field(model: type[BaseModel], name: str) -> _Kind:
    info = model.model_fields[name]
    return _Kind.of(info.annotation, info)


_kind_of_model: Final = lru_cache(_Kind.of)


class _Reader:
    def __init__(self, model: type[Body], body: bytes, limits: Settings, piece_bytes: int) -> None:
        self._model = model
        self._body = body
        self._limits = limits
        self._piece_bytes = piece_bytes

    def read(self) -> Any:  # noqa: ANN401
        body, kind = self._body, _kind_of_model(self._model)
        start = _skip_blanks(body, 0)
        try:
            match body[start : start + 1]:
                case b"{":
                    return self._read_object(kind, start, len(body), ())
                case b"[":
                    return self._refuse_list()
            return self._validate(kind, body, ())
        except ValueError as error:
            raise MalformedBody(f"Invalid JSON: {error}") from None

    def _refuse_list(self) -> Any:  # noqa: ANN401
        count = outline_value(self._body).count(self._body)
        try:
            return self._model.model_validate([None] * count)
        except ValidationError as error:
            raise invalid_request(error, self._model) from None

    def _read_entry(self, kind: _Kind | None, start: int, stop: int, place: Place) -> Any:  # noqa: ANN401
        """Return a long entry of a list; None if it must be read at once."""
        start = _skip_blanks(self._body, start)
        if kind is not None and _are_closed(kind.models) and self._body[start : start + 1] == b"{":
            return self._read_object(kind, start, stop, place)
        if kind is not None and kind.takes_lists and self._body[start : start + 1] == b"[":
            value = outline_value(self._body, start, stop, piece_bytes=self._piece_bytes)
            return self._read_list(kind, value, place)
        self._require_size(start, stop, place)
        return None

    def _read_object(self, kind: _Kind, start: int, stop: int, place: Place) -> Any:  # noqa: ANN401
        """Return an object of models: parse it without its long lists, then read these into it."""
        lists: list[tuple[Place, Span]] = []
        text = self._skeleton(kind.models, start, stop, place, lists)
        found = self._validate(kind, text, place)
        for where, member in lists:
            *outer, name = where[len(place) :]
            holder: Any = found
            for step in outer:
                holder = getattr(holder, str(step))
            model: type[BaseModel] = type(holder)
            inner = _kind_of_field(model, str(name))
            setattr(holder, str(name), self._read_list(inner, member, where))
        return found

    def _skeleton(
        self,
        models: Sequence[type[BaseModel]],
        start: int,
        stop: int,
        place: Place,
        lists: list[tuple[Place, Span]],
    ) -> bytes:
        """Return an object's text: long lists go to ``lists``, unknown members become null."""
        found = outline_object(self._body, start, stop, piece_bytes=self._piece_bytes)
        members = {member.name: member for member in found}
        if not place:
            for name in self._model.limited.keys() & members.keys():
                limit = list_limit(self._model, name, self._limits)
                require_at_most(members[name].count(self._body), limit, name)
        parts = []
        for name, member in members.items():
            kinds = [_kind_of_field(each, name) for each in models if name in each.model_fields]
            value = self._without_lists(kinds, member, (*place, name), lists)
            parts.append(b"%s:%s" % (to_json(name), value))
        return b"{%s}" % b",".join(parts)

    def _without_lists(
        self, kinds: Sequence[_Kind], member: Span, place: Place, lists: list[tuple[Place, Span]]
    ) -> bytes:
        """Return the text of a member, which may have several types, without its long lists."""
        if not kinds:
            return b"null"
        start, stop = member.start, member.stop
        if stop - start > self._piece_bytes:
            if self._body[start : start + 1] == b"[" and any(kind.takes_lists for kind in kinds):
                lists.append((place, member))
                return b"[]"
            models = [model for kind in kinds for model in kind.models]
            if _are_closed(models) and self._body[start : start + 1] == b"{":
                return self._skeleton(models, start, stop, place, lists)
            self._require_size(start, stop, place)
        return self._body[start:stop]

    def _read_list(self, kind: _Kind, member: Span, place: Place) -> Any:  # noqa: ANN401
        count = member.count(self._body)
        if len(place) > 1 and place[-1] in ("indices", "values", "names", "center"):
            require_count(count, self._limits, *place[:-1])
        found: Any = None
        for piece in self._pieces(member):
            part = self._read_piece(kind, piece, place)
            if isinstance(part, np.ndarray):
                if found is None:
                    require_count(count, self._limits, *place)
                    found = np.empty(count, part.dtype)
                if isinstance(found, np.ndarray):
                    found[piece.first : piece.first + piece.entries] = part
                    continue
                part = part.tolist()
            elif isinstance(found, np.ndarray):  # integers beyond 64 bits
                found = found[: piece.first].tolist()
            found = part if found is None else found
            if found is not part:
                found += part
        return found

    def _pieces(self, member: Span) -> Iterator[Piece]:
        """Yield the entries of a list in pieces, smaller ones if they have many containers."""
        for piece in member.pieces(self._body):
            text = b"[%s]" % self._body[piece.start : piece.stop]
            if piece.entries == 1 or text.count(b"[") + text.count(b"{") <= _MAX_CONTAINERS:
                yield piece
                continue
            shift = piece.start - 1
            for part in outline_value(text, piece_bytes=self._piece_bytes // _SMALL).pieces(text):
                first, start, stop = piece.first + part.first, part.start + shift, part.stop + shift
                yield Piece(first, part.entries, start, stop)

    def _read_piece(self, kind: _Kind, piece: Piece, place: Place) -> Any:  # noqa: ANN401
        if piece.entries == 1 and piece.stop - piece.start > self._piece_bytes:
            inner = (*place, piece.first)
            entry = self._read_entry(kind.entries, piece.start, piece.stop, inner)
            if entry is not None:
                return [entry]
        text = b"[%s]" % self._body[piece.start : piece.stop]
        return self._validate(kind, text, place, piece.first)

    def _validate(self, kind: _Kind, text: bytes, place: Place, first: int | None = None) -> Any:  # noqa: ANN401
        try:
            return kind.adapter.validate_json(text)
        except ValidationError as error:
            raise invalid_request(error, self._model, place=place, first=first) from None

    def _require_size(self, start: int, stop: int, place: Place) -> None:
        """Raise if a value that is read at once exceeds the limit of its parts."""
        containers = values = 0
        for _, codes, _ in _scan(self._body, start, stop, self._piece_bytes):
            containers += int(np.count_nonzero(codes | _CASE == ord("{")))
            values += int(np.count_nonzero(codes | _CASE != ord("}")))
        limits, names = self._limits, set(place)
        is_filter = "filter" in names
        limit = _MAX_OPTION_VALUES
        if is_filter:
            limit = limits.max_filter_values + _FILTER_WORDS * limits.max_filter_conditions
        elif "payload" in names:
            limit = limits.max_payload_bytes
        if values > limit:
            kind = InvalidFilter if is_filter else InvalidParameter
            raise kind(expected=f"at most {limit} values", got=str(values), loc=place)
        limit = max(limits.max_payload_bytes // 2, 1 << 18)
        if containers > limit:
            expected = f"at most {limit} lists and objects"
            raise InvalidParameter(expected=expected, got=str(containers), loc=place)


class Piece(NamedTuple):
    """Entries of a list: the number of the first, how many, and their range in the text."""

    first: int
    entries: int
    start: int
    stop: int


class Span(NamedTuple):
    """A member of an object, or a single value, at start to stop of the text.

    For a list also the number of commas between its entries, and the places of some commas, at
    which it is cut, each with the number of commas up to it.
    """

    name: str
    start: int
    stop: int
    commas: int = 0
    cuts: Sequence[tuple[int, int]] = ()

    def count(self, text: bytes) -> int:
        """Return the number of a list's entries."""
        is_empty = not self.commas and _skip_blanks(text, self.start + 1) >= self.stop - 1
        return 0 if is_empty else self.commas + 1

    def pieces(self, text: bytes) -> Iterator[Piece]:
        """Yield the entries of a list in pieces; an entry longer than a piece is one by itself."""
        first, last = (self.start, 0), (self.stop - 1, self.count(text))
        for (comma, number), (stop, until) in pairwise((first, *self.cuts, last)):
            if self.commas and _skip_blanks(text, comma + 1) >= stop:
                raise ValueError(f"expected a value, got none between bytes {comma} and {stop}")
            yield Piece(number, until - number, comma + 1, stop)


def outline_object(
    text: bytes, start: int = 0, stop: int | None = None, *, piece_bytes: int = PIECE_BYTES
) -> list[Span]:
    """Return the members of an object, without looking into their values.

    Lists are cut into pieces of at most ``piece_bytes``, or single longer entries. ValueError: the
    text is not JSON.
    """
    stop = len(text) if stop is None else stop
    borders: list[tuple[int, int]] = []  # commas between members, and the end of the object
    cuts: dict[int, int] = {}
    commas = 0
    for places, codes, depths in _scan(text, start, stop, piece_bytes):
        inner = np.flatnonzero((codes == _COMMA) & (depths == 2))  # noqa: PLR2004  # in a member
        outer = np.flatnonzero((depths < 1) | ((codes == _COMMA) & (depths == 1)))
        if len(borders) + len(outer) > _MAX_MEMBERS:
            raise ValueError(f"expected at most {_MAX_MEMBERS} members of an object, got more")
        counts = commas + np.searchsorted(inner, outer)
        borders += zip(places[outer].tolist(), counts.tolist(), strict=True)
        commas = _add_cuts(cuts, places[inner], commas)
    begin = _skip_blanks(text, start)
    signs = b"".join(text[place : place + 1] for place, _ in borders)
    end = borders[-1][0] + 1 if borders else stop
    is_one = text[begin : begin + 1] == b"{" and signs == b"," * (len(borders) - 1) + b"}"
    if not is_one or _skip_blanks(text, end) < stop:
        raise ValueError("expected one object, got another bracket or comma, or more after it")
    if len(borders) == 1 and _skip_blanks(text, begin + 1) == end - 1:
        return []
    marks = [*cuts.items()]
    return [
        _member(text, before, behind, marks) for before, behind in pairwise([(begin, 0), *borders])
    ]


def _member(
    text: bytes, before: tuple[int, int], behind: tuple[int, int], marks: list[tuple[int, int]]
) -> Span:
    """Return the member between two commas, or brackets, with the comma counts of its lists."""
    found = _NAME.match(text, before[0] + 1, behind[0])
    start = found.end() if found else behind[0]
    stop = _skip_blanks_back(text, start, behind[0])
    is_list = text[start : start + 1] == b"["
    if found is None or start == stop or (is_list and text[stop - 1 : stop] != b"]"):
        raise ValueError(f"expected a name and a value before byte {behind[0]}")
    name = from_json(found[1])
    if not is_list:
        return Span(name, start, stop)
    ours = marks[bisect_left(marks, (start,)) : bisect_left(marks, (stop,))]
    cuts = [(place, number - before[1]) for place, number in ours]
    return Span(name, start, stop, behind[1] - before[1], cuts)


def outline_value(
    text: bytes, start: int = 0, stop: int | None = None, *, piece_bytes: int = PIECE_BYTES
) -> Span:
    """Return a text that is one list, as a member without a name."""
    stop = len(text) if stop is None else stop
    cuts: dict[int, int] = {}
    commas = ends = 0
    for places, codes, depths in _scan(text, start, stop, piece_bytes):
        ends += int(np.count_nonzero(depths < 1))
        commas = _add_cuts(cuts, places[(codes == _COMMA) & (depths == 1)], commas)
    start = _skip_blanks(text, start)
    stop = _skip_blanks_back(text, start, stop)
    if ends != 1 or text[stop - 1 : stop] != b"]":
        raise ValueError("expected one list, got another bracket or comma")
    return Span("", start, stop, commas, [*cuts.items()])


def _add_cuts(cuts: dict[int, int], places: AnyArray, before: int) -> int:
    """Cut lists at the first and the last comma of a block; return the number of commas so far.

    So a piece lies within a block, or is the one entry between two commas.
    """
    count = before + len(places)
    if len(places):
        cuts[int(places[0])] = before + 1
        cuts[int(places[-1])] = count
    return count


def _skip_blanks(text: bytes, start: int) -> int:
    found = _BLANKS.match(text, start)
    return start if found is None else found.end()


def _skip_blanks_back(text: bytes, start: int, stop: int) -> int:
    """Return the start of the blanks before ``stop``."""
    while stop > start and text[stop - 1] in b" \t\r\n":
        near = max(start, stop - _BACK_BYTES)
        stop = near + len(text[near:stop].rstrip(b" \t\r\n"))
    return stop


def _scan(
    text: bytes, start: int, stop: int, block_bytes: int
) -> Iterator[tuple[AnyArray, AnyArray, AnyArray]]:
    """Yield the brackets and commas of a value, outside of strings, in blocks.

    Each has its place, its code, and the number of open brackets after it.
    """
    inside, is_escaped, depth = 0, False, 0
    step = max(1, block_bytes)
    for first in range(start, stop, step):
        block = text[first : min(first + step, stop)]
        if is_escaped:
            block = b"." + block[1:]
        is_escaped = False
        if b"\\" in block:
            block = block.replace(rb"\\", b"..").replace(rb"\"", b"..")
            is_escaped = block.endswith(b"\\")
        codes = np.frombuffer(block, np.uint8)
        quotes = np.add.accumulate((codes == _QUOTE).view(np.uint8), dtype=np.uint8)
        quotes += np.uint8(inside)  # modulo 256
        inside = int(quotes[-1]) & 1
        folded = codes | _CASE
        is_bracket = (folded == ord("{")) | (folded == ord("}"))
        places = np.flatnonzero((is_bracket | (codes == _COMMA)) & (quotes & 1 == 0))
        codes, folded = codes[places], folded[places]
        steps = (folded == ord("{")).view(np.int8) - (folded == ord("}")).view(np.int8)
        depths = np.cumsum(steps, dtype=np.int32) + np.int32(depth)
        if len(depths):
            depth = int(depths[-1])
            if depths.max() > _MAX_DEEP:
                raise ValueError(f"more than {_MAX_DEEP} levels")
            yield places + first, codes, depths
    if inside:
        raise ValueError("a string without its closing quote")
    if depth:
        raise ValueError("expected one value, got an end within it")
