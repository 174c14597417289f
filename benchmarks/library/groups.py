"""Groups of near-copies among sets, and datasketch: ``python -m benchmarks.library.groups``.

Both get the same sets of 100 numbers, a fifth of them copies with up to twelve numbers changed.
datasketch is queried with each set before its insertion, as its documentation does; the answers
join the sets. The truth is all pairs at or above the minimum score.
"""

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import process_time
from typing import Final

import numpy as np
import pyarrow.parquet as pq
from datasketch import MinHash, MinHashLSH
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

import gcws_search
from benchmarks.harness.report import Table, arguments
from gcws_search.index.warmup.compile import compile_kernels

ROWS: Final = 100_000
NONZEROS: Final = 100
_DIM: Final = 1 << 20
_COPIED: Final = 0.2
_MAX_CHANGED: Final = 12
_PERMUTATIONS: Final = 256
LEAST: Final = 0.8
_BESIDE: Final = "MinHashLSH takes so many times of both"
COLUMNS: Final = (
    "method", "asked", "loading, processor s", "grouping, processor s", _BESIDE,
    "members found", "members that are none", "exact scores",
)  # fmt: skip

Sets = NDArray[np.int64]
Pair = tuple[int, int]


def made_sets(rows: int) -> Sets:
    """Return (rows, 100) numbers, rising in each row; the last fifth are changed copies."""
    rng = np.random.default_rng(0)
    own = round(rows * (1 - _COPIED))
    sets = rng.integers(0, _DIM, (rows, NONZEROS))
    changed = rng.integers(0, _MAX_CHANGED, rows - own)
    kept = np.arange(NONZEROS) >= changed[:, None]
    sets[own:] = np.where(kept, sets[rng.integers(0, own, rows - own)], sets[own:])
    return np.sort(sets, axis=1)


def as_matrix(sets: Sets) -> sparse.csr_matrix:
    """Return the sets as rows of ones."""
    starts = np.arange(0, sets.size + 1, NONZEROS)
    ones = np.ones(sets.size, np.float32)
    matrix = sparse.csr_matrix((ones, sets.ravel(), starts), (len(sets), _DIM))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def labels_of(pairs: Iterable[Pair], rows: int) -> NDArray[np.int64]:
    """Return the least row of the group of each row."""
    a, b = np.array([*pairs], np.int64).reshape(-1, 2).T
    graph = sparse.coo_matrix((np.ones(len(a)), (a, b)), (rows, rows))
    _, group = connected_components(graph, directed=False)
    first = np.full(group.max() + 1, rows)
    np.minimum.at(first, group, np.arange(rows))
    labels: NDArray[np.int64] = first[group]
    return labels


def ours(sets: Sets, recall: float) -> Iterator[list[Pair]]:
    """Load; then yield each member with the item that is kept."""
    with gcws_search.Collection.open(":memory:", dim=None) as collection:
        collection.add(as_matrix(sets))
        yield []
        yield [
            (int(group.representative), int(member))
            for group in collection.groups(min_score=LEAST, recall=recall)
            for member, _ in group.members
        ]


def from_files(sets: Sets) -> Iterator[list[Pair]]:
    """Write a file, which counts as loading; then find its groups without a collection."""
    with tempfile.TemporaryDirectory() as name:
        source, folder = Path(name) / "sets.npz", Path(name) / "out"
        sparse.save_npz(source, as_matrix(sets), compressed=False)
        yield []
        gcws_search.dedupe(source, folder, min_score=LEAST)
        table = pq.read_table(folder / "groups.parquet", columns=["representative", "id"])
        columns = (column.cast("int64").to_pylist() for column in table.columns)
        yield [*zip(*columns, strict=True)]


def datasketch(sets: Sets) -> Iterator[list[Pair]]:
    """Sketch; then yield each set with those before it that are taken for its near-copies."""
    rows = ([number.to_bytes(4, "little") for number in row] for row in sets.tolist())
    sketches = MinHash.bulk(rows, num_perm=_PERMUTATIONS)
    yield []
    lsh = MinHashLSH(threshold=LEAST, num_perm=_PERMUTATIONS)
    pairs = []
    for row, sketch in enumerate(sketches):
        pairs += [(row, other) for other in lsh.query(sketch)]
        lsh.insert(row, sketch, check_duplication=False)
    yield pairs


def main() -> None:
    """Measure and print."""
    parser = arguments("Groups of near-copies among sets.", data=False)
    parser.add_argument("--rows", type=int, default=ROWS, metavar="SETS")
    options = parser.parse_args()
    compile_kernels()
    sets = made_sets(options.rows)
    for warm in (ours(sets[:5000], 0.9), from_files(sets[:5000])):
        deque(warm, maxlen=0)
    methods: tuple[tuple[str, str, Callable[[], Iterator[list[Pair]]]], ...] = (
        ("`groups`", "1", lambda: ours(sets, 1.0)),
        ("`groups`", "0.9", lambda: ours(sets, 0.9)),
        ("`dedupe` of a file", "0.95", lambda: from_files(sets)),
        (f"MinHashLSH, {_PERMUTATIONS} permutations", "", lambda: datasketch(sets)),
    )
    table, alone = Table("groups", COLUMNS), np.arange(len(sets))
    truth, every = alone, list[float]()
    for name, asked, work in methods:
        times = [process_time()]
        pairs: list[Pair] = []
        for found in work():
            times.append(process_time())
            pairs = found
        labels = labels_of(pairs, len(sets))
        truth = labels if table.rows == [] else truth
        grouped = (truth != alone) & (labels != alone)
        table.add(
            name,
            asked,
            *np.diff(times).tolist(),
            "",
            f"{grouped.sum() / max(1, (truth != alone).sum()):.4f}",
            int(((labels != alone) & (truth == alone)).sum()),
            "yes" if asked else "no",
        )
        every.append(times[-1] - times[0])
        print(table.rows[-1], flush=True)
    at = COLUMNS.index(_BESIDE)
    table.rows = [
        [*row[:at], f"{every[-1] / seconds:.1f} ×", *row[at + 1 :]]
        for row, seconds in zip(table.rows, every, strict=True)
    ]
    table.notes.append(
        f"{options.rows:,} sets of {NONZEROS} elements, minimum score {LEAST}. Loading is `add`, "
        "sketching by datasketch, or writing a file. Grouping is `groups`, `dedupe`, or a query by "
        "each set before it is inserted. A member is an item of a group other than its first."
    )
    table.publish(options, threads="kernels on all cores, datasketch on one")


if __name__ == "__main__":
    main()
