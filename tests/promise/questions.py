"""What is asked of a scene: kinds of query, each under filters that follow the classes or do not.

A `Part` is a set of queries that share a filter; a `Question` is parts whose recall is averaged.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.harness.datasets import Vectors, made
from tests.promise.scenes import Scene

_Rows = NDArray[np.int64]
_Mask = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Part:
    """Queries under one filter.

    ``queries``: (m, dim) float32 or CSR. ``permitted``: (n,) uint8. ``deleted``: whether rows that
    are not permitted are deleted, not filtered out.
    """

    queries: Any
    permitted: _Mask
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """Parts whose recall is averaged."""

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


def _of_all(scene: Scene, queries: Vectors) -> Part:
    """Return a part that may find all rows."""
    return Part(_float32(queries), np.ones(len(scene.classes), np.uint8))


def _all(scene: Scene) -> Iterator[Part]:
    yield _of_all(scene, scene.queries)


def _random(scene: Scene, share: float) -> Iterator[Part]:
    yield Part(scene.queries, _drawn(len(scene.classes), share, 1))


def _drawn(count: int, share: float, seed: int) -> _Mask:
    return (np.random.default_rng(seed).random(count) < share).astype(np.uint8)


def _own_class(scene: Scene, *, kept: bool = True, deleted: bool = False) -> Iterator[Part]:
    """Keep the class of the query alone, or leave it out."""
    return _by_class(
        scene,
        lambda label: ((scene.classes == label) == kept).astype(np.uint8),
        own=True,
        deleted=deleted,
    )


def _of_class(scene: Scene, share: float) -> Iterator[Part]:
    """Keep a share of one class, ask with queries of the others."""
    drawn = _drawn(len(scene.classes), share, 2) > 0
    return _by_class(
        scene, lambda label: ((scene.classes == label) & drawn).astype(np.uint8), own=False
    )


def _mostly(scene: Scene, share: float, *, own: bool) -> Iterator[Part]:
    """Keep a share of all rows, nine tenths of them of one class as far as there are so many."""
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


def _sums(scene: Scene) -> Iterator[Part]:
    order = np.random.default_rng(4).permutation(scene.queries.shape[0])
    yield _of_all(scene, scene.queries + scene.queries[order])


def _unlike(
    scene: Scene, made: Callable[[Vectors, np.random.Generator], Vectors]
) -> Iterator[Part]:
    """Ask all rows for what is made of the queries."""
    found = _float32(made(scene.queries, np.random.default_rng(8)))
    yield _of_all(scene, found[np.asarray(abs(found).sum(axis=1)).ravel() > 0])


def _entries(vectors: Vectors) -> tuple[_Rows, _Rows, NDArray[np.float32]]:
    """Return row, column and value of each number that is not 0."""
    held = sparse.coo_matrix(vectors)
    return held.row.astype(np.int64), held.col.astype(np.int64), held.data


def _of_entries(rows: _Rows, columns: _Rows, values: NDArray[Any], like: Vectors) -> Vectors:
    """Return vectors of the form of others; of entries at one place the sum."""
    found = sparse.coo_matrix((values, (rows, columns)), shape=like.shape).tocsr()
    return found if sparse.issparse(like) else found.toarray()


def _fragments(queries: Vectors, rng: np.random.Generator, share: float) -> Vectors:
    rows, columns, values = _entries(queries)
    chosen = rng.random(len(rows)) < share
    return _of_entries(rows[chosen], columns[chosen], values[chosen], queries)


def _shuffled(queries: Vectors, rng: np.random.Generator) -> Vectors:
    rows, columns, values = _entries(queries)
    return _of_entries(rows, rng.permutation(queries.shape[1])[columns], values, queries)


def _one_coordinate(queries: Vectors, rng: np.random.Generator) -> Vectors:
    rows, columns, values = _entries(queries)
    order = rng.permutation(len(rows))
    _, first = np.unique(rows[order], return_index=True)
    chosen = order[first]
    return _of_entries(rows[chosen], columns[chosen], values[chosen], queries)


def _noise(queries: Vectors, rng: np.random.Generator) -> Vectors:
    """As many numbers a query at random places, each drawn from all that there are."""
    rows, _, values = _entries(queries)
    columns = rng.integers(queries.shape[1], size=len(rows))
    return _of_entries(rows, columns, rng.permutation(values), queries)


def _from_another_set(queries: Vectors, rng: np.random.Generator) -> Vectors:
    """Clustered, heavy-tailed rows of positive and negative numbers, as long as the queries."""
    count = queries.shape[0]
    if not sparse.issparse(queries):
        other = made(rows=count, dim=queries.shape[1], seed=9)
        return other * (np.abs(queries).mean() / np.abs(other).mean())
    rows = _entries(queries)[0]
    wide = int(np.bincount(rows).max())
    topics = rng.integers(queries.shape[1], size=(10, 2 * wide))
    columns = topics[rows % len(topics), rng.integers(2 * wide, size=len(rows))]
    return _of_entries(rows, columns, np.exp(rng.standard_normal(len(rows))), queries)


def _centroids(scene: Scene) -> Iterator[Part]:
    """Ask for the means of ten queries of one class."""
    groups: list[Any] = []
    rng = np.random.default_rng(10)
    for label in np.unique(scene.query_classes):
        own = np.flatnonzero(scene.query_classes == label)
        groups += [rng.choice(own, 10) for _ in range(len(own))]
    rows = np.repeat(np.arange(len(groups)), 10)
    shape = (len(groups), scene.queries.shape[0])
    means = sparse.csr_matrix((np.full(len(rows), 0.1), (rows, np.concatenate(groups))), shape)
    yield _of_all(scene, means @ scene.queries)


def _near_duplicates(scene: Scene) -> Iterator[Part]:
    """Ask for stored rows whose numbers differ by a hundredth."""
    rng = np.random.default_rng(12)
    count = min(len(scene.classes), scene.queries.shape[0])
    chosen = scene.stored[np.sort(rng.choice(len(scene.classes), count, replace=False))]
    rows, columns, values = _entries(chosen)
    changed = values * (1 + 0.01 * rng.standard_normal(len(values)))
    yield _of_all(scene, _of_entries(rows, columns, changed, chosen))


def _scaled(scene: Scene, factor: float) -> Iterator[Part]:
    yield _of_all(scene, scene.queries * factor)


def _float32(vectors: Vectors) -> Vectors:
    return (
        vectors.tocsr().astype(np.float32)
        if sparse.issparse(vectors)
        else np.asarray(vectors, np.float32)
    )


QUESTIONS: Final[dict[str, Callable[[Scene], Iterator[Part]]]] = {
    "all rows": _all,
    "random 50 %": partial(_random, share=0.5),
    "random 5 %": partial(_random, share=0.05),
    "random 0.5 %": partial(_random, share=0.005),
    "50 % mostly of the query's class": partial(_mostly, share=0.5, own=True),
    "5 % mostly of the query's class": partial(_mostly, share=0.05, own=True),
    "0.5 % mostly of the query's class": partial(_mostly, share=0.005, own=True),
    "50 % mostly of another class": partial(_mostly, share=0.5, own=False),
    "5 % mostly of another class": partial(_mostly, share=0.05, own=False),
    "0.5 % mostly of another class": partial(_mostly, share=0.005, own=False),
    "the query's class": _own_class,
    "another class": partial(_of_class, share=1.0),
    "60 % of another class": partial(_of_class, share=0.6),
    "all but the query's class": partial(_own_class, kept=False),
    "the query's class deleted": partial(_own_class, kept=False, deleted=True),
    "sum of two rows": _sums,
    "rows times 1.95": partial(_scaled, factor=1.95),
    "rows times 0.1": partial(_scaled, factor=0.1),
    "rows times 10": partial(_scaled, factor=10.0),
    "half of a row": partial(_unlike, made=partial(_fragments, share=0.5)),
    "a tenth of a row": partial(_unlike, made=partial(_fragments, share=0.1)),
    "shuffled coordinates": partial(_unlike, made=_shuffled),
    "one coordinate": partial(_unlike, made=_one_coordinate),
    "noise": partial(_unlike, made=_noise),
    "rows of another set": partial(_unlike, made=_from_another_set),
    "centroids": _centroids,
    "near-duplicates": _near_duplicates,
}
