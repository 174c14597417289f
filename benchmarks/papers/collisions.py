"""Collisions of full, 0-bit and b-bit samples: ``python -m benchmarks.papers.collisions``.

[GMM] Theorem 1 and eq. 11-12; P. Li, *0-bit Consistent Weighted Sampling* (KDD 2015); Li & König,
*b-bit minwise hashing* (WWW 2010). Pairs have very different norms, because that is where samples
without t* can err: they cannot see how long a vector is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from benchmarks.harness.datasets import Vectors, load
from benchmarks.harness.engine import prepare
from benchmarks.harness.report import Table
from benchmarks.papers.sheet import Options, Sheet, main, panels
from gcws_search.index.contracts.arrays import LANES, AnyArray, Float64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import CollectionConfig, Transform
from gcws_search.index.hashing.gcws import Gcws, Signatures
from gcws_search.index.similarities import gmm
from gcws_search.index.vectors.space import VectorSpace

SAMPLES: Final = 1 << 18
QUICK_SAMPLES: Final = 1 << 13
CHUNK: Final = 1 << 13
DIM: Final = 128
BLOCK: Final = 64
"""Samples of one estimate, for the variance."""
BITS: Final = (1, 2, 4, 8)
RATIOS: Final = (1, 3, 10, 30)
"""Of the L1 norms of made pairs."""
WORD_RATIOS: Final = (1, 10, 50)
FREQUENT_WORDS: Final = 1500
PICTURED: Final = 4
LENGTHS: Final = (100, 1000, 10_000, 100_000)
"""Non-zeros of vectors one of which is ten times the other."""
DRAWS: Final = 1 << 30
"""(slot, sample) pairs a length, both vectors together."""
QUICK_DRAWS: Final = 1 << 23
LENGTH_COLUMNS: Final = ("non-zeros", "samples", "GMM", "full, −GMM", "in σ")
COLUMNS: Final = (
    "pair", "norm ratio", "GMM", "full, −GMM", "in σ", "k·Var / GMM(1−GMM)", "0-bit, −GMM",
    "1 bit of t*", *(f"b = {b}" for b in BITS),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    """Two vectors, and how their samples collide.

    Attributes
    ----------
    ratio : float
        Of the greater L1 norm to the smaller.
    score : float
        GMM.
    full, zero_bit, one_level_bit : (samples,) bool
        Whether (i*, t*), i* alone, and i* with the lowest bit of t* agree.
    b_bit : dict of b to (samples,) bool
        Whether i* cut to b bits agrees.
    """

    name: str
    ratio: float
    score: float
    full: AnyArray
    zero_bit: AnyArray
    one_level_bit: AnyArray
    b_bit: dict[int, AnyArray]

    @classmethod
    def sampled(cls, name: str, batch: VectorBatch, samples: int) -> "Pair":
        """Return the collisions of this number of samples of a batch of two vectors."""
        drawn = [sketch(batch, seed) for seed in range(max(1, samples // CHUNK))]
        slots = np.concatenate([signatures.slots for signatures in drawn], axis=1)
        levels = np.concatenate([signatures.levels for signatures in drawn], axis=1)
        codes = {
            b: np.concatenate([signatures.codes(b, CHUNK) for signatures in drawn], axis=1)
            for b in BITS
        }
        same = slots[0] == slots[1]
        return cls(
            name,
            float(batch.norms.max() / batch.norms.min()),
            gmm(batch[:1], batch[1:]),
            same & (levels[0] == levels[1]),
            same,
            same & (((levels[0] ^ levels[1]) & 1) == 0),
            {b: cut[0] == cut[1] for b, cut in codes.items()},
        )

    def b_bit_estimates(self, b: int, k: int) -> Float64s:
        """Return estimates of GMM from k b-bit samples each, the chance collisions taken off."""
        chance = 2.0**-b
        return (estimates(self.b_bit[b], k) - chance) / (1 - chance)


def sketch(batch: VectorBatch, seed: int) -> Signatures:
    """Return `CHUNK` samples of each vector."""
    return Gcws(seed=seed, samples=CHUNK, dense_width=None).sketch(batch)


def estimates(collisions: AnyArray, k: int) -> Float64s:
    """Return the means of consecutive blocks of k indicators."""
    whole = len(collisions) // k * k
    means: Float64s = collisions[:whole].reshape(-1, k).mean(axis=1, dtype=np.float64)
    return means


def made_pairs() -> list[tuple[str, VectorBatch]]:
    """Return signed, heavy-tailed vectors: near or unrelated, at several ratios of norms."""
    rng = np.random.default_rng(0)
    space = VectorSpace.of(CollectionConfig(dim=DIM))
    first, other = rng.standard_t(3, (2, DIM))
    pairs = []
    for ratio in RATIOS:
        for name, second in (
            ("near", first + 0.5 * other),
            ("unrelated", other),
            ("parallel", first),
        ):
            if (name, ratio) == ("parallel", 1):
                continue
            scaled = second * (ratio * np.abs(first).sum() / np.abs(second).sum())
            rows = np.stack([first, scaled]).astype(np.float32)
            pairs.append((f"synthetic, {name}", space.prepare(space.from_dense(rows))))
    return pairs


def word_pairs(folder: Path) -> list[tuple[str, VectorBatch]]:
    """Return pairs of words of news20, a word being its counts in all documents.

    Of the `FREQUENT_WORDS` most frequent words, the pair of the greatest GMM among those whose
    norms have a ratio within a tenth of each of `WORD_RATIOS`.
    """
    words = load("news20", folder).vectors.T.tocsr()
    totals = np.asarray(words.sum(axis=1)).ravel()
    frequent = np.argsort(-totals, kind="stable")[:FREQUENT_WORDS]
    space = VectorSpace(words.shape[1], "sparse", Transform())
    pairs = []
    for ratio in WORD_RATIOS:
        a, b = best_pair(words, totals, frequent, ratio)
        batch = prepare(space, words[[a, b]])
        pairs.append((f"words {a} and {b} of news20", batch))
    return pairs


def best_pair(words: Vectors, totals: AnyArray, rows: AnyArray, ratio: float) -> tuple[int, int]:
    """Return the two rows of the greatest GMM whose totals have about this ratio."""
    best = (-1.0, 0, 0)
    # Candidates by overlap of presence, which bounds what they can share; then GMM itself.
    present = (words[rows] > 0).astype(np.float32)
    shared = np.asarray((present @ present.T).todense())
    spread = totals[rows][:, None] / totals[rows][None, :]
    count = np.diff(words[rows].indptr)
    overlap = shared / np.minimum(count[:, None], count[None, :])
    overlap[(spread < 0.9 * ratio) | (spread > 1.1 * ratio)] = -1
    np.fill_diagonal(overlap, -1)
    for flat in np.argsort(-overlap, axis=None, kind="stable")[:200]:
        i, j = divmod(int(flat), len(rows))
        low = words[[rows[i]]].minimum(words[[rows[j]]]).sum()
        score = low / (totals[rows[i]] + totals[rows[j]] - low)
        best = max(best, (float(score), int(rows[i]), int(rows[j])))
    return best[1], best[2]


def add_row(table: Table, pair: Pair) -> None:
    """Put one pair's laws beside what its samples did."""
    score, count = pair.score, len(pair.full)
    law = score * (1 - score)
    error = pair.full.mean() - score
    table.add(
        pair.name,
        f"{pair.ratio:.1f}",
        f"{score:.4f}",
        f"{error:+.4f}",
        f"{error / np.sqrt(law / count):+.1f}",
        f"{BLOCK * estimates(pair.full, BLOCK).var(ddof=1) / law:.3f}",
        f"{pair.zero_bit.mean() - score:+.4f}",
        f"{pair.one_level_bit.mean() - score:+.4f}",
        *(f"{pair.b_bit_estimates(b, count)[0] - score:+.4f}" for b in BITS),
    )


def length_table(draws: int) -> Table:
    """Return how full samples of long vectors collide: u and u/10, all values of u equal."""
    table = Table("collisions by length", LENGTH_COLUMNS)
    space = VectorSpace(None, "sparse", Transform())
    for length in LENGTHS:
        values = np.repeat([1.0, 0.1], length)
        raw = space.from_sparse(length * np.arange(3), np.tile(np.arange(length), 2), values)
        batch = space.prepare(raw)
        score = gmm(batch[:1], batch[1:])
        per_seed = min(CHUNK, max(LANES, draws // (16 * length) // LANES * LANES))
        seeds = range(max(1, draws // (2 * length * per_seed)))
        hits = 0
        for seed in seeds:
            family = Gcws(seed=seed, samples=per_seed, dense_width=None)
            drawn = family.sketch(batch)
            same = (drawn.slots[0] == drawn.slots[1]) & (drawn.levels[0] == drawn.levels[1])
            hits += int(np.count_nonzero(same))
        count = per_seed * len(seeds)
        error = hits / count - score
        sigmas = error / np.sqrt(score * (1 - score) / count)
        table.add(f"{length:,}", f"{count:,}", f"{score:.4f}", f"{error:+.4f}", f"{sigmas:+.1f}")
    table.notes.append("Vectors of so many equal values, and a tenth of them.")
    return table


def draw(axes: Axes, pair: Pair) -> None:
    """Draw the mean squared error of the estimates of one pair against k."""
    sizes = [k for k in (4**i for i in range(1, 8)) if len(pair.full) // k >= 32]
    ways: list[tuple[str, Callable[[int], Float64s]]] = [
        ("full", partial(estimates, pair.full)),
        ("0-bit", partial(estimates, pair.zero_bit)),
        ("i*, 1 bit of t*", partial(estimates, pair.one_level_bit)),
        *((f"b = {b}", partial(pair.b_bit_estimates, b)) for b in (1, 4)),
    ]
    for name, way in ways:
        errors = [float(np.mean((way(k) - pair.score) ** 2)) for k in sizes]
        axes.loglog(sizes, errors, marker="o", markersize=3, label=name)
    law = [pair.score * (1 - pair.score) / k for k in sizes]
    axes.loglog(sizes, law, "k--", linewidth=1, label="GMM(1 − GMM)/k")
    axes.set(title=f"{pair.name}: GMM {pair.score:.3f}, norms 1 : {pair.ratio:.0f}")
    axes.set(xlabel="samples k", ylabel="mean squared error")
    axes.legend(fontsize=7)


def run(options: Options) -> Sheet:
    """Return the table of all pairs, and pictures of some."""
    samples = QUICK_SAMPLES if options.quick else SAMPLES
    batches = made_pairs()
    if options.data is not None:
        batches += word_pairs(options.data)
    pairs = [Pair.sampled(name, batch, samples) for name, batch in batches]
    table = Table("collisions", COLUMNS)
    for pair in pairs:
        add_row(table, pair)
    table.notes.append(
        f"{samples:,} samples a pair; k·Var from estimates of {BLOCK} samples each. Columns after "
        "the variance are estimates minus GMM, of all samples: i* alone, i* with the lowest bit of "
        "t*, and i* cut to b bits with the chance 2^−b of unrelated ones taken off. "
        f"The standard error is at most {0.5 / np.sqrt(samples):.4f} (b = 1: twice that)."
    )
    lengths = length_table(QUICK_DRAWS if options.quick else DRAWS)
    figure, axes = panels(2, 2)
    unlike = sorted(pairs, key=lambda pair: (not pair.name.startswith("words"), pair.ratio))
    for panel, pair in zip(axes, pictured(unlike), strict=True):
        draw(panel, pair)
    return Sheet("collisions", "Collisions of GCWS samples", figure, [table, lengths])


def pictured(pairs: list[Pair]) -> list[Pair]:
    """Return some pairs from the whole range."""
    return [pairs[at] for at in np.linspace(0, len(pairs) - 1, PICTURED).round().astype(int)]


if __name__ == "__main__":
    main(run, "Collision probability and variance of GCWS samples.", needs_data=True)
