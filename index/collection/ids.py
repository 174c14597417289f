"""Ids of items: which are permitted, which are given to items without one, the row of each."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gcws_search.index.contracts.errors import InvalidId

MAX_ID_LENGTH: Final = 255
"""Characters."""
_MAX_DIGITS: Final = 15
"""Every program reads numbers up to there exactly."""
_SHARDS: Final = 256
"""One dictionary of 1,000,000 ids grows in one step that holds the interpreter for 0.1 s."""


def check_ids(ids: Sequence[str | None], *, first_row: int = 0) -> None:
    """Check the ids of a batch; None stands for an item that is given one.

    ids: 1 to `MAX_ID_LENGTH` characters each.
    first_row: number of the first id in errors.
    Raises InvalidId (at ``(row, "id")``: no string, empty, too long, or no Unicode text (a lone
        surrogate)).
    """
    try:
        "".join(ids).encode()  # type: ignore[arg-type]  # a TypeError where one is None
        lengths = [*map(len, ids)]  # type: ignore[arg-type]
        if not ids or (min(lengths) > 0 and max(lengths) <= MAX_ID_LENGTH):
            return
    except (TypeError, UnicodeEncodeError):
        pass
    for row, item_id in enumerate(ids, first_row):
        if item_id is not None:
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


def number_beyond(ids: Iterable[str | None]) -> int:
    """Return the number that follows the highest of those ids that are numbers, 0 where none is.

    Longer ones than `_MAX_DIGITS` are hashes of something, not counts, and are passed over.
    """
    numbers = (int(each) for each in ids if each and len(each) <= _MAX_DIGITS and each.isdecimal())
    return max(numbers, default=-1) + 1


def number_items(
    ids: Sequence[str | None], first: int, taken: Callable[[Sequence[str]], Sequence[str]]
) -> tuple[list[str], range]:
    """Give numbers that follow each other to the items that have no id.

    ids: at least one is None.
    first: the first number, unless an item has one of them.
    taken: returns those of some ids that items have.
    """
    own = {each for each in ids if each is not None}
    numbers = range(first, first + len(ids) - sum(each is not None for each in ids))
    while found := own.intersection(names := [*map(str, numbers)]) | {*taken(names)}:
        first = max(map(int, found)) + 1
        numbers = range(first, first + len(numbers))
    fresh = iter(names)
    return [next(fresh) if each is None else each for each in ids], numbers


class RowsById:
    """A dictionary from ids to rows, in parts that each grow quickly.

    ids: distinct; their rows are 0, 1, 2 ….
    """

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._shards: list[dict[str, int]] = [{} for _ in range(_SHARDS)]
        self.put(ids, 0)

    def __len__(self) -> int:
        """Return the number of ids."""
        return sum(map(len, self._shards))

    def rows(self, ids: Iterable[str]) -> list[int | None]:
        """Return the row of each id, None where there is no such item."""
        shards = self._shards
        return [shards[hash(item_id) % _SHARDS].get(item_id) for item_id in ids]

    def put(self, ids: Iterable[str], first: int) -> None:
        """Give ids rows from ``first`` on, whether they had one or not."""
        shards = self._shards
        for row, item_id in enumerate(ids, first):
            shards[hash(item_id) % _SHARDS][item_id] = row

    def remove(self, item_id: str) -> None:
        """Forget an id; KeyError when it is not known."""
        del self._shards[hash(item_id) % _SHARDS][item_id]
