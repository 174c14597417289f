"""Items as they are sent, seen and found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from index.arrays import Int64s, UInt8s, UInt64s
from index.columns import Columns
from index.errors import InvalidParameter
from index.hits import Explanation
from index.vectors import RawBatch, VectorBatch


@dataclass(frozen=True, slots=True)
class ItemBatch:
    """Items as sent.

    Attributes
    ----------
    ids : list of str
    vectors : RawBatch
    payloads : list of bytes or None
        Compact JSON text of an object (`index.payloads.encode_payload`); None without one.

    Raises
    ------
    InvalidParameter
        The three are not of one length.
    """

    ids: list[str]
    vectors: RawBatch
    payloads: list[bytes | None]

    def __post_init__(self) -> None:
        """Check that the columns match."""
        lengths = len(self.ids), len(self.vectors), len(self.payloads)
        if len(set(lengths)) != 1:
            raise InvalidParameter(
                expected="as many ids as vectors and payloads",
                got="{} ids, {} vectors, {} payloads".format(*lengths),
            )

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class View:
    """All a reader sees.

    Attributes
    ----------
    vectors : VectorBatch
        All n rows, dead ones included.
    alive : (n,) uint8
        1 for a row whose item has not been deleted or updated since.
    count : int
        Number of ones.
    keys : (n,) int64
        Rising.
    ids : list of str
        By row; shared with later views, so it may be longer than n.
    payloads : list of bytes or None
        By row; shared as ``ids`` is.
    columns : Columns
        Of ``payloads``.
    state : object
        The backend's index of the n rows.
    version : int
        Rises with every change.
    """

    vectors: VectorBatch
    alive: UInt8s
    count: int
    keys: Int64s
    ids: list[str]
    payloads: list[bytes | None]
    columns: Columns
    state: Any
    version: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class Hit:
    """An item found.

    Attributes
    ----------
    id : str
    score : float
    payload : bytes or None
        JSON text.
    row : int
        In ``view``.
    view : View
        What was searched.
    """

    id: str
    score: float
    payload: bytes | None
    row: int
    view: View = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The hits of one query, by falling score, equal scores by id."""

    hits: list[Hit]
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class Encoded:
    """Vectors transformed, and what their index is made of; needs no lock to make."""

    vectors: VectorBatch
    codes: UInt64s
