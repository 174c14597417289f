"""Ours and its rivals: each is an index of L1-normalised rows that answers a whole batch.

On such rows L1 distance, Bray-Curtis distance and GMM rank equally, so every library can search for
the same neighbours in its fastest way.
"""

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numba
import numpy as np
from numba.np.numpy_support import carray
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.harness.datasets import Vectors
from benchmarks.harness.engine import Engine
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.warmup.compile import compile_kernels

LIMIT: Final = 10
WARM_QUERIES: Final = 2

Rows = NDArray[np.int64]
"""(queries, LIMIT) int64: rows found, -1 where there are fewer."""


class Method(ABC):
    """An index, built by its constructor: ``method(stored, threads=…)``."""

    NAME: ClassVar[str]
    LIBRARY: ClassVar[str]
    FORMS: ClassVar[Sequence[str]] = ("dense",)
    REFUSED: ClassVar[Mapping[str, str]] = MappingProxyType({})
    WARM_ROWS: ClassVar[int] = 2500
    """Rows enough to have everything compiled before building is timed."""
    SETTINGS: ClassVar[Sequence[float]] = (10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320, 512)
    table_seconds: float | None = None
    """Of building: what hash tables alone took, where there are any."""

    @abstractmethod
    def __init__(self, stored: Vectors, *, threads: int) -> None:
        """Build an index of these rows."""

    @classmethod
    def compile(cls, stored: Vectors, queries: Vectors) -> None:
        """Load the library and compile its code, on few rows."""
        cls(stored, threads=2).search(queries, cls.SETTINGS[0])

    @abstractmethod
    def set_threads(self, threads: int) -> bool:
        """Let later searches use this many threads; False if the library cannot."""

    @abstractmethod
    def search(self, queries: Vectors, setting: float) -> Rows:
        """Return the rows found for all queries in one call."""


class Ours(Method):
    """The default backend, asked for a recall."""

    NAME = "ours"
    LIBRARY = "numba"
    FORMS = ("dense", "sparse")
    SETTINGS = (0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.993)

    def __init__(self, stored: Vectors, *, threads: int) -> None:
        params = CollectionConfig(dim=int(stored.shape[1])).backend
        self._engine = Engine.build(stored, params, threads=threads, compiled=True)
        if not sparse.issparse(stored):  # these are hashed when a graph is built
            self.table_seconds = self._engine.table_seconds

    @classmethod
    def compile(cls, stored: Vectors, queries: Vectors) -> None:
        """Compile all kernels, or take them from numba's cache."""
        compile_kernels()
        cls(stored, threads=1).search(queries, cls.SETTINGS[0])

    def set_threads(self, threads: int) -> bool:
        """Search with this number of threads."""
        self._engine = self._engine.with_threads(threads)
        return True

    def search(self, queries: Vectors, setting: float) -> Rows:
        """Ask for this recall."""
        params = SearchParams(limit=LIMIT, recall=setting)
        found = self._engine.search(self._engine.prepare(queries), params)
        inside = np.arange(LIMIT) < found.sizes[:, None]
        return np.where(inside, found.rows[:, :LIMIT], -1)


class FaissHnsw(Method):
    """FAISS's HNSW graph under L1, 32 links, 200 candidates while building."""

    NAME = "FAISS HNSW"
    LIBRARY = "faiss"

    def __init__(self, stored: Vectors, *, threads: int) -> None:
        self._faiss = importlib.import_module("faiss")
        self._faiss.omp_set_num_threads(threads)
        self._index: Any = self._faiss.IndexHNSWFlat(stored.shape[1], 32, self._faiss.METRIC_L1)
        self._index.hnsw.efConstruction = 200
        self._index.add(np.ascontiguousarray(stored))

    def set_threads(self, threads: int) -> bool:
        """Divide a batch over this number of threads."""
        self._faiss.omp_set_num_threads(threads)
        return True

    def search(self, queries: Vectors, setting: float) -> Rows:
        """Search with this efSearch."""
        self._index.hnsw.efSearch = int(setting)
        found: Rows = self._index.search(queries, LIMIT)[1]
        return found


class PyNNDescent(Method):
    """A pruned neighbour graph by NN-descent, 30 neighbours, under L1 or Bray-Curtis."""

    NAME = "PyNNDescent"
    LIBRARY = "pynndescent"
    FORMS = ("dense", "sparse")
    WARM_ROWS = 20_000  # with 5,000 a third of its compiling was still to come
    REFUSED = MappingProxyType({"news20 tf-idf": "it needs more than 24 GB to build"})
    SETTINGS = (0.0, 0.02, 0.04, 0.07, 0.1, 0.14, 0.18, 0.22, 0.26, 0.3)

    def __init__(self, stored: Vectors, *, threads: int) -> None:
        library = importlib.import_module("pynndescent")
        numba.set_num_threads(threads)
        self._index: Any = library.NNDescent(
            stored,
            metric="braycurtis" if sparse.issparse(stored) else "manhattan",
            n_neighbors=30,
            pruning_degree_multiplier=1.5,
            diversify_prob=1.0,
            n_jobs=threads,
            random_state=0,
        )
        self._index.prepare()

    def set_threads(self, threads: int) -> bool:
        """Rebuild the search function, for one thread or for several.

        A change of ``compile_search`` is the documented way; either way it is compiled for this
        metric. PyNNDescent 0.7.0's parallel one does not compile for dense rows.
        """
        numba.set_num_threads(threads)
        if threads == 1:
            return True
        self._index.parallel_batch_queries = True
        try:
            self._index.prepare(compile_search=True)
        except numba.core.errors.TypingError:
            return False
        return True

    def search(self, queries: Vectors, setting: float) -> Rows:
        """Search with this epsilon."""
        return np.asarray(self._index.query(queries, k=LIMIT, epsilon=setting)[0], np.int64)


class USearch(Method):
    """USearch's HNSW graph under a compiled GMM metric, 32 links, 200 candidates to build."""

    NAME = "USearch"
    LIBRARY = "usearch"

    def __init__(self, stored: Vectors, *, threads: int) -> None:
        library = importlib.import_module("usearch.index")
        self._threads = threads
        self._metric = gmm_distance()
        self._index: Any = library.Index(
            ndim=stored.shape[1],
            metric=library.CompiledMetric(
                pointer=self._metric.address,
                kind=library.MetricKind.Unknown,
                signature=library.MetricSignature.ArrayArraySize,
            ),
            dtype="f32",
            connectivity=32,
            expansion_add=200,
        )
        self._index.add(np.arange(len(stored)), stored, threads=threads)

    def set_threads(self, threads: int) -> bool:
        """Divide a batch over this number of threads."""
        self._threads = threads
        return True

    def search(self, queries: Vectors, setting: float) -> Rows:
        """Search with this expansion."""
        self._index.expansion_search = int(setting)
        found = self._index.search(queries, LIMIT, threads=self._threads)
        counts = np.asarray(found.counts)[:, None]
        keys = np.asarray(found.keys).astype(np.int64)
        return np.where(np.arange(LIMIT) < counts, keys, -1)


class Nmslib(Method):
    """NMSLIB's HNSW graph under L1 on compressed rows, 32 links, 200 candidates to build."""

    NAME = "NMSLIB HNSW"
    LIBRARY = "nmslib"
    FORMS = ("sparse",)
    SETTINGS = (10, 20, 40, 60, 80, 120, 180, 270, 400, 600, 1000)

    def __init__(self, stored: Vectors, *, threads: int) -> None:
        library = importlib.import_module("nmslib")
        self._threads = threads
        self._index: Any = library.init(
            method="hnsw", space="l1_sparse", data_type=library.DataType.SPARSE_VECTOR
        )
        self._index.addDataPointBatch(stored)
        self._index.createIndex(
            {"M": 32, "efConstruction": 200, "indexThreadQty": threads, "post": 0}
        )

    def set_threads(self, threads: int) -> bool:
        """Divide a batch over this number of threads."""
        self._threads = threads
        return True

    def search(self, queries: Vectors, setting: float) -> Rows:
        """Search with this efSearch."""
        self._index.setQueryTimeParams({"efSearch": int(setting)})
        found = self._index.knnQueryBatch(queries, k=LIMIT, num_threads=self._threads)
        return padded([np.asarray(rows) for rows, _ in found])


METHODS: Final[Sequence[type[Method]]] = (FaissHnsw, PyNNDescent, USearch, Nmslib, Ours)
"""Ours last."""


def installed(method: type[Method]) -> bool:
    """Return whether the method's library can be imported here."""
    return importlib.util.find_spec(method.LIBRARY) is not None


def padded(found: Sequence[NDArray[Any]]) -> Rows:
    """Return the first ``LIMIT`` rows of each query as one array."""
    rows = np.full((len(found), LIMIT), -1, np.int64)
    for query, some in enumerate(found):
        count = min(LIMIT, len(some))
        rows[query, :count] = some[:count]
    return rows


def gmm_distance() -> Any:  # noqa: ANN401 (numba's compiled callback)
    """Return 1 - GMM of two float32 vectors as a C function (address, address, length)."""

    @numba.cfunc("float32(CPointer(float32), CPointer(float32), uint64)", fastmath=True)
    def distance(a_address: Any, b_address: Any, length: Any) -> Any:  # noqa: ANN401 (see above)
        a = carray(a_address, length)
        b = carray(b_address, length)
        zero = np.float32(0)
        shared, total = zero, zero
        for i in range(length):
            low, high = min(a[i], b[i]), max(a[i], b[i])
            shared += max(low, zero) - min(high, zero)
            total += max(high, zero) - min(low, zero)
        return np.float32(1) - shared / total

    return distance
