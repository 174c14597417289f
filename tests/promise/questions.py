"""What is asked of a scene: kinds of query, each under filters that follow the classes or do not.

A `Part` is a set of queries that share a filter; a `Question` is parts whose recall is averaged.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.harness.datasets import Vectors
from tests.promise.scenes import Scene

_Rows = NDArray[np.int64]
_Mask = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Part:
    """Queries under one filter.

    Attributes
    ----------
    queries : (m, dim) float32 or CSR
    permitted : (n,) uint8
    deleted : bool
        Whether rows that are not permitted are deleted, not filtered out.
    """

    queries: Any
    permitted: _Mask
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """Parts whose recall is averaged.

    Attributes
    ----------
    name : str
    parts : tuple of Part
    """

    name: str
    parts: tuple[Part, ...]


def questions(scene: Scene, names: list[str] | None = None) -> Iterator[Question]:
    """Yield what is asked of a scene, or those of some names."""
    for name, parts_of in QUESTIONS.items():
        if names is None or name in names:
            parts = tuple(part for part in parts_of(scene) if part.permitted.any())
            if parts:
                yield Question(name, parts)


def _by_class(
    scene: Scene, mask_of: Callable[[int], _Mask], *, own: bool, deleted: bool = False
) -> Iterator[Part]:
    """Yield a part for each class: its own queries, or those of all other classes."""
    for label in np.unique(scene.query_classes):
        asked = scene.query_classes == label
        chosen = np.flatnonzero(asked if own else ~asked)
        if not own:  # each query is asked once
            share = np.random.default_rng(int(label)).permutation(chosen)
            chosen = np.sort(share[: max(1, len(scene.query_classes) // 10)])
        yield Part(scene.queries[chosen], mask_of(int(label)), deleted)


def _all(scene: Scene) -> Iterator[Part]:
    yield Part(scene.queries, np.ones(len(scene.classes), np.uint8))


def _random(share: float) -> Callable[[Scene], Iterator[Part]]:
    def parts(scene: Scene) -> Iterator[Part]:
        yield Part(scene.queries, _drawn(len(scene.classes), share, 1))

    return parts


def _drawn(count: int, share: float, seed: int) -> _Mask:
    return (np.random.default_rng(seed).random(count) < share).astype(np.uint8)


def _own_class(scene: Scene) -> Iterator[Part]:
    return _by_class(scene, lambda label: (scene.classes == label).astype(np.uint8), own=True)


def _of_class(share: float) -> Callable[[Scene], Iterator[Part]]:
    """Keep a share of one class, ask with queries of the others."""

    def parts(scene: Scene) -> Iterator[Part]:
        drawn = _drawn(len(scene.classes), share, 2)
        return _by_class(
            scene,
            lambda label: ((scene.classes == label) & (drawn > 0)).astype(np.uint8),
            own=False,
        )

    return parts


def _mostly(share: float, *, own: bool) -> Callable[[Scene], Iterator[Part]]:
    """Keep a share of all rows, nine tenths of them of one class as far as there are so many."""

    def parts(scene: Scene) -> Iterator[Part]:
        n = len(scene.classes)

        def mask(label: int) -> _Mask:
            rng = np.random.default_rng(label)
            inside = np.flatnonzero(scene.classes == label)
            outside = np.flatnonzero(scene.classes != label)
            wanted = int(share * n)
            first = min(len(inside), int(0.9 * wanted))
            chosen = np.zeros(n, np.uint8)
            chosen[rng.choice(inside, first, replace=False)] = 1
            chosen[rng.choice(outside, min(len(outside), wanted - first), replace=False)] = 1
            return chosen

        return _by_class(scene, mask, own=own)

    return parts


def _without_own(scene: Scene) -> Iterator[Part]:
    return _by_class(scene, lambda label: (scene.classes != label).astype(np.uint8), own=True)


def _deleted(scene: Scene) -> Iterator[Part]:
    return _by_class(
        scene, lambda label: (scene.classes != label).astype(np.uint8), own=True, deleted=True
    )


def _half_deleted(scene: Scene) -> Iterator[Part]:
    """Delete the classes of the query and others, up to a quarter of the rows."""

    def mask(label: int) -> _Mask:
        alive = np.ones(len(scene.classes), np.uint8)
        inside = np.flatnonzero(scene.classes == label)
        alive[inside[: len(alive) // 4]] = 0
        return alive

    return _by_class(scene, mask, own=True, deleted=True)


def _sums(scene: Scene) -> Iterator[Part]:
    order = np.random.default_rng(4).permutation(scene.queries.shape[0])
    yield Part(
        _float32(scene.queries + scene.queries[order]), np.ones(len(scene.classes), np.uint8)
    )


def _scaled(factor: float) -> Callable[[Scene], Iterator[Part]]:
    def parts(scene: Scene) -> Iterator[Part]:
        yield Part(_float32(scene.queries * factor), np.ones(len(scene.classes), np.uint8))

    return parts


def _float32(vectors: Vectors) -> Vectors:
    return (
        vectors.tocsr().astype(np.float32)
        if sparse.issparse(vectors)
        else np.asarray(vectors, np.float32)
    )


QUESTIONS: Final[dict[str, Callable[[Scene], Iterator[Part]]]] = {
    "all rows": _all,
    "random 50 %": _random(0.5),
    "random 5 %": _random(0.05),
    "random 0.5 %": _random(0.005),
    "50 % mostly of the query's class": _mostly(0.5, own=True),
    "5 % mostly of the query's class": _mostly(0.05, own=True),
    "0.5 % mostly of the query's class": _mostly(0.005, own=True),
    "50 % mostly of another class": _mostly(0.5, own=False),
    "5 % mostly of another class": _mostly(0.05, own=False),
    "0.5 % mostly of another class": _mostly(0.005, own=False),
    "the query's class": _own_class,
    "another class": _of_class(1.0),
    "60 % of another class": _of_class(0.6),
    "all but the query's class": _without_own,
    "the query's class deleted": _deleted,
    "sum of two rows": _sums,
    "rows times 1.95": _scaled(1.95),
}
