"""Joins of many vectors, beside the same queries: ``python -m benchmarks.service.joins``.

A join asks for all items at or above a least score, or for the best ten. Beside it stand the same
queries: by the route `query/batch`, of the same server, by the same client and in the same bytes
(`.npy`, Arrow); and by the library's `query_many`, in this process. All are asked by turns, so that
other work on the machine slows all of them. A query needs a limit: the most hits that a vector has.
Dense rows come in families of five; counts have a fifth of changed copies; fingerprints are of real
molecules.
"""

import http.client
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
from scipy import sparse

import gcws_search
from benchmarks.harness.client import HOST
from benchmarks.harness.datasets import Vectors, load
from benchmarks.harness.report import Table, arguments
from benchmarks.harness.server import Server, serving
from benchmarks.service.http import arrow, collection, graph_seconds, load_seconds, npy
from gcws_search.index.warmup.compile import compile_kernels

ROWS: Final = 100_000
QUERIES: Final = 10_000
_WIDTH: Final = 128
_FAMILY: Final = 5
_NONZEROS: Final = 100
_SLOTS: Final = 1 << 16
_COPIED: Final = 0.2
_TURNS: Final = 3
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_ARROW: Final = "application/vnd.apache.arrow.stream"
COLUMNS: Final = (
    "data", "asked", "recall", "hits", "share of `query_many`'s", "method", "us a vector",
    "processor, us a vector", "`join` is so many times as fast", "by processor",
)  # fmt: skip


class Cost(NamedTuple):
    """Seconds of the clock, and of all processors."""

    clock: float
    processor: float


def made_rows(rows: int) -> np.ndarray:
    """Return (rows, 128) float32 in families: each number of a row is some per cent off."""
    rng = np.random.default_rng(0)
    centers = rng.gamma(0.5, size=(rows // _FAMILY, _WIDTH))
    noise = rng.gamma(30, 1 / 30, (rows, _WIDTH))
    found: np.ndarray = (centers[rng.integers(0, len(centers), rows)] * noise).astype(np.float32)
    return found


def made_counts(rows: int) -> sparse.csr_matrix:
    """Return rows of about 100 counts, some slots common; a fifth are changed copies."""
    rng = np.random.default_rng(0)
    own = round(rows * (1 - _COPIED))
    slots = (_SLOTS ** rng.random((rows, _NONZEROS))).astype(np.int64)
    counts = rng.geometric(0.5, (rows, _NONZEROS))
    kept = np.arange(_NONZEROS) >= rng.integers(0, _NONZEROS // 4, rows - own)[:, None]
    source = rng.integers(0, own, rows - own)
    slots[own:] = np.where(kept, slots[source], slots[own:])
    counts[own:] = np.where(kept, counts[source], counts[own:])
    starts = np.arange(0, slots.size + 1, _NONZEROS)
    made = sparse.csr_matrix(
        (counts.ravel().astype(np.float32), slots.ravel(), starts), (rows, _SLOTS)
    )
    made.sum_duplicates()
    return made


def arrow_queries(vectors: Vectors) -> bytes:
    """Return compressed rows as an Arrow stream of vectors alone."""
    with pa.ipc.open_stream(arrow(vectors)) as reader:
        table = reader.read_all().drop_columns(["id"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


class Asker:
    """A client of one collection of a server."""

    def __init__(self, server: Server, name: str) -> None:
        self._connection = http.client.HTTPConnection(HOST, server.port, timeout=600)
        self._path, self._stat = collection(name), Path(f"/proc/{server.pid}/stat")

    def post(
        self, route: str, body: bytes, kind: str, params: dict[str, Any] | None = None
    ) -> bytes:
        """Return an answer."""
        path = f"{self._path}/{route}?{urlencode(params or {})}"
        self._connection.request("POST", path, body, {"Content-Type": kind})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(content[:500])
        return content

    def processor(self) -> float:
        """Return the seconds that all processors have worked for the server."""
        words = self._stat.read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / _TICKS


def timed(work: Callable[[], Any], processor: Callable[[], float]) -> Cost:
    """Return what some work takes."""
    before, began = processor(), perf_counter()
    work()
    return Cost(perf_counter() - began, processor() - before)


def least(costs: list[Cost]) -> Cost:
    """Return the least of each."""
    return Cost(*(min(each) for each in zip(*costs, strict=True)))


def compare(
    table: Table, name: str, asker: Asker, embedded: gcws_search.Collection, asked: Vectors
) -> None:
    """Add rows about one collection."""
    is_dense = isinstance(asked, np.ndarray)
    packed, kind = (npy(asked), "application/x-npy") if is_dense else (arrow_queries(asked), _ARROW)
    for options in ({"min_score": 0.8}, {"min_score": 0.5}, {"limit": 10}):
        for recall in (0.9, 1.0):
            choice: dict[str, Any] = options | {"recall": recall}
            hits = embedded.join(asked, **choice)
            most = int(np.bincount([0] if hits.rows is None else hits.rows).max()) + 1
            many: dict[str, Any] = choice | {"limit": options.get("limit", most)}
            query = many | {"with_payload": "false"}
            works: dict[str, tuple[Callable[[], Any], Callable[[], float]]] = {
                "`join`, route": (
                    lambda: asker.post("join", packed, kind, choice), asker.processor,  # noqa: B023
                ),
                "`query/batch`": (
                    lambda: asker.post("query/batch", packed, kind, query), asker.processor,  # noqa: B023
                ),
                "`join`, library": (lambda: embedded.join(asked, **choice), process_time),  # noqa: B023
                "`query_many`, library": (lambda: embedded.query_many(asked, **many), process_time),  # noqa: B023
            }  # fmt: skip
            costs: dict[str, list[Cost]] = {method: [] for method in works}
            for _ in range(_TURNS):
                for method, (work, processor) in works.items():
                    costs[method].append(timed(work, processor))
            share = len(hits) / max(
                1, int(np.isfinite(embedded.query_many(asked, **many).scores).sum())
            )
            for method, each in costs.items():
                cost = least(each)
                ours = least(costs["`join`, library" if "library" in method else "`join`, route"])
                table.add(
                    name,
                    ", ".join(f"{key} {value}" for key, value in options.items()),
                    recall,
                    len(hits),
                    f"{share:.3f}",
                    method,
                    *(seconds * 1e6 / asked.shape[0] for seconds in cost),
                    f"{cost.clock / ours.clock:.1f}",
                    f"{cost.processor / max(1e-9, ours.processor):.1f}",
                )
                print(table.rows[-1], flush=True)


def main() -> None:
    """Measure and print."""
    parser = arguments("Joins of many vectors.")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--only", choices=("dense", "counts", "muv_ecfp4"))
    options = parser.parse_args()
    compile_kernels()
    table, count = Table("joins", COLUMNS), options.rows + options.queries
    made: dict[str, Callable[[], Vectors]] = {
        "dense": lambda: made_rows(count),
        "counts": lambda: made_counts(count),
        "muv_ecfp4": lambda: load("muv_ecfp4", options.data).vectors,
    }
    for name in made if options.only is None else [options.only]:
        every = made[name]()
        order = np.random.default_rng(1).permutation(every.shape[0])
        stored, asked = every[order[options.queries :]], every[order[: options.queries]]
        dim = every.shape[1] if isinstance(every, np.ndarray) else None
        with (
            tempfile.TemporaryDirectory() as folder,
            gcws_search.Collection.open(":memory:", dim=dim) as embedded,
            serving(Path(folder)) as server,
        ):
            embedded.add(stored)
            embedded.index.optimizer.finish()
            packed = (npy(stored), "application/x-npy") if dim else (arrow(stored), _ARROW)
            load_seconds(server, name, dim, *packed)
            graph_seconds(server, name)
            compare(table, name, Asker(server, name), embedded, asked)
    table.notes.append(
        f"{options.queries:,} vectors that are not stored, against {options.rows:,} items or all "
        f"others of a data set. Minimum of {_TURNS} turns. One client on the same machine uses the "
        "route; processor time is the server's. Queries get the limit that the hits need."
    )
    table.publish(options, threads="all cores")


if __name__ == "__main__":
    main()
