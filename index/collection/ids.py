"""What may be an item's id."""

from collections.abc import Sequence
from typing import Final

from gcws_search.index.contracts.errors import InvalidId

MAX_ID_LENGTH: Final = 255
"""Characters."""


def check_ids(ids: Sequence[str], *, first_row: int = 0) -> None:
    """Check the ids of a batch.

    Parameters
    ----------
    ids : sequence of str
        1 to `MAX_ID_LENGTH` characters each.
    first_row : int
        Number of the first id in errors.

    Raises
    ------
    InvalidId
        At ``(row, "id")``: no string, empty, too long, or no Unicode text (a lone surrogate).
    """
    try:
        "".join(ids).encode()
        lengths = [*map(len, ids)]
        if not ids or (min(lengths) > 0 and max(lengths) <= MAX_ID_LENGTH):
            return
    except (TypeError, UnicodeEncodeError):
        pass
    for row, item_id in enumerate(ids, first_row):
        _check_id(item_id, row)


def _check_id(value: object, row: int) -> None:
    loc = (row, "id")
    if not isinstance(value, str):
        raise InvalidId(expected="a string", got=type(value).__name__, loc=loc)
    if not 1 <= len(value) <= MAX_ID_LENGTH:
        raise InvalidId(
            expected=f"1 to {MAX_ID_LENGTH} characters", got=f"{len(value)} characters", loc=loc
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidId(expected="Unicode text", got="a lone surrogate", loc=loc) from None
