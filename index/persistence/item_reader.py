"""Items as they were sent, and pages of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gcws_search.index.contracts.errors import InvalidParameter

JsonVector = list[float] | dict[str, list[Any]]
"""A vector as the API shows it."""

_MAX_SEQUENCE: Final = 2**63 - 1
_MAX_DIGITS: Final = 20
"""More than any sequence number has."""


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as sent.

    Attributes
    ----------
    id : str
    vector : list or dict or None
        As the API shows it; None where it was not asked for.
    payload : bytes or None
        JSON text.
    """

    id: str
    vector: JsonVector | None
    payload: bytes | None


@dataclass(frozen=True, slots=True)
class Page:
    """Some items in the order in which they were put, and where the next page starts.

    Attributes
    ----------
    items : list of StoredItem
    next_cursor : str or None
        None on the last page.
    """

    items: list[StoredItem]
    next_cursor: str | None


def sequence_of(cursor: str | None) -> int:
    """Return the sequence number after which the page of a cursor starts.

    Raises
    ------
    InvalidParameter
        No such cursor was handed out.
    """
    if cursor is None:
        return 0
    if cursor.isascii() and cursor.isdecimal() and int(cursor[:_MAX_DIGITS]) <= _MAX_SEQUENCE:
        return int(cursor[:_MAX_DIGITS])
    raise InvalidParameter(
        expected="a cursor that a page returned", got=repr(cursor[:40]), loc=("cursor",)
    )
