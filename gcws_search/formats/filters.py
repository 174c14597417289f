"""Conditions on payloads, in full or in short."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_CLAUSES: Final = {"must", "should", "must_not"}


def filter_of(where: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a filter as the API takes it.

    Parameters
    ----------
    where : mapping or None
        A filter; or values by key: ``{"label": 3}`` for equality, ``{"label": [3, 5]}`` for one of
        several.
    """
    if where is None:
        return None
    if not where or set(where) <= _CLAUSES:
        return dict(where)
    return {"must": [_condition(key, value) for key, value in where.items()]}


def _condition(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, list | tuple | set):
        return {"key": key, "match": {"any": [*value]}}
    plain = value.item() if hasattr(value, "item") else value
    return {"key": key, "match": {"value": plain}}
