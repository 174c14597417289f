"""Bodies made of the index's parameters: fields from type hints, texts from docstrings.

All other bodies are beside their routes. The tests send and check the examples of all.
"""

import inspect
import re
from collections.abc import Collection
from dataclasses import MISSING, fields
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import Discriminator, Field, Tag, WithJsonSchema, create_model

from gcws_search import index as ix
from gcws_search.service.models import Body, Names, Numbers, reference
from gcws_search.service.problems import KIND

_ENTRY: Final = re.compile(r"^(\w+(?:, \w+)*)(?: : .*)?\n((?: {4}.*(?:\n|$))+)", re.MULTILINE)
_MAX_JSON_INTEGER: Final = 2**53


def field_texts(described: type) -> dict[str, str]:
    """Return the texts of a class's fields in its docstring, as the API page shows them."""
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
    """Return the body from which parameters of the index are read; the index checks ranges.

    ``shown``: examples. ``types``: the types of fields whose JSON form differs.
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
    return [hint, *(inner for part in get_args(hint) for inner in _parts(part))]


def _plain(hint: Any) -> Any:  # noqa: ANN401
    if get_origin(hint) is Annotated:
        return get_args(hint)[0]
    parts = [_plain(part) for part in get_args(hint)]
    return parts[0] | parts[1] if type(None) in parts else hint


def _bounds(hint: Any) -> dict[str, Any] | None:  # noqa: ANN401
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
    """Return the tag of the body for a value's ``kind``."""
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

AnyParams = Annotated[
    dict[str, Any],
    WithJsonSchema({"anyOf": [reference(each.__name__) for each in _PARAMS.values()]}),
]


_WORD: Final = f"{KIND}word"
_LIST: Final = f"{KIND}list"
AnyWeights = Annotated[
    Annotated[Numbers, Tag(_LIST)] | Annotated[ix.WeightKind, Tag(_WORD)],
    Discriminator(lambda value: _WORD if isinstance(value, str) else _LIST),
]

if TYPE_CHECKING:
    TransformBody = Any
else:
    TransformBody = body_of(
        ix.Transform,
        "TransformBody",
        {"center": None, "power": 0.5, "normalize": "l1"},
        {"weights": "standard"},
        center=Numbers | None,
        weights=AnyWeights | None,
    )
if TYPE_CHECKING:
    TextBody = Any
else:
    TextBody = body_of(
        ix.TextParams,
        "TextBody",
        {"tokens": "words", "ngrams": [1, 3], "weights": "counts"},
        {"tokens": "characters", "ngrams": [3, 5]},
        ngrams=Annotated[list[int], Field(min_length=2, max_length=2)],
        stop_words=Names,
    )
