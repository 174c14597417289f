"""Search for the best γ and C of a kernel."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

Accuracies: TypeAlias = Callable[[float, Sequence[float]], list[float]]
"""Accuracies, in per cent, of one γ at several C."""

STEP: Final = 8
NEIGHBOURS: Final = 2
MIDDLE_COST: Final = 10.0


@dataclass(frozen=True, slots=True)
class Best:
    """The best accuracy in per cent, and its parameters; γ is None for kernels without one."""

    accuracy: float
    gamma: float | None
    cost: float

    @classmethod
    def of(cls, tried: Iterable[tuple[float, float | None, float]]) -> "Best":
        """Return the best of (accuracy, γ, C); the first of equal ones."""
        return cls(*max(tried, key=lambda one: one[0]))


def exhaustive(accuracies: Accuracies, gammas: Sequence[float], costs: Sequence[float]) -> Best:
    """Try every γ with every C."""
    return Best.of(
        (accuracy, gamma, cost)
        for gamma in gammas
        for accuracy, cost in zip(accuracies(gamma, costs), costs, strict=True)
    )


def coarse_to_fine(
    accuracies: Accuracies,
    gammas: Sequence[float],
    costs: Sequence[float],
    *,
    start: float | None = None,
) -> Best:
    """Try every eighth γ at a middle C, then the neighbours of the best, then every C for the best.

    Parameters
    ----------
    accuracies : Accuracies
    gammas, costs : sequences of float, rising
    start : float or None
        A γ of the grid that is tried in any case.
    """
    tried: dict[float, float] = {}

    def ask(some: Iterable[float]) -> None:
        for gamma in some:
            if gamma not in tried:
                (tried[gamma],) = accuracies(gamma, [MIDDLE_COST])

    ask(gammas[::STEP])
    if start is not None:
        ask([start])
    at = gammas.index(max(tried, key=lambda gamma: tried[gamma]))
    ask(gammas[max(0, at - NEIGHBOURS) : at + NEIGHBOURS + 1])
    first = Best.of((accuracy, gamma, MIDDLE_COST) for gamma, accuracy in tried.items())
    others = [cost for cost in costs if cost != MIDDLE_COST]
    second = exhaustive(accuracies, [gamma for gamma in tried if gamma == first.gamma], others)
    return max(first, second, key=lambda best: best.accuracy)
