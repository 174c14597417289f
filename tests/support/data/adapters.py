"""Between the package's arrays and the mappings of `tests.support.reference.mathematics`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gcws_search.index.contracts.arrays import LANES
from gcws_search.index.contracts.batches import RawBatch, VectorBatch
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    ExactParams,
    Normalize,
    Transform,
)
from gcws_search.index.hashing.gcws import Gcws, Signatures
from gcws_search.index.kernels.hashing.gcws_table import fill_table
from gcws_search.index.vectors.space import VectorSpace
from tests.support.data.generated import Csr, Floats, sparse_of
from tests.support.reference.mathematics import expand, from_dense, from_pairs

LARGE_DIM = 100_000
"""A fixed dimension whose rows are kept sparse."""


def space_of(
    dim: int | None,
    *,
    center: tuple[float, ...] | None = None,
    power: float = 1.0,
    normalize: Normalize = "none",
) -> VectorSpace:
    """Return the space of a collection with this dimension and transform."""
    transform = Transform(center=center, power=power, normalize=normalize)
    return VectorSpace.of(CollectionConfig(dim=dim, transform=transform, backend=ExactParams()))


def raw_row(raw: RawBatch, row: int) -> dict[int, float]:
    """Return one vector as sent, by signed coordinate."""
    if raw.form == "dense":
        return from_dense(raw.dense[row].tolist())
    here = slice(raw.indptr[row], raw.indptr[row + 1])
    return from_pairs(raw.indices[here].tolist(), raw.values[here].tolist())


def expanded_row(batch: VectorBatch, row: int) -> dict[int, float]:
    """Return one transformed vector by slot."""
    if batch.form == "dense":
        return expand(from_dense(batch.dense[row].tolist()))
    here = slice(batch.indptr[row], batch.indptr[row + 1])
    return from_pairs(batch.slots[here].tolist(), batch.values[here].tolist())


def signed_row(batch: VectorBatch, row: int) -> dict[int, float]:
    """Return one transformed vector by signed coordinate."""
    return {
        slot // 2: -value if slot % 2 else value for slot, value in expanded_row(batch, row).items()
    }


def signed_rows(batch: VectorBatch) -> list[dict[int, float]]:
    """Return all transformed vectors by signed coordinate."""
    return [signed_row(batch, row) for row in range(len(batch))]


def csr_of(rows: list[dict[int, float]]) -> Csr:
    """Return mappings as sparse rows, in the mapping's own order."""
    lengths = [len(row) for row in rows]
    return Csr(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.array([i for row in rows for i in row], np.int64),
        np.array([x for row in rows for x in row.values()], np.float32),
    )


def dense_of(rows: list[dict[int, float]], dim: int) -> npt.NDArray[np.float32]:
    """Return mappings as dense rows."""
    dense = np.zeros((len(rows), dim), np.float32)
    for row, entries in enumerate(rows):
        for i, x in entries.items():
            dense[row, i] = x
    return dense


def from_csr(space: VectorSpace, rows: Csr) -> RawBatch:
    """Return sparse rows as the space reads them."""
    return space.from_sparse(rows.indptr, rows.indices, rows.values)


def raw_of(space: VectorSpace, rows: npt.NDArray[Any] | Csr) -> RawBatch:
    """Return rows as clients send them: to a sparse space by their non-zero coordinates."""
    if space.form == "sparse" and not isinstance(rows, Csr):
        rows = sparse_of(rows)
    return from_csr(space, rows) if isinstance(rows, Csr) else space.from_dense(rows)


def batch_of(rows: npt.NDArray[Any] | Csr, dim: int | None = None) -> VectorBatch:
    """Return rows as a plain collection has them: dense ones, or sparse ones of ``dim``."""
    space = space_of(dim if isinstance(rows, Csr) else rows.shape[1])
    return space.prepare(raw_of(space, rows))


def prepared(space: VectorSpace, rows: list[dict[int, float]]) -> VectorBatch:
    """Return mappings as the space transforms them, sent sparse."""
    return space.prepare(from_csr(space, csr_of(rows)))


Sketch = Signatures


@dataclass(frozen=True)
class HashParameters:
    """r, c and β of GCWS, each (slots, samples) float32."""

    r: Floats
    c: Floats
    beta: Floats


def hash_parameters(*, seed: int, slots: int, samples: int) -> HashParameters:
    """Return the parameters that samples are really drawn with, out of the stored table."""
    blocks = samples // LANES
    table = np.empty(blocks * slots * 4 * LANES, np.float32)
    fill_table(np.uint64(seed), slots, blocks, table)
    # (blocks, slots, 4, LANES): r, 1/r, β, log c - r(1 - β)
    parts = table.reshape(blocks, slots, 4, LANES).transpose(2, 1, 0, 3).reshape(4, slots, -1)
    r, beta, base = (parts[i].astype(np.float64) for i in (0, 2, 3))
    c = np.exp(base + r * (1.0 - beta))
    return HashParameters(parts[0], c.astype(np.float32), parts[2])


def full_sketch(batch: VectorBatch, *, seed: int, samples: int) -> Sketch:
    """Return the samples (i*, t*) of every row."""
    width = batch.dense.shape[1] if batch.form == "dense" else None
    return Gcws(seed=seed, samples=samples, dense_width=width).sketch(batch)
