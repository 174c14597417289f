"""Near-copies among texts of a file, compared with datatrove and datasketch.

``python -m benchmarks.library.corpus``. All get the same texts of 102 words, with shingles of three
words. A fifth of the texts are copies with up to four words changed. datatrove runs its MinHash
pipeline up to the clusters, with 16 buckets of 8 hashes: these find a pair of the minimum score
with the probability requested from `dedupe`. The truth is all pairs at or above the minimum score.
"""

import importlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
from datasketch import MinHash, MinHashLSH

import gcws_search
from benchmarks.harness.report import Table, arguments
from benchmarks.library.groups import COLUMNS, LEAST, Pair, labels_of
from gcws_search.index.warmup.compile import compile_kernels

ROWS: Final = 20_000
_WORDS: Final = 102
_VOCABULARY: Final = 50_000
_COPIED: Final = 0.2
_MAX_CHANGED: Final = 4
_SHINGLE: Final = 3
_BUCKETS, _HASHES = 16, 8
_PERMUTATIONS: Final = 256


def made_texts(rows: int) -> list[str]:
    """Return texts of words that are as frequent as words are; the last fifth are copies."""
    rng = np.random.default_rng(0)
    letters = np.array([*"abcdefghijklmnopqrstuvwxyz"])
    words = ["".join(rng.choice(letters, rng.integers(2, 10))) for _ in range(_VOCABULARY)]
    often = np.cumsum(1 / np.arange(1, _VOCABULARY + 1) ** 0.8)
    own = round(rows * (1 - _COPIED))
    chosen = np.searchsorted(often, rng.random((own, _WORDS)) * often[-1])
    copies = chosen[rng.integers(0, own, rows - own)]
    for copy in copies:
        changed = rng.integers(0, _WORDS, rng.integers(0, _MAX_CHANGED + 1))
        copy[changed] = rng.integers(0, _VOCABULARY, len(changed))
    return [" ".join(words[word] for word in text) for text in [*chosen, *copies]]


def ours(source: Path, folder: Path) -> list[Pair]:
    """Return each member of a group with the row that is kept, by `dedupe`."""
    gcws_search.dedupe(source, folder, min_score=LEAST, text={"ngrams": [_SHINGLE, _SHINGLE]})
    table = pq.read_table(folder / "groups.parquet", columns=["representative", "id"])
    columns = (column.cast("int64").to_pylist() for column in table.columns)
    return [*zip(*columns, strict=True)]


def datatrove(source: Path, folder: Path) -> list[Pair]:
    """Return each member of a cluster with its first row."""
    dedup: Any = importlib.import_module("datatrove.pipeline.dedup")
    minhash: Any = importlib.import_module("datatrove.pipeline.dedup.minhash")
    readers: Any = importlib.import_module("datatrove.pipeline.readers")
    executor: Any = importlib.import_module("datatrove.executor")
    config = minhash.MinhashConfig(
        num_buckets=_BUCKETS, hashes_per_bucket=_HASHES, n_grams=_SHINGLE
    )
    signatures, buckets, found = (str(folder / name) for name in ("signatures", "buckets", "found"))
    steps = (
        (1, [readers.JsonlReader(str(source.parent), glob_pattern=source.name),
             dedup.MinhashDedupSignature(signatures, config=config)]),
        (_BUCKETS, [dedup.MinhashDedupBuckets(signatures, buckets, config=config)]),
        (1, [dedup.MinhashDedupCluster(buckets, found, config=config, save_cluster_id=True)]),
    )  # fmt: skip
    for number, (tasks, steps_of) in enumerate(steps):
        logs = str(folder / f"logs-{number}")
        executor.LocalPipelineExecutor(steps_of, tasks=tasks, workers=1, logging_dir=logs).run()
    rows = np.fromfile(Path(found) / "000000.clusters", "<u4").reshape(-1, 2)
    firsts = dict[int, int]()
    return [
        (firsts.setdefault(cluster, row), row)
        for row, cluster in rows[np.argsort(rows[:, 0])].tolist()
    ]


def datasketch(source: Path, _: Path) -> list[Pair]:
    """Return each text with those before it that are taken for its near-copies."""
    lsh = MinHashLSH(threshold=LEAST, num_perm=_PERMUTATIONS)
    pairs = []
    with source.open() as file:
        for row, line in enumerate(file):
            words = json.loads(line)["text"].split()
            shingles = {" ".join(words[at : at + _SHINGLE]) for at in range(_WORDS - _SHINGLE + 1)}
            [sketch] = MinHash.bulk([[each.encode() for each in shingles]], num_perm=_PERMUTATIONS)
            pairs += [(row, other) for other in lsh.query(sketch)]
            lsh.insert(row, sketch, check_duplication=False)
    return pairs


def truth(texts: list[str]) -> Iterator[Pair]:
    """Yield all pairs at or above the least score."""
    options = {"ngrams": [_SHINGLE, _SHINGLE], "weights": "set"}
    with gcws_search.Collection.open(":memory:", text=options) as collection:
        collection.add(texts=texts)
        for pair in collection.pairs(min_score=LEAST, recall=1):
            yield int(pair.a), int(pair.b)


def main() -> None:
    """Measure and print."""
    parser = arguments("Near-copies among texts of a file.", data=False)
    parser.add_argument("--rows", type=int, default=ROWS, metavar="TEXTS")
    options = parser.parse_args()
    compile_kernels()
    texts = made_texts(options.rows)
    exact = labels_of(truth(texts), len(texts))
    alone = np.arange(len(texts))
    methods: tuple[tuple[str, Callable[[Path, Path], list[Pair]]], ...] = (
        ("`dedupe`, recall 0.95", ours),
        (f"datatrove, {_BUCKETS} buckets of {_HASHES} hashes", datatrove),
        (f"datasketch MinHashLSH, {_PERMUTATIONS} permutations", datasketch),
    )
    columns = ("method", "processor s", "us a text", "times of `dedupe`", *COLUMNS[-3:])
    table = Table("corpus", columns)
    seconds: list[float] = []
    for name, work in methods:
        with tempfile.TemporaryDirectory() as folder:
            for some in ([*texts[:400], *texts[:100]], texts):
                source, out = Path(folder) / f"{len(some)}.jsonl", Path(folder) / f"{len(some)}-out"
                lines = (json.dumps({"id": row, "text": text}) for row, text in enumerate(some))
                source.write_text("\n".join(lines) + "\n")
                began = sum(os.times()[:4])
                try:
                    pairs = work(source, out)
                except ImportError:
                    table.notes.append(f"{name.split(',')[0]} was not installed.")
                    break
                spent = sum(os.times()[:4]) - began
            else:
                seconds.append(spent)
                labels = labels_of(pairs, len(texts))
                grouped = (exact != alone) & (labels != alone)
                table.add(
                    name, spent, 1e6 * spent / len(texts), f"{spent / seconds[0]:.1f}",
                    f"{grouped.sum() / max(1, (exact != alone).sum()):.4f}",
                    int(((labels != alone) & (exact == alone)).sum()),
                    "yes" if work is ours else "no",
                )  # fmt: skip
                print(table.rows[-1], flush=True)
    table.notes.insert(0, f"{len(texts):,} texts of {_WORDS} words, minimum score {LEAST}.")
    table.publish(options, threads="kernels on all cores, rivals on one")


if __name__ == "__main__":
    main()
