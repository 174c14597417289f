from .backends import (
    POLICIES as POLICIES,
)
from .backends import (
    Policies as Policies,
)
from .catalog.catalog import (
    Catalog as Catalog,
)
from .catalog.check import (
    Report as Report,
)
from .catalog.check import (
    check_directory as check_directory,
)
from .catalog.collection import (
    Collection as Collection,
)
from .catalog.describe import (
    BackendDescription as BackendDescription,
)
from .catalog.describe import (
    Description as Description,
)
from .catalog.describe import (
    Summary as Summary,
)
from .collection.compare import (
    Compared as Compared,
)
from .collection.compare import (
    Comparison as Comparison,
)
from .collection.ids import (
    MAX_ID_LENGTH as MAX_ID_LENGTH,
)
from .collection.items import (
    Hit as Hit,
)
from .collection.items import (
    ItemBatch as ItemBatch,
)
from .collection.items import (
    QueryResult as QueryResult,
)
from .collection.items import (
    QueryResults as QueryResults,
)
from .collection.items import (
    Total as Total,
)
from .contracts.arrays import (
    AnyArray as AnyArray,
)
from .contracts.arrays import (
    Int64s as Int64s,
)
from .contracts.batches import (
    NamedVector as NamedVector,
)
from .contracts.errors import (
    BackendExists as BackendExists,
)
from .contracts.errors import (
    BackendNotFound as BackendNotFound,
)
from .contracts.errors import (
    CollectionBusy as CollectionBusy,
)
from .contracts.errors import (
    CollectionExists as CollectionExists,
)
from .contracts.errors import (
    CollectionLoading as CollectionLoading,
)
from .contracts.errors import (
    CollectionNotFound as CollectionNotFound,
)
from .contracts.errors import (
    Conflict as Conflict,
)
from .contracts.errors import (
    DamagedFile as DamagedFile,
)
from .contracts.errors import (
    DamagedSnapshot as DamagedSnapshot,
)
from .contracts.errors import (
    DirectoryLocked as DirectoryLocked,
)
from .contracts.errors import (
    DiskFull as DiskFull,
)
from .contracts.errors import (
    GcwsError as GcwsError,
)
from .contracts.errors import (
    IncompatibleFile as IncompatibleFile,
)
from .contracts.errors import (
    InvalidFilter as InvalidFilter,
)
from .contracts.errors import (
    InvalidId as InvalidId,
)
from .contracts.errors import (
    InvalidInput as InvalidInput,
)
from .contracts.errors import (
    InvalidParameter as InvalidParameter,
)
from .contracts.errors import (
    InvalidPayload as InvalidPayload,
)
from .contracts.errors import (
    InvalidVector as InvalidVector,
)
from .contracts.errors import (
    ItemExists as ItemExists,
)
from .contracts.errors import (
    ItemNotFound as ItemNotFound,
)
from .contracts.errors import (
    Loc as Loc,
)
from .contracts.errors import (
    NotFound as NotFound,
)
from .contracts.errors import (
    OutOfDescriptors as OutOfDescriptors,
)
from .contracts.errors import (
    PrimaryBackend as PrimaryBackend,
)
from .contracts.errors import (
    SnapshotExists as SnapshotExists,
)
from .contracts.errors import (
    SnapshotNotFound as SnapshotNotFound,
)
from .contracts.errors import (
    StorageFailed as StorageFailed,
)
from .contracts.errors import (
    StoreError as StoreError,
)
from .contracts.explanation import (
    MAX_SHARES as MAX_SHARES,
)
from .contracts.explanation import (
    SHARES as SHARES,
)
from .contracts.explanation import (
    Explained as Explained,
)
from .contracts.explanation import (
    Share as Share,
)
from .contracts.hits import (
    Explanation as Explanation,
)
from .contracts.parameters import (
    SHAPES as SHAPES,
)
from .contracts.parameters import (
    BackendParams as BackendParams,
)
from .contracts.parameters import (
    CollectionConfig as CollectionConfig,
)
from .contracts.parameters import (
    Distribution as Distribution,
)
from .contracts.parameters import (
    Encoding as Encoding,
)
from .contracts.parameters import (
    ExactParams as ExactParams,
)
from .contracts.parameters import (
    Form as Form,
)
from .contracts.parameters import (
    FourierKind as FourierKind,
)
from .contracts.parameters import (
    FourierParams as FourierParams,
)
from .contracts.parameters import (
    GcwsParams as GcwsParams,
)
from .contracts.parameters import (
    Guarantee as Guarantee,
)
from .contracts.parameters import (
    Normalize as Normalize,
)
from .contracts.parameters import (
    NystroemParams as NystroemParams,
)
from .contracts.parameters import (
    RandomBinningParams as RandomBinningParams,
)
from .contracts.parameters import (
    Rerank as Rerank,
)
from .contracts.parameters import (
    SearchParams as SearchParams,
)
from .contracts.parameters import (
    Transform as Transform,
)
from .contracts.parameters import (
    backend_document as backend_document,
)
from .contracts.parameters import (
    backend_params as backend_params,
)
from .hashing.gcws import (
    Signatures as Signatures,
)
from .payload.filters import (
    Filter as Filter,
)
from .payload.filters import (
    parse_filter as parse_filter,
)
from .persistence.changes import (
    Mode as Mode,
)
from .persistence.changes import (
    Put as Put,
)
from .persistence.changes import (
    WriteResult as WriteResult,
)
from .persistence.item_reader import (
    Page as Page,
)
from .persistence.item_reader import (
    StoredItem as StoredItem,
)
from .persistence.reclaim import (
    Vacuumed as Vacuumed,
)
from .persistence.reclaim import (
    vacuum_directory as vacuum_directory,
)
from .similarities.correlation import (
    asymptotic_variance as asymptotic_variance,
)
from .similarities.correlation import (
    correlation_from_gmm as correlation_from_gmm,
)
from .similarities.correlation import (
    correlation_variance as correlation_variance,
)
from .similarities.correlation import (
    gmm_limit as gmm_limit,
)
from .similarities.public import (
    KERNEL_NAMES as KERNEL_NAMES,
)
from .similarities.public import (
    Kernel as Kernel,
)
from .similarities.public import (
    folded_rbf as folded_rbf,
)
from .similarities.public import (
    gaussian as gaussian,
)
from .similarities.public import (
    kernel_named as kernel_named,
)
from .similarities.public import (
    laplace as laplace,
)
from .similarities.public import (
    polya as polya,
)
from .similarities.public import (
    rbf as rbf,
)
from .similarities.public import (
    score as score,
)
from .similarities.public import (
    similarity as similarity,
)
from .storage.data_directory import (
    storage_error as storage_error,
)
from .storage.records import (
    LoadRecord as LoadRecord,
)
from .storage.snapshots import (
    Incoming as Incoming,
)
from .storage.snapshots import (
    Snapshot as Snapshot,
)
from .threads import (
    give_way as give_way,
)
from .vectors.names import (
    MAX_NAME_LENGTH as MAX_NAME_LENGTH,
)
from .vectors.names import (
    CoordinateNames as CoordinateNames,
)
from .vectors.names import (
    NamedCoordinate as NamedCoordinate,
)
from .vectors.space import (
    RawBatch as RawBatch,
)
from .vectors.space import (
    SparseVector as SparseVector,
)
from .vectors.space import (
    VectorSpace as VectorSpace,
)
from .vectors.space import (
    concatenate as concatenate,
)
from .warmup.compile import (
    compile_kernels as compile_kernels,
)
from .warmup.compile import (
    kernels_are_cached as kernels_are_cached,
)
