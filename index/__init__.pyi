from .backends import POLICIES as POLICIES, Policies as Policies
from .collection.attached_backends import (
    notes_of_backend as notes_of_backend,
    require_landmarks as require_landmarks,
)
from .collection.audit import AuditedQueries as AuditedQueries, AuditedRecall as AuditedRecall
from .collection.catalog import Catalog as Catalog
from .collection.check import Report as Report, check_directory as check_directory
from .collection.compare import Comparison as Comparison, require_two as require_two
from .collection.describe import (
    BackendDescription as BackendDescription,
    Description as Description,
    Summary as Summary,
    WeightsDescription as WeightsDescription,
    describe_weights as describe_weights,
)
from .collection.expiry import (
    Expirations as Expirations,
    expiry_ms as expiry_ms,
    expiry_text as expiry_text,
    lasting as lasting,
    with_ttl as with_ttl,
)
from .collection.fit import (
    config_with as config_with,
    sample_size as sample_size,
    weights_of as weights_of,
)
from .collection.groups import (
    GroupedRows as GroupedRows,
    join_groups as join_groups,
    rank_rows as rank_rows,
)
from .collection.hints import (
    MAX_HINTED as MAX_HINTED,
    KnownWords as KnownWords,
    hints_of as hints_of,
    hints_on_rows as hints_on_rows,
    name_hints as name_hints,
)
from .collection.item_map import MAX_ALSO as MAX_ALSO, map_items as map_items
from .collection.items import (
    ItemBatch as ItemBatch,
    Page as Page,
    QueryResult as QueryResult,
    QueryResults as QueryResults,
    ShardsAsked as ShardsAsked,
    StoredItem as StoredItem,
    Total as Total,
    check_ids as check_ids,
    cursor_of as cursor_of,
    number_beyond as number_beyond,
    number_items as number_items,
    pair_order as pair_order,
    rank_pairs as rank_pairs,
    sequence_of as sequence_of,
    taken_rows as taken_rows,
)
from .collection.join import (
    JoinedRows as JoinedRows,
    ranked_hits as ranked_hits,
    require_joinable as require_joinable,
    stored_vectors as stored_vectors,
)
from .collection.profile import (
    MAX_PROFILE_SAMPLE as MAX_PROFILE_SAMPLE,
    PROFILE_SAMPLE as PROFILE_SAMPLE,
    profile as profile,
)
from .collection.ranking import (
    GroupedHit as GroupedHit,
    continue_ranking as continue_ranking,
    cut_page as cut_page,
    deepen as deepen,
    page_searches as page_searches,
    search_groups as search_groups,
    with_key as with_key,
)
from .collection.reclaim import Vacuumed as Vacuumed, vacuum_directory as vacuum_directory
from .collection.similar import (
    LeftOut as LeftOut,
    Near as Near,
    find_similar as find_similar,
    similar_items as similar_items,
    split_similar as split_similar,
)
from .collection.stored_collection import StoredCollection as StoredCollection
from .collection.writer import (
    COMMIT_BOUNDS as COMMIT_BOUNDS,
    GroupCommit as GroupCommit,
    Put as Put,
    QueuedWrite as QueuedWrite,
    Run as Run,
    WriteResult as WriteResult,
    last_places as last_places,
    require_distinct as require_distinct,
)
from .contracts.analysis import (
    MAX_SHARES as MAX_SHARES,
    NO_NEIGHBOUR as NO_NEIGHBOUR,
    SHARES as SHARES,
    Arrangement as Arrangement,
    BackendComparison as BackendComparison,
    Contained as Contained,
    CostCurve as CostCurve,
    CurvePoint as CurvePoint,
    Explained as Explained,
    Group as Group,
    GroupMode as GroupMode,
    GroupParams as GroupParams,
    Island as Island,
    ItemMap as ItemMap,
    JoinParams as JoinParams,
    MapParams as MapParams,
    PairParams as PairParams,
    Places as Places,
    Rest as Rest,
    Share as Share,
    SimilarItem as SimilarItem,
)
from .contracts.arrays import (
    AnyArray as AnyArray,
    Float64s as Float64s,
    Int32s as Int32s,
    Int64s as Int64s,
    UInt64s as UInt64s,
)
from .contracts.batches import (
    JsonVector as JsonVector,
    RawBatch as RawBatch,
    SparseVector as SparseVector,
    Text as Text,
    VectorBatch as VectorBatch,
    concatenate as concatenate,
    named_vector as named_vector,
    names_of as names_of,
)
from .contracts.errors import (
    BackendExists as BackendExists,
    BackendNotFound as BackendNotFound,
    CollectionBusy as CollectionBusy,
    CollectionExists as CollectionExists,
    CollectionLoading as CollectionLoading,
    CollectionNotFound as CollectionNotFound,
    Conflict as Conflict,
    DamagedFile as DamagedFile,
    DamagedSnapshot as DamagedSnapshot,
    DirectoryLocked as DirectoryLocked,
    DiskFull as DiskFull,
    GcwsError as GcwsError,
    IncompatibleFile as IncompatibleFile,
    InvalidFilter as InvalidFilter,
    InvalidId as InvalidId,
    InvalidInput as InvalidInput,
    InvalidParameter as InvalidParameter,
    InvalidPayload as InvalidPayload,
    InvalidVector as InvalidVector,
    ItemExists as ItemExists,
    ItemNotFound as ItemNotFound,
    Loc as Loc,
    NotFound as NotFound,
    OutOfDescriptors as OutOfDescriptors,
    PrimaryBackend as PrimaryBackend,
    SnapshotExists as SnapshotExists,
    SnapshotNotFound as SnapshotNotFound,
    StorageFailed as StorageFailed,
    StoreError as StoreError,
    VersionConflict as VersionConflict,
    error_words as error_words,
    place_errors as place_errors,
    quantity as quantity,
    raise_first as raise_first,
    require_one as require_one,
    too_many_pairs as too_many_pairs,
)
from .contracts.hits import METHODS as METHODS, Explanation as Explanation, Pairs as Pairs
from .contracts.parameters import (
    BACKEND_KINDS as BACKEND_KINDS,
    MAX_DIM as MAX_DIM,
    MAX_ID_LENGTH as MAX_ID_LENGTH,
    SHAPES as SHAPES,
    BackendKind as BackendKind,
    BackendParams as BackendParams,
    CollectionConfig as CollectionConfig,
    Distribution as Distribution,
    Encoding as Encoding,
    ExactParams as ExactParams,
    Form as Form,
    FourierKind as FourierKind,
    FourierParams as FourierParams,
    GcwsParams as GcwsParams,
    Guarantee as Guarantee,
    Mode as Mode,
    Normalize as Normalize,
    NystroemKind as NystroemKind,
    NystroemParams as NystroemParams,
    PutMode as PutMode,
    RandomBinningParams as RandomBinningParams,
    Rerank as Rerank,
    SearchParams as SearchParams,
    Storage as Storage,
    TextParams as TextParams,
    Transform as Transform,
    UnlessSimilar as UnlessSimilar,
    WeightKind as WeightKind,
    Within as Within,
    backend_document as backend_document,
    backend_params as backend_params,
    put_mode as put_mode,
)
from .contracts.policies import PairPolicy as PairPolicy
from .contracts.saved_index import notes_of as notes_of, text_of as text_of
from .contracts.scores import (
    Ranking as Ranking,
    ScoreKind as ScoreKind,
    check_score as check_score,
    least_ranked as least_ranked,
    ranking_of as ranking_of,
    score_of as score_of,
)
from .hashing.gcws import ALGORITHM_VERSION as ALGORITHM_VERSION, Signatures as Signatures
from .joins import pair_scores as pair_scores
from .memory import memory_bytes as memory_bytes
from .payload import (
    Columns as Columns,
    Filter as Filter,
    PayloadChange as PayloadChange,
    check_metadata as check_metadata,
    first_scalar as first_scalar,
    has_long_number as has_long_number,
    item_text as item_text,
    parse_filter as parse_filter,
    split_text as split_text,
    with_text as with_text,
)
from .similarities import (
    KERNEL_NAMES as KERNEL_NAMES,
    Kernel as Kernel,
    correlation_from_gmm as correlation_from_gmm,
    folded_rbf as folded_rbf,
    gaussian as gaussian,
    kernel_named as kernel_named,
    laplace as laplace,
    polya as polya,
    rbf as rbf,
    score as score,
    similarity as similarity,
)
from .storage.connection import storage_error as storage_error
from .storage.data_directory import check_name as check_name, sync_file as sync_file
from .storage.schema import (
    BackendRecord as BackendRecord,
    LoadRecord as LoadRecord,
    content_checksum as content_checksum,
    name_checksum as name_checksum,
)
from .storage.snapshots import Incoming as Incoming, Snapshot as Snapshot, Snapshots as Snapshots
from .threads import (
    StoppedError as StoppedError,
    give_way as give_way,
    gives_way as gives_way,
    limit_blas as limit_blas,
    work_alone as work_alone,
)
from .vectors.inputs import (
    InputVectors as InputVectors,
    OneVector as OneVector,
    bad_rows as bad_rows,
    require_different_names as require_different_names,
    with_coordinates as with_coordinates,
)
from .vectors.names import (
    MAX_NAME_LENGTH as MAX_NAME_LENGTH,
    CoordinateNames as CoordinateNames,
    NamedCoordinate as NamedCoordinate,
    check_names as check_names,
)
from .vectors.space import VectorSpace as VectorSpace
from .vectors.weights import Weights as Weights
from .warmup.compile import (
    compile_kernels as compile_kernels,
    kernels_are_cached as kernels_are_cached,
)
