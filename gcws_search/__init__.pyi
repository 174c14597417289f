from .client.collection import (
    AsyncCollection as AsyncCollection,
)
from .client.collection import (
    Collection as Collection,
)
from .client.connection import (
    AsyncServer as AsyncServer,
)
from .client.connection import (
    Server as Server,
)
from .client.connection import (
    connect as connect,
)
from .client.connection import (
    connect_async as connect_async,
)
from .client.errors import (
    AccessRefused as AccessRefused,
)
from .client.errors import (
    NoServer as NoServer,
)
from .client.errors import (
    ServerBusy as ServerBusy,
)
from .client.errors import (
    ServerError as ServerError,
)
from .client.results import (
    Added as Added,
)
from .client.results import (
    Hit as Hit,
)
from .client.results import (
    Hits as Hits,
)
from .client.results import (
    Item as Item,
)
from .client.results import (
    ManyHits as ManyHits,
)
from .client.results import (
    Pair as Pair,
)
from .client.results import (
    Rejected as Rejected,
)
from .client.retries import (
    RetryPolicy as RetryPolicy,
)
from .index import (
    KERNEL_NAMES as KERNEL_NAMES,
)
from .index import (
    BackendDescription as BackendDescription,
)
from .index import (
    BackendExists as BackendExists,
)
from .index import (
    BackendNotFound as BackendNotFound,
)
from .index import (
    BackendParams as BackendParams,
)
from .index import (
    Catalog as Catalog,
)
from .index import (
    CollectionBusy as CollectionBusy,
)
from .index import (
    CollectionConfig as CollectionConfig,
)
from .index import (
    CollectionExists as CollectionExists,
)
from .index import (
    CollectionLoading as CollectionLoading,
)
from .index import (
    CollectionNotFound as CollectionNotFound,
)
from .index import (
    Compared as Compared,
)
from .index import (
    Comparison as Comparison,
)
from .index import (
    Conflict as Conflict,
)
from .index import (
    DamagedFile as DamagedFile,
)
from .index import (
    DamagedSnapshot as DamagedSnapshot,
)
from .index import (
    Description as Description,
)
from .index import (
    DirectoryLocked as DirectoryLocked,
)
from .index import (
    DiskFull as DiskFull,
)
from .index import (
    ExactParams as ExactParams,
)
from .index import (
    Explained as Explained,
)
from .index import (
    Explanation as Explanation,
)
from .index import (
    Filter as Filter,
)
from .index import (
    FourierParams as FourierParams,
)
from .index import (
    GcwsError as GcwsError,
)
from .index import (
    GcwsParams as GcwsParams,
)
from .index import (
    IncompatibleFile as IncompatibleFile,
)
from .index import (
    InvalidFilter as InvalidFilter,
)
from .index import (
    InvalidId as InvalidId,
)
from .index import (
    InvalidInput as InvalidInput,
)
from .index import (
    InvalidParameter as InvalidParameter,
)
from .index import (
    InvalidPayload as InvalidPayload,
)
from .index import (
    InvalidVector as InvalidVector,
)
from .index import (
    ItemBatch as ItemBatch,
)
from .index import (
    ItemExists as ItemExists,
)
from .index import (
    ItemNotFound as ItemNotFound,
)
from .index import (
    Kernel as Kernel,
)
from .index import (
    NotFound as NotFound,
)
from .index import (
    NystroemParams as NystroemParams,
)
from .index import (
    OutOfDescriptors as OutOfDescriptors,
)
from .index import (
    Page as Page,
)
from .index import (
    PrimaryBackend as PrimaryBackend,
)
from .index import (
    Put as Put,
)
from .index import (
    QueryResult as QueryResult,
)
from .index import (
    QueryResults as QueryResults,
)
from .index import (
    RandomBinningParams as RandomBinningParams,
)
from .index import (
    RawBatch as RawBatch,
)
from .index import (
    Report as Report,
)
from .index import (
    SearchParams as SearchParams,
)
from .index import (
    Share as Share,
)
from .index import (
    Signatures as Signatures,
)
from .index import (
    Snapshot as Snapshot,
)
from .index import (
    SnapshotExists as SnapshotExists,
)
from .index import (
    SnapshotNotFound as SnapshotNotFound,
)
from .index import (
    SparseVector as SparseVector,
)
from .index import (
    StorageFailed as StorageFailed,
)
from .index import (
    StoredItem as StoredItem,
)
from .index import (
    StoreError as StoreError,
)
from .index import (
    Summary as Summary,
)
from .index import (
    Total as Total,
)
from .index import (
    Transform as Transform,
)
from .index import (
    Vacuumed as Vacuumed,
)
from .index import (
    VectorSpace as VectorSpace,
)
from .index import (
    WriteResult as WriteResult,
)
from .index import (
    asymptotic_variance as asymptotic_variance,
)
from .index import (
    backend_params as backend_params,
)
from .index import (
    check_directory as check_directory,
)
from .index import (
    compile_kernels as compile_kernels,
)
from .index import (
    concatenate as concatenate,
)
from .index import (
    correlation_from_gmm as correlation_from_gmm,
)
from .index import (
    correlation_variance as correlation_variance,
)
from .index import (
    folded_rbf as folded_rbf,
)
from .index import (
    gaussian as gaussian,
)
from .index import (
    gmm_limit as gmm_limit,
)
from .index import (
    kernel_named as kernel_named,
)
from .index import (
    kernels_are_cached as kernels_are_cached,
)
from .index import (
    laplace as laplace,
)
from .index import (
    parse_filter as parse_filter,
)
from .index import (
    polya as polya,
)
from .index import (
    rbf as rbf,
)
from .index import (
    score as score,
)
from .index import (
    similarity as similarity,
)
from .index import (
    storage_error as storage_error,
)
from .index import (
    vacuum_directory as vacuum_directory,
)
