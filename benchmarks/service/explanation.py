"""Check that explanations add up to the scores of queries, on random pairs of real items.

Command: ``python -m benchmarks.service.explanation --data DIR``.

Each pair is explained in full and truncated. The ratio of the sums, and the sum of the parts, are
compared with the score and with the sums. Hits of queries are explained to compare their scores.
"""

from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, TypeAlias

import numpy as np
from scipy import sparse

import gcws_search
from benchmarks.harness.datasets import Vectors, load
from benchmarks.harness.report import Table, arguments

Transform: TypeAlias = dict[str, Any]
"""As the API takes it."""

SETS: Final = (
    ("fashion_mnist", "dense"),
    ("fashion_mnist", "sparse"),
    ("covtype93k", "dense"),
    ("covtype93k", "sparse"),
    ("muv_ecfp4", "sparse"),
    ("news20 tf-idf", "sparse"),
)
"""Data, and the form of its rows; sparse ones are of an open space."""
TRANSFORMS: Final[tuple[Transform, ...]] = (
    {},
    {"power": 0.5, "normalize": "l2"},
    {"power": 2.0, "normalize": "l1"},
)
ROWS: Final = 20_000
PAIRS: Final = 10_000
QUERIES: Final = 200
LIMIT: Final = 50
COLUMNS: Final = (
    "data", "rows are", "transform", "pairs", "ratio - score", "parts - shared", "parts - total",
    "hits", "scores that differ", "milliseconds each",
)  # fmt: skip


@dataclass
class Differences:
    """The largest differences of all pairs: of the ratio, and of both sums, relative to total."""

    ratio: float = 0.0
    shared: float = 0.0
    total: float = 0.0

    def add(self, why: gcws_search.Explained) -> None:
        """Count one explanation."""
        low = sum(each.min for each in why.coordinates) + why.rest.min
        high = sum(each.max for each in why.coordinates) + why.rest.max
        self.ratio = max(self.ratio, abs(why.shared / why.total - why.score))
        self.shared = max(self.shared, abs(low - why.shared) / why.total)
        self.total = max(self.total, abs(high - why.total) / why.total)


def signed(vectors: Vectors) -> Vectors:
    """Return vectors with the sign of every second coordinate reversed."""
    signs = np.where(np.arange(vectors.shape[1]) % 2, np.float32(-1), np.float32(1))
    return vectors.multiply(signs).tocsr() if sparse.issparse(vectors) else vectors * signs


def compared_scores(items: gcws_search.Collection, rng: np.random.Generator) -> tuple[int, int]:
    """Return the number of hits that were explained, and of those with another score."""
    hits = differing = 0
    for number in rng.integers(len(items), size=QUERIES).tolist():
        for hit in items.query(id=str(number), limit=10):
            hits += 1
            differing += items.explain(str(number), hit.id, limit=1).score != hit.score
    return hits, differing


def add_row(table: Table, name: str, form: str, vectors: Vectors, transform: Transform) -> None:
    """Measure one data set under one transform."""
    dim = None if form == "sparse" else vectors.shape[1]
    rng = np.random.default_rng(0)
    with gcws_search.Collection.open(
        ":memory:", dim=dim, transform=transform, backend={"kind": "exact"}
    ) as items:
        items.add(vectors)
        found = Differences()
        start = perf_counter()
        for a, b in rng.integers(len(items), size=(PAIRS, 2)).tolist():
            found.add(items.explain(str(a), str(b), limit=LIMIT))
        seconds = perf_counter() - start
        hits, differing = compared_scores(items, rng)
    table.add(
        name,
        form,
        ", ".join(f"{word} {value}" for word, value in transform.items()) or "none",
        PAIRS,
        f"{found.ratio:.1e}",
        f"{found.shared:.1e}",
        f"{found.total:.1e}",
        hits,
        str(differing),
        seconds / PAIRS * 1e3,
    )


def main() -> None:
    """Measure and print."""
    options = arguments("Explanations of random pairs.").parse_args()
    table = Table("explanation", COLUMNS)
    for name, form in SETS:
        vectors = signed(load(name, options.data).vectors[:ROWS])
        vectors = sparse.csr_matrix(vectors) if form == "sparse" else vectors
        for transform in TRANSFORMS:
            add_row(table, name, form, vectors, transform)
    table.notes.append(
        f"The first {ROWS:,} rows, with the sign of every second coordinate changed. Differences "
        "are the largest of all pairs; those of parts are relative to the total. An answer lists "
        f"{LIMIT} coordinates, and the sum of all others."
    )
    table.publish(options, threads="1 thread")


if __name__ == "__main__":
    main()
