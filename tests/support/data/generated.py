"""Made data with neighbours to find: heavy-tailed signed clusters, sparse counts, near-duplicates.

Every maker returns stored rows and held-out queries of the same distribution.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Csr:
    """Sparse rows: ``indptr`` (n + 1,), rising ``indices`` and non-zero ``values`` (nnz,)."""

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]
    values: Floats

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.indptr) - 1

    def row(self, i: int) -> tuple[npt.NDArray[np.int64], Floats]:
        """Return the indices and values of one row."""
        here = slice(self.indptr[i], self.indptr[i + 1])
        return self.indices[here], self.values[here]

    def __getitem__(self, rows: slice) -> "Csr":
        """Return some consecutive rows."""
        start, stop, _ = rows.indices(len(self))
        indptr = self.indptr[start : stop + 1]
        here = slice(indptr[0], indptr[-1])
        return Csr(indptr - indptr[0], self.indices[here], self.values[here])


def sparse_of(dense: npt.NDArray[np.float32]) -> Csr:
    """Return the non-zero entries of dense rows."""
    rows, columns = np.nonzero(dense)
    counts = np.bincount(rows, minlength=len(dense))
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Csr(indptr, columns.astype(np.int64), dense[rows, columns])


def mappings(
    rng: np.random.Generator, n: int, dim: int, share: float = 0.7
) -> list[dict[int, float]]:
    """Normal rows as mappings; of their coordinates a share is there, and always the first."""
    return [
        {int(i): float(x) for i, x in enumerate(row) if rng.random() < share or i == 0}
        for row in rng.standard_normal((n, dim)).astype(np.float32)
    ]


def clustered(
    rng: np.random.Generator, n: int, queries: int, *, dim: int = 24, spread: float = 0.35
) -> tuple[Floats, Floats]:
    """Signed rows around heavy-tailed centres, each row with its own scale of noise."""
    count = n + queries
    centres = rng.standard_t(2.5, size=(max(4, n // 40), dim))
    noise = rng.standard_t(3.0, size=(count, dim)) * rng.gamma(2.0, spread / 2, size=(count, 1))
    rows = centres[rng.integers(0, len(centres), count)] + noise
    rows *= rng.lognormal(0.0, 0.25, size=(count, 1))
    made = rows.astype(np.float32)
    return made[:n], made[n:]


def near_duplicates(
    rng: np.random.Generator, n: int, queries: int, *, dim: int = 24
) -> tuple[Floats, Floats]:
    """Originals with a few copies each that differ by a per mille; a query is one more copy."""
    originals = rng.standard_normal((max(1, n // 5), dim))
    which = rng.integers(0, len(originals), n + queries)
    noise = 1.0 + 0.002 * rng.standard_normal((n + queries, dim))
    made = (originals[which] * noise).astype(np.float32)
    return made[:n], made[n:]


def counts(
    rng: np.random.Generator, n: int, queries: int, *, words: int = 400, topics: int = 30
) -> tuple[Csr, Csr]:
    """Documents of small counts: Zipf words, sharpened by one topic each."""
    common = 1.0 / np.arange(1, words + 1)
    mixtures = rng.dirichlet(np.full(words, 0.05), size=topics) + 0.02 * common / common.sum()
    mixtures /= mixtures.sum(axis=1, keepdims=True)
    which = rng.integers(0, topics, n + queries)
    lengths = rng.integers(15, 90, n + queries)
    documents = np.stack(
        [rng.multinomial(length, mixtures[t]) for length, t in zip(lengths, which, strict=True)]
    )
    made = sparse_of(documents.astype(np.float32))
    return made[:n], made[n:]


def made(
    kind: str, rng: np.random.Generator, n: int, queries: int
) -> tuple[Floats | Csr, Floats | Csr, int]:
    """Return rows, held-out queries and the dimension."""
    if kind == "counts":
        return *counts(rng, n, queries), 400
    make = {"dense": clustered, "near-duplicates": near_duplicates}[kind]
    return *make(rng, n, queries, dim=24), 24
