"""Filters over payloads: a subset of Qdrant's, parsed once, evaluated to a mask over rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, UInt8s
from gcws_search.index.contracts.errors import InvalidFilter, Loc
from gcws_search.index.payload.columns import Column, Columns, tag, untag

MAX_DEPTH: Final = 8
"""Filters within filters."""
MAX_CONDITIONS: Final = 256
"""Conditions of one filter, those of the filters within it included."""
MAX_KEY_LENGTH: Final = 1024
"""Characters."""
MAX_KEY_PARTS: Final = 32
"""Objects within objects that one key can reach into."""

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_CLAUSES: Final = ("must", "should", "must_not")
_SHOWN_CHARACTERS: Final = 40
"""Of what was sent, in an error."""


@dataclass(frozen=True, slots=True)
class Match:
    """The key holds one of these scalars, or a list with one of them.

    key: nested keys are joined by dots.
    values: tagged by `index.payload.columns.tag`: True is not 1, and 1 is 1.0.
    """

    key: str
    values: tuple[Hashable, ...]

    def mask(self, columns: Columns, n: int) -> UInt8s:
        """Return (n,) ones where the condition holds."""
        column = columns.column(self.key, n)
        wanted = np.zeros(len(column.numbers), np.bool_)
        for value in self.values:
            code = column.code_of.get(value)
            if code is not None and code < len(wanted):
                wanted[code] = True
        return column.rows_where(wanted, n)

    def to_dict(self) -> dict[str, Any]:
        """Return the document that it is parsed from."""
        return {"key": self.key, "match": {"any": [*map(untag, self.values)]}}


@dataclass(frozen=True, slots=True)
class Range:
    """The key holds a number, or a list with a number, within all these bounds.

    bounds: "gt", "gte", "lt" or "lte", and the bound.
    """

    key: str
    bounds: tuple[tuple[str, float], ...]

    def mask(self, columns: Columns, n: int) -> UInt8s:
        """Return (n,) ones where the condition holds."""
        column = columns.column(self.key, n)
        wanted = ~np.isnan(column.numbers)
        for word, bound in self.bounds:
            wanted &= _compare(_COMPARISONS[word], column, bound)
        return column.rows_where(wanted, n)

    def to_dict(self) -> dict[str, Any]:
        """Return the document that it is parsed from."""
        return {"key": self.key, "range": dict(self.bounds)}


def _compare(holds: Callable[[Any, Any], Any], column: Column, bound: float) -> AnyArray:
    """Return (distinct,) bool, exact also for integers that float64 does not hold."""
    rounded = float(bound)
    wanted = cast("AnyArray", holds(column.numbers, rounded))
    if rounded != bound:
        wanted[column.numbers == rounded] = holds(rounded, bound)
    for code in column.inexact:
        if code < len(wanted):
            wanted[code] = holds(column.values[code], bound)
    return wanted


@dataclass(frozen=True, slots=True)
class Filter:
    """All of ``must`` hold, none of ``must_not``, and one of ``should`` where there are any."""

    must: tuple[Condition, ...] = ()
    should: tuple[Condition, ...] = ()
    must_not: tuple[Condition, ...] = ()

    def mask(self, columns: Columns, n: int) -> UInt8s:
        """Return (n,) ones where the filter holds for a row's payload; not to be written to."""
        return columns.remember(self, n, lambda: self._evaluate(columns, n))

    def _evaluate(self, columns: Columns, n: int) -> UInt8s:
        mask = np.zeros(n, np.uint8) if self.should else np.ones(n, np.uint8)
        for condition in self.should:
            mask |= _mask_of(condition, columns, n)
        for condition in self.must:
            mask &= _mask_of(condition, columns, n)
        for condition in self.must_not:
            mask &= _mask_of(condition, columns, n) ^ 1
        return mask

    @property
    def has_conditions(self) -> bool:
        """Whether it holds a condition: without any, every payload passes."""
        parts = (*self.must, *self.should, *self.must_not)
        return any(not isinstance(each, Filter) or each.has_conditions for each in parts)

    def require_conditions(self) -> None:
        """Raise InvalidFilter unless it holds a condition: what is deleted must be named."""
        if not self.has_conditions:
            raise InvalidFilter(
                expected="at least one condition", got="an empty filter", loc=("filter",)
            )

    def to_dict(self) -> dict[str, Any]:
        """Return a document that `parse_filter` makes the same filter of."""
        clauses = zip(_CLAUSES, (self.must, self.should, self.must_not), strict=True)
        return {name: [each.to_dict() for each in clause] for name, clause in clauses if clause}


Condition = Match | Range | Filter


def _mask_of(condition: Condition, columns: Columns, n: int) -> UInt8s:
    if isinstance(condition, Filter):
        return condition._evaluate(columns, n)
    return condition.mask(columns, n)


def parse_filter(
    document: object,
    *,
    max_depth: int = MAX_DEPTH,
    max_conditions: int = MAX_CONDITIONS,
    max_values: float = math.inf,
) -> Filter:
    """Return the filter a JSON document describes.

    Parameters
    ----------
    document : dict
        Any of ``must``, ``should``, ``must_not``, each a condition or a list of conditions. A
        condition is ``{"key", "match": {"value"} | {"any": [...]}}``,
        ``{"key", "range": {"gt", "gte", "lt", "lte"}}``, or a filter.
    max_depth, max_conditions, max_values : int
        Filters within filters; conditions in all; values of these in all.

    Raises
    ------
    InvalidFilter
        With the place in the document.
    """
    return _Parser(max_depth, max_conditions, max_values).filter(document, (), 1)


class _Parser:
    def __init__(self, max_depth: int, max_conditions: int, max_values: float) -> None:
        self._max_depth = max_depth
        self._max_conditions = max_conditions
        self._max_values = max_values
        self._values = 0
        self._conditions = 0

    def filter(self, document: object, loc: Loc, depth: int) -> Filter:
        if depth > self._max_depth:
            raise InvalidFilter(
                expected=f"filters at most {self._max_depth} deep", got="a deeper one", loc=loc
            )
        clauses = _fields(document, _CLAUSES, loc)
        return Filter(
            **{name: self._clause(clauses[name], (*loc, name), depth) for name in clauses}
        )

    def _clause(self, document: object, loc: Loc, depth: int) -> tuple[Condition, ...]:
        if document is None:
            return ()
        if isinstance(document, dict):
            return (self._condition(document, loc, depth),)
        if not isinstance(document, list):
            raise InvalidFilter(expected="a list of conditions", got=_word(document), loc=loc)
        return tuple(
            self._condition(item, (*loc, place), depth) for place, item in enumerate(document)
        )

    def _condition(self, document: object, loc: Loc, depth: int) -> Condition:
        self._conditions += 1
        if self._conditions > self._max_conditions:
            raise InvalidFilter(expected=f"at most {self._max_conditions} conditions", got="more")
        if not isinstance(document, dict):
            raise InvalidFilter(expected="a condition or a filter", got=_word(document), loc=loc)
        if "key" not in document:
            if document and not any(clause in document for clause in _CLAUSES):
                raise InvalidFilter(
                    expected="a condition with a 'key', or a filter", got="neither", loc=loc
                )
            return self.filter(document, loc, depth + 1)
        fields = _fields(document, ("key", "match", "range"), loc)
        key = fields["key"]
        if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY_LENGTH:
            raise InvalidFilter(
                expected=f"1 to {MAX_KEY_LENGTH} characters", got=_word(key), loc=(*loc, "key")
            )
        if key.count(".") >= MAX_KEY_PARTS:
            raise InvalidFilter(
                expected=f"at most {MAX_KEY_PARTS} parts", got=_word(key), loc=(*loc, "key")
            )
        if (fields.get("match") is None) == (fields.get("range") is None):
            got = "neither" if fields.get("match") is None else "both"
            raise InvalidFilter(expected="either 'match' or 'range'", got=got, loc=loc)
        if fields.get("match") is not None:
            return Match(key, self._match(fields["match"], (*loc, "match")))
        return Range(key, _bounds(fields["range"], (*loc, "range")))

    def _match(self, document: object, loc: Loc) -> tuple[Hashable, ...]:
        fields = _fields(document, ("value", "any"), loc)
        if len(fields) != 1:
            got = "both" if fields else "neither"
            raise InvalidFilter(expected="either 'value' or 'any'", got=got, loc=loc)
        if "value" in fields:
            return (_scalar(fields["value"], (*loc, "value")),)
        values = fields["any"]
        if not isinstance(values, list):
            raise InvalidFilter(expected="a list", got=_word(values), loc=(*loc, "any"))
        self._values += len(values)
        if self._values > self._max_values:
            raise InvalidFilter(expected=f"at most {self._max_values} values", got="more")
        return tuple(_scalar(value, (*loc, "any", place)) for place, value in enumerate(values))


def _fields(document: object, known: tuple[str, ...], loc: Loc) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InvalidFilter(expected="a JSON object", got=_word(document), loc=loc)
    for name in document:
        if name not in known:
            raise InvalidFilter(
                expected=f"only {', '.join(map(repr, known))}", got=repr(name), loc=loc
            )
    return document


def _scalar(value: object, loc: Loc) -> Hashable:
    if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return tag(value)
    raise InvalidFilter(expected="a string, a number, true or false", got=_word(value), loc=loc)


def _bounds(document: object, loc: Loc) -> tuple[tuple[str, float], ...]:
    fields = _fields(document, tuple(_COMPARISONS), loc)
    bounds = tuple(
        (word, _number(bound, (*loc, word))) for word, bound in fields.items() if bound is not None
    )
    if not bounds:
        raise InvalidFilter(expected="at least one of gt, gte, lt, lte", got="none", loc=loc)
    return bounds


def _number(value: object, loc: Loc) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            if math.isfinite(value):
                return value
        except OverflowError:
            pass
    raise InvalidFilter(expected="a finite number", got=_word(value), loc=loc)


def _word(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."
