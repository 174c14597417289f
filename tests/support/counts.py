"""Work by counts of calls and of comparisons, which no machine's load changes."""

import sys
from collections.abc import Callable, Iterable


def calls_of(work: Callable[[], object]) -> int:
    """Return how many functions some work calls in this thread, those of C included."""
    count = 0

    def record(_frame: object, event: str, _of: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(record)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


class ComparedText(str):
    """A text that counts how often it and others like it are compared."""

    __slots__ = ("comparisons",)
    comparisons: list[int]
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        self.comparisons[0] += 1
        return str.__eq__(self, other)


def compared_texts(texts: Iterable[str]) -> list[ComparedText]:
    """Return texts that count their comparisons together."""
    found, comparisons = [ComparedText(each) for each in texts], [0]
    for each in found:
        each.comparisons = comparisons
    return found
