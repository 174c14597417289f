"""Texts loaded and grouped by commands: ``python -m benchmarks.service.texts``.

The texts are the descriptions of the packages that apt knows. Groups are compared with those of
all pairs, which sparse products of scikit-learn's rows give.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
import psutil
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.feature_extraction.text import CountVectorizer

from benchmarks.harness.report import Table, arguments
from benchmarks.harness.server import serving
from gcws_search.index.contracts.parameters import TextParams
from gcws_search.index.vectors.texts import rows_of_texts

LEAST: Final = 0.8
COLUMNS: Final = (
    "texts", "tokens", "rows, s", "load, s", "groups, s", "both, s", "processor, s",
    "pairs", "groups", "as brute force",
)  # fmt: skip
_BLOCK: Final = 500
_COMMAND: Final = (sys.executable, "-m", "gcws_search")


def descriptions() -> dict[str, str]:
    """Return the first description of each package that apt knows."""
    told = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True)
    found: dict[str, str] = {}
    for entry in told.stdout.split("\n\n"):
        name = re.search(r"^Package: (.*)", entry, re.MULTILINE)
        text = re.search(r"^Description(?:-en)?: (.*(?:\n .*)*)", entry, re.MULTILINE)
        if name and text and re.search(r"\w", text[1]):
            found.setdefault(name[1], text[1])
    return found


def all_pairs(texts: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs of texts whose sets of words are so much alike, each once."""
    words = CountVectorizer(token_pattern=r"(?u)\b\w+\b", binary=True, dtype=np.float32)
    rows = words.fit_transform(texts).tocsr()
    sizes = np.asarray(rows.sum(axis=1)).ravel()
    columns = rows.T.tocsr()
    found: list[NDArray[np.int64]] = []
    for first in range(0, len(texts), _BLOCK):
        shared = (rows[first : first + _BLOCK] @ columns).tocoo()
        a, b = shared.row + first, shared.col
        near = (b > a) & (shared.data / (sizes[a] + sizes[b] - shared.data) >= np.float32(LEAST))
        found.append(np.stack([a[near], b[near]]).astype(np.int64))
    a, b = np.concatenate(found, axis=1)
    return a, b


def partition(a: NDArray[np.int64], b: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the least row of the group of each row."""
    graph = sparse.coo_matrix((np.ones(len(a)), (a, b)), (count, count))
    _, group = connected_components(graph, directed=False)
    first = np.full(group.max() + 1, count)
    np.minimum.at(first, group, np.arange(count))
    labels: NDArray[np.int64] = first[group]
    return labels


def command(port: int, *words: str) -> None:
    """Run a command that asks the server."""
    variables = {**os.environ, "GCWS_URL": f"http://127.0.0.1:{port}"}
    subprocess.run([*_COMMAND, *words], env=variables, check=True, capture_output=True)


def commands_seconds() -> float:
    """Return the processor's seconds of the processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def measured(texts: dict[str, str], folder: Path) -> tuple[list[float], NDArray[np.int64]]:
    """Return seconds of loading, of grouping and of the processor, and the groups' labels."""
    lines, groups = folder / "texts.jsonl", folder / "groups.parquet"
    rows = ({"name": name, "body": text} for name, text in texts.items())
    lines.write_text("\n".join(map(json.dumps, rows)))
    with serving(folder / "data") as server:
        process = psutil.Process(server.pid)
        before, times = sum(process.cpu_times()[:2]) + commands_seconds(), [perf_counter()]
        command(server.port, "load", str(lines), "--into", "texts", "--text", "body",
                "--id", "name", "--yes")  # fmt: skip
        times.append(perf_counter())
        command(server.port, "groups", "texts", "--min-score", str(LEAST), "--recall", "1",
                "-o", str(groups))  # fmt: skip
        times.append(perf_counter())
        used = sum(process.cpu_times()[:2]) + commands_seconds() - before
    row_of = {name: row for row, name in enumerate(texts)}
    table: Any = pq.read_table(groups).to_pydict()
    labels = np.arange(len(texts))
    a = np.array([row_of[name] for name in table["representative"]])
    b = np.array([row_of[name] for name in table["id"]])
    labels = partition(a, b, len(texts))
    return [*np.diff(times).tolist(), used], labels


def main() -> None:
    """Measure and print."""
    options = arguments("Texts loaded and grouped by commands.", data=False).parse_args()
    texts = descriptions()
    listed, params = [*texts.values()], TextParams()
    rows_of_texts(listed[:1], params)
    began = perf_counter()
    rows = rows_of_texts(listed, params)
    seconds = perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        (load, group, used), labels = measured(texts, Path(folder))
    a, b = all_pairs(listed)
    truth = partition(a, b, len(listed))
    count = np.count_nonzero(np.bincount(truth) > 1)
    table = Table("texts", COLUMNS)
    same = "yes" if np.array_equal(labels, truth) else "no"
    table.add(
        len(listed), len(rows.indices), seconds, load, group, load + group, used,
        len(a), int(count), same,
    )  # fmt: skip
    table.notes.append(
        f"`load` and `groups --recall 1` at a minimum score of {LEAST}, each a process of its own, "
        "against a server that is ready. `rows` is the conversion of all texts alone. Processor "
        "time is that of the server and the commands."
    )
    table.publish(options, threads="2 processors")


if __name__ == "__main__":
    main()
