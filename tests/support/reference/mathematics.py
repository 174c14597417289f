"""Slow and obviously right: the mathematics in plain Python over float64, one entry at a time.

Nothing here imports the package under test. A vector is a mapping from signed coordinate to value;
an expanded vector is a mapping from slot (2i for a positive coordinate i, 2i + 1 for a negative
one) to a positive value. Missing means zero.

[GMM] P. Li, Generalized Min-Max Kernel and Generalized Consistent Weighted Sampling.
[PUFF] Aumüller et al., PUFFINN (ESA 2019). [FOREST] Bawa, Condie, Ganesan, LSH Forest (WWW 2005).
"""

import math
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Sparse = Mapping[int, float]
Expanded = Mapping[int, float]
Sample = tuple[int, int]


def from_dense(row: Iterable[float]) -> dict[int, float]:
    """Return the non-zero entries of a dense row, in float64."""
    return {i: float(x) for i, x in enumerate(row) if float(x) != 0.0}


def from_pairs(indices: Iterable[int], values: Iterable[float]) -> dict[int, float]:
    """Return the non-zero entries of a sparse row, in float64."""
    return {int(i): float(x) for i, x in zip(indices, values, strict=True) if float(x) != 0.0}


def expand(u: Sparse) -> dict[int, float]:
    """Return the non-negative form ũ of a signed vector ([GMM] eq. 4)."""
    slots: dict[int, float] = {}
    for i, x in sorted(u.items()):
        if x > 0:
            slots[2 * i] = x
        elif x < 0:
            slots[2 * i + 1] = -x
    return slots


def transform(
    u: Sparse, *, center: Sequence[float] | None = None, power: float = 1.0, normalize: str = "none"
) -> dict[int, float]:
    """Subtract μ, raise every entry's absolute value to a power, divide by a norm."""
    moved = dict(u)
    if center is not None:
        moved = {i: u.get(i, 0.0) - float(mu) for i, mu in enumerate(center)}
    raised = {i: math.copysign(abs(x) ** power, x) for i, x in moved.items() if x != 0.0}
    divisor = 1.0
    if normalize == "l1":
        divisor = math.fsum(abs(x) for x in raised.values())
    elif normalize == "l2":
        divisor = math.sqrt(math.fsum(x * x for x in raised.values()))
    return {i: x / divisor for i, x in raised.items()}


def l1_norm(u: Sparse) -> float:
    """Return ‖u‖₁, which is also ‖ũ‖₁."""
    return math.fsum(abs(x) for x in u.values())


def gmm(u: Sparse, v: Sparse) -> float:
    """Return Σ min(ũ, ṽ) / Σ max(ũ, ṽ) over all slots."""
    a, b = expand(u), expand(v)
    low = math.fsum([min(a[i], b[i]) for i in a.keys() & b.keys()])  # elsewhere it is 0
    high = math.fsum([max(a.get(i, 0.0), b.get(i, 0.0)) for i in a.keys() | b.keys()])
    return low / high


def brute_force(
    query: Sparse,
    rows: Sequence[Sparse],
    *,
    limit: int,
    min_score: float = 0.0,
    permitted: Sequence[int] | None = None,
) -> list[tuple[int, float]]:
    """Return the top (row, score), best first, equal scores by rising row."""
    scored = [
        (-gmm(query, row), i) for i, row in enumerate(rows) if permitted is None or permitted[i]
    ]
    kept = sorted(entry for entry in scored if -entry[0] >= min_score)
    return [(i, -negative) for negative, i in kept[:limit]]


@dataclass(frozen=True)
class Draw:
    """One sample evaluated at one slot: its level t and arrival a."""

    slot: int
    level: int
    arrival: float


def gcws_draw(slot: int, value: float, r: float, c: float, beta: float) -> Draw:
    """Return t = ⌊log ũ / r + β⌋ and a = log c - r(t + 1 - β) ([GMM] Alg. 1)."""
    position = math.log(value) / r + beta
    t = math.floor(position)
    a = math.log(c) - r * (t + 1 - beta)
    return Draw(slot, t, a)


def gcws_sample(
    u: Expanded, r: Mapping[int, float], c: Mapping[int, float], beta: Mapping[int, float]
) -> Sample:
    """Return (i*, t*) of one sample, whose parameters are given by slot."""
    draws = [gcws_draw(i, u[i], r[i], c[i], beta[i]) for i in sorted(u)]
    best = min(draws, key=lambda draw: (draw.arrival, draw.slot))
    return best.slot, best.level


def miss_bound(similarity: float, depth: int, probed: int, bands: int, deepest: int) -> float:
    """Return (1 - s^d)^j · (1 - s^{d+1})^{L-j} ([PUFF], [FOREST]).

    All bands are finished at depth ``depth + 1`` (none, when ``depth`` is ``deepest``), and
    ``probed`` of them at ``depth``.
    """
    missed: float = (1.0 - similarity**depth) ** probed
    if depth < deepest:
        missed *= (1.0 - similarity ** (depth + 1)) ** (bands - probed)
    return missed


@dataclass(frozen=True)
class Banding:
    """``bands`` runs of ``width`` consecutive samples each."""

    bands: int
    width: int

    def share_prefix(
        self, a: Sequence[Hashable], b: Sequence[Hashable], *, band: int, depth: int
    ) -> bool:
        """Return whether the first ``depth`` samples of a band agree."""
        start = band * self.width
        return [*a[start : start + depth]] == [*b[start : start + depth]]


@dataclass(frozen=True)
class Probed:
    """What a prefix-probing search found, and where it stopped."""

    hits: list[tuple[int, float]]
    scored: set[int]
    depth: int


@dataclass(frozen=True)
class StopRule:
    """Stop when the expected share of the best ``limit`` items missed so far is small enough.

    A hit is charged what an item of its score is missed with; a place that no hit fills yet is
    charged as an item of ``min_score``. Where that is 0 every place must be filled.
    """

    limit: int
    recall: float
    min_score: float = 0.0
    floor: float = 0.0
    """Chance that the kept bits of two different samples agree."""

    def missed(self, score: float, place: tuple[int, int], banding: Banding) -> float:
        """Return the probability that an item of this score is unseen at (depth, probed)."""
        match = score + (1.0 - score) * self.floor
        return miss_bound(match, *place, banding.bands, banding.width)

    def holds(
        self, hits: Sequence[tuple[int, float]], place: tuple[int, int], banding: Banding
    ) -> bool:
        """Return whether probing may stop."""
        if not self.min_score and len(hits) < self.limit:
            return False
        empty = self.missed(self.min_score, place, banding)
        charged = [self.missed(score, place, banding) for _, score in hits]
        total = math.fsum(charged) + (self.limit - len(hits)) * empty
        return total / self.limit <= 1.0 - self.recall


def prefix_search(
    banding: Banding,
    query: Sequence[Hashable],
    rows: Sequence[tuple[Sequence[Hashable], float]],
    rule: StopRule,
) -> Probed:
    """Probe deep prefixes first, band by band, until the rule lets the search stop.

    ``rows`` holds every row's signature and its exact similarity to the query. The scores of hits
    count in the rule as they are; hits below ``min_score`` are none.
    """
    seen: set[int] = set()

    def top() -> list[tuple[int, float]]:
        kept = [(i, rows[i][1]) for i in seen if rows[i][1] >= rule.min_score]
        return sorted(kept, key=lambda hit: (-hit[1], hit[0]))[: rule.limit]

    for depth in range(banding.width, 0, -1):
        for band in range(banding.bands):
            for row, (signature, _) in enumerate(rows):
                if banding.share_prefix(query, signature, band=band, depth=depth):
                    seen.add(row)
            hits = top()
            if rule.holds(hits, (depth, band + 1), banding):
                return Probed(hits, seen, depth)
    return Probed(top(), seen, 1)


def recall_by_score(
    found: Sequence[float], truth: Sequence[float], *, tolerance: float = 1e-12
) -> float:
    """Return the share of the true hits reached, by score, so that ties cannot lower it."""
    if not truth:
        return 1.0
    threshold = truth[-1] * (1.0 - tolerance)
    return min(1.0, sum(1 for score in found if score >= threshold) / len(truth))


def is_falling(scores: Iterable[float]) -> bool:
    """Return whether no score is above the one before it."""
    return all(a >= b for a, b in pairwise(scores))


def rounded(row: Iterable[float], *, step: float, low: int, high: int) -> list[int]:
    """Return a row in whole units, values out of range cut off."""
    return [min(max(round(x / step), low), high) for x in row]


def pruned(
    row: int,
    candidates: Iterable[int],
    distance: Callable[[int, int], float],
    *,
    most: int,
    diversity: float,
) -> list[int]:
    """Return those that no neighbour chosen before is much nearer to than the row is."""
    chosen: list[int] = []
    for candidate in candidates:
        if len(chosen) == most:
            break
        near = distance(row, candidate) / diversity
        if candidate != row and all(distance(candidate, other) >= near for other in chosen):
            chosen.append(candidate)
    return chosen


@dataclass(frozen=True)
class Walked:
    """What a walk over lists found: its best permitted rows, best first, and what it knows.

    ``known`` are the rows that may still be read or have been, ``seen`` all rows met, and ``read``
    those whose lists were read.
    """

    beam: list[int]
    known: set[int]
    seen: set[int]
    read: set[int]


def best_first(  # noqa: PLR0913 (where it begins, where it ends)
    entries: Iterable[int],
    lists: Sequence[Sequence[int]],
    score: Callable[[int], float],
    *,
    beam: int,
    most: int,
    reach: tuple[int, float] = (1, math.inf),
    permitted: Container[int] | None = None,
    after: Walked | None = None,
) -> Walked:
    """Read the list of the best row again and again, until the beam cannot get better.

    With ``reach`` (k, c), rows more than c times as far away as the k-th best are of no use, and
    ``most`` lists are read; else, those of the ``most`` best rows, and until 32 rows are seen. With
    ``permitted``, only such rows are hits, any row may lead the way, and lists are read until no
    row is nearer than the ``most``-th hit; the beam has room for one row more for each other one
    that came into it. Rows that score as much as that hit are read, too, until there are k hits
    that score no less. A walk goes on ``after`` another with what that knows: rows that were of no
    use then are forgotten. Of equal scores the higher row comes first.
    """
    start = after or Walked([], set(), set(), set())
    held, known, seen, read = start.beam, set(start.known), set(start.seen), set(start.read)
    new, inserted = set(entries) - seen, set(known)
    seen |= new
    wanted, times = reach

    def key(row: int) -> tuple[float, int]:
        return score(row), row

    def is_hit(row: int) -> bool:
        return permitted is None or row in permitted

    def room() -> int:
        return beam + sum(not is_hit(row) for row in inserted)

    def is_of_use(row: int) -> bool:
        if len(known) >= room() and key(row) < min(map(key, known)):
            return False
        if len(held) < wanted or times == math.inf:
            return True
        away = 1.0 - score(held[wanted - 1])
        return 1.0 - score(row) <= away + (times - 1.0) * max(away, 0.02)

    def is_tied(row: int) -> bool:
        if most == 0 or len(held) < most or score(held[most - 1]) != score(row):
            return False
        return len(held) < wanted or score(held[wanted - 1]) < score(row)

    def is_enough(row: int) -> bool:
        if times < math.inf:
            return len(read) >= most
        if len(seen) < 32 or is_tied(row):
            return False
        if permitted is None:
            return sorted(known, key=key, reverse=True).index(row) >= most
        return len(held) >= most and (most == 0 or key(held[most - 1]) > key(row))

    while True:
        useful = {row for row in new if is_of_use(row)}
        known |= useful
        inserted |= useful
        known = set(sorted(known, key=key, reverse=True)[: room()])
        held = sorted(filter(is_hit, known), key=key, reverse=True)
        row = max(known - read, key=key, default=None)
        if row is None or not is_of_use(row) or is_enough(row):
            return Walked(held, known, seen, read)
        read.add(row)
        new = set(lists[row]) - seen
        seen |= new
