"""Trying many inputs, and counting them."""

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import HealthCheck, given, seed, settings
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


def tried(
    inputs: SearchStrategy[T], trial: Callable[[T], None], *, examples: int, number: int
) -> int:
    """Try so many inputs, drawn by a seed; return how many were tried.

    The smallest input that fails is what is told of.
    """
    count = 0

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs)
    def run(value: Any) -> None:  # noqa: ANN401
        nonlocal count
        count += 1
        trial(value)

    run()
    return count
