"""Near-neighbour search for weighted, signed vectors under GMM: arrays in, hits out.

`Catalog` holds collections on disk and in memory; everything a caller needs is named here.
"""

from index.arrays import AnyArray, Int64s
from index.catalog import Catalog, Summary
from index.changes import Put, WriteResult
from index.checking import Report, check_directory
from index.comparison import Compared, Comparison
from index.correlation import (
    asymptotic_variance,
    correlation_from_gmm,
    correlation_variance,
    gmm_limit,
)
from index.description import BackendDescription, Description
from index.errors import (
    BackendExists,
    BackendNotFound,
    CollectionExists,
    CollectionLoading,
    CollectionNotFound,
    Conflict,
    DamagedFile,
    DamagedSnapshot,
    DirectoryLocked,
    DiskFull,
    GcwsError,
    IncompatibleFile,
    InvalidFilter,
    InvalidId,
    InvalidInput,
    InvalidParameter,
    InvalidPayload,
    InvalidVector,
    ItemExists,
    ItemNotFound,
    Loc,
    NotFound,
    PrimaryBackend,
    SnapshotExists,
    SnapshotNotFound,
    StoreError,
)
from index.filters import Filter, parse_filter
from index.hashing import Signatures
from index.hits import Explanation
from index.ids import MAX_ID_LENGTH
from index.items import Hit, ItemBatch, QueryResult, QueryResults, Total
from index.pages import Page, StoredItem
from index.parallel import give_way
from index.params import (
    SHAPES,
    BackendParams,
    CollectionConfig,
    ExactParams,
    FourierParams,
    GcwsParams,
    NystroemParams,
    RandomBinningParams,
    SearchParams,
    Transform,
    backend_document,
    backend_params,
)
from index.similarity import (
    KERNEL_NAMES,
    Kernel,
    folded_rbf,
    gaussian,
    kernel_named,
    laplace,
    polya,
    rbf,
    score,
    similarity,
)
from index.snapshots import Incoming, Snapshot
from index.stored import StoredCollection
from index.tidying import Vacuumed, vacuum_directory
from index.vectors import RawBatch, SparseVector, VectorSpace, concatenate
from index.warmup import compile_kernels, kernels_are_cached

__all__ = [
    "KERNEL_NAMES",
    "MAX_ID_LENGTH",
    "SHAPES",
    "AnyArray",
    "BackendDescription",
    "BackendExists",
    "BackendNotFound",
    "BackendParams",
    "Catalog",
    "CollectionConfig",
    "CollectionExists",
    "CollectionLoading",
    "CollectionNotFound",
    "Compared",
    "Comparison",
    "Conflict",
    "DamagedFile",
    "DamagedSnapshot",
    "Description",
    "DirectoryLocked",
    "DiskFull",
    "ExactParams",
    "Explanation",
    "Filter",
    "FourierParams",
    "GcwsError",
    "GcwsParams",
    "Hit",
    "Incoming",
    "IncompatibleFile",
    "Int64s",
    "InvalidFilter",
    "InvalidId",
    "InvalidInput",
    "InvalidParameter",
    "InvalidPayload",
    "InvalidVector",
    "ItemBatch",
    "ItemExists",
    "ItemNotFound",
    "Kernel",
    "Loc",
    "NotFound",
    "NystroemParams",
    "Page",
    "PrimaryBackend",
    "Put",
    "QueryResult",
    "QueryResults",
    "RandomBinningParams",
    "RawBatch",
    "Report",
    "SearchParams",
    "Signatures",
    "Snapshot",
    "SnapshotExists",
    "SnapshotNotFound",
    "SparseVector",
    "StoreError",
    "StoredCollection",
    "StoredItem",
    "Summary",
    "Total",
    "Transform",
    "Vacuumed",
    "VectorSpace",
    "WriteResult",
    "asymptotic_variance",
    "backend_document",
    "backend_params",
    "check_directory",
    "compile_kernels",
    "concatenate",
    "correlation_from_gmm",
    "correlation_variance",
    "folded_rbf",
    "gaussian",
    "give_way",
    "gmm_limit",
    "kernel_named",
    "kernels_are_cached",
    "laplace",
    "parse_filter",
    "polya",
    "rbf",
    "score",
    "similarity",
    "vacuum_directory",
]
