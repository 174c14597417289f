"""Bodies and answers made of the index's own types: fields by their hints, words by docstrings."""

import inspect
import re
from collections.abc import Collection
from dataclasses import MISSING, fields
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from pydantic import Field, create_model

from gcws_search import index as ix
from gcws_search.service.models import Body

_ENTRY: Final = re.compile(r"^(\w+(?:, \w+)*)(?: : .*)?\n((?: {4}.*(?:\n|$))+)", re.MULTILINE)
_MAX_JSON_INTEGER: Final = 2**53


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

    Parameters
    ----------
    name : str
        Of the body on the API page.
    shown : dict
        Examples.
    leave_out : collection of str
        Fields that no client sends.
    types : type
        Of fields that JSON writes otherwise.
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
