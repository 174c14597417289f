// Made of openapi.json by `python -m tests.fuzz --write-page`.

declare namespace Answers {

type Query = `` | `?${string}`;

type AllowanceAnswer = {
  "limit": number | null;
  "share": number;
};

type AuditedAnswer = {
  "week": string;
  "recall": number;
  "limit": number;
  "queries": number;
  "found": number;
  "low": number;
  "high": number;
};

type BackendAnswer = {
  "name": string;
  "kind": string;
  "params": Record<string, any>;
  "primary": boolean;
  "status": "ready" | "building";
  "progress": number;
  "bytes_in_memory": number;
  "build_seconds": number;
  "stats": Record<string, any>;
};

type BatchAnswer = {
  "results": Array<BatchResult>;
};

type BatchResult = {
  "hits": Array<HitAnswer>;
  "explain"?: ExplainAnswer | null;
  "shards"?: ShardsAnswer | null;
  "error"?: Record<string, any> | null;
  "hints"?: Array<string>;
};

type BucketAnswer = {
  "size": number;
  "id": string;
};

type CollectionAnswer = {
  "name": string;
  "dim": number | null;
  "transform": Record<string, any>;
  "backend": Record<string, any>;
  "storage": "auto" | "memory" | "mapped";
  "text"?: Record<string, any>;
  "ttl"?: number;
  "metadata": Record<string, any> | null;
  "bytes": number;
  "items": number;
  "rows": number;
  "names": number;
  "weights": WeightsAnswer | null;
  "bytes_in_memory": number;
  "bytes_mapped": number;
  "bytes_on_disk": number;
  "backends": Array<BackendAnswer>;
  "commits": number;
  "commit_seconds": number;
  "versions": Record<string, string>;
};

type CollectionList = {
  "collections": Array<CollectionSummary>;
};

type CollectionSummary = {
  "name": string;
  "items": number;
  "dim": number | null;
  "backends": Array<string>;
  "bytes": number;
};

type ColumnGuess = {
  "name": string;
  "kind": "number" | "truth" | "text";
  "role": "id" | "vector" | "text" | "payload" | null;
  "missing": number;
  "share": number | null;
};

type CompareAnswer = {
  "queries": number;
  "limit": number;
  "recall": number;
  "backends": Array<ComparedAnswer>;
  "mean_similarity": Array<number>;
};

type ComparedAnswer = {
  "name": string;
  "kind": string;
  "kernel": string;
  "recall": number;
  "recall_own": number;
  "latency_p50_seconds": number;
  "latency_p95_seconds": number;
  "candidates": number;
  "bytes_per_item": number;
  "build_seconds": number;
};

type ContainedAnswer = {
  "a": number;
  "b": number;
};

type CountAnswer = {
  "count": number;
  "hints"?: Array<string>;
};

type CurveAnswer = {
  "limit": number;
  "points": Array<CurvePointAnswer>;
  "rows": number;
  "holds": boolean;
  "reason": string | null;
  "scanned_from": number | null;
};

type CurvePointAnswer = {
  "recall": number;
  "candidates": number;
  "microseconds": number;
};

type DeleteAnswer = {
  "deleted": number;
  "hints"?: Array<string>;
};

type DepthAnswer = {
  "samples": number;
  "probabilities": Array<number>;
  "buckets": number;
  "mean_size": number;
  "largest": Array<BucketAnswer>;
};

type ExplainAnswer = {
  "method": string;
  "bands": number;
  "depth": number;
  "candidates": number;
  "scored": number;
  "beam": number;
  "expected_recall": number;
  "seconds": number;
  "measured_recall"?: number | null;
  "unknown_names"?: Array<string> | null;
};

type ExplanationAnswer = {
  "score": number;
  "shared": number;
  "total": number;
  "contained": ContainedAnswer;
  "coordinates": Array<ShareAnswer>;
  "rest": RestAnswer;
};

type Health = {
  "status": string;
  "phase": string;
};

type HistogramAnswer = {
  "edges": Array<number>;
  "counts": Array<number>;
};

type HitAnswer = {
  "id": string;
  "score": number;
  "text"?: string | null;
  "payload"?: Record<string, any> | null;
  "vector"?: Array<number> | SparseBody | null;
  "group"?: string | number | boolean;
};

type IdsAnswer = {
  "first": string;
  "last": string;
};

type IslandAnswer = {
  "x": number;
  "y": number;
  "size": number;
  "names": Array<string>;
  "value": boolean | number | string | null;
};

type ItemAnswer = {
  "id": string;
  "vector"?: Array<number> | SparseBody | null;
  "text"?: string | null;
  "payload"?: Record<string, any> | null;
  "version": number;
  "expires"?: string;
};

type LoadAnswer = {
  "inserted": number;
  "updated": number;
  "ids"?: IdsAnswer | null;
  "rejected": Array<RejectedRow>;
  "rejected_count": number;
  "similar"?: Array<SimilarItem>;
  "similar_count"?: number;
  "dropped_count"?: number;
  "repeated_count"?: number;
  "seconds": number;
  "loaded_before"?: LoadedBefore | null;
};

type LoadEntryAnswer = {
  "key": string | null;
  "state": string;
  "rows": number;
  "inserted": number;
  "updated": number;
  "ids"?: IdsAnswer | null;
  "similar_count"?: number;
  "repeated_count"?: number;
  "loaded_before"?: LoadedBefore | null;
  "bytes": number;
  "total_bytes": number | null;
  "rejected": number;
  "rate": number;
  "started": string;
  "error": string | null;
};

type LoadList = {
  "loads": Array<LoadEntryAnswer>;
};

type LoadedBefore = {
  "inserted": number;
  "updated": number;
  "rejected_count": number;
  "started": string;
  "complete": boolean;
};

type MapAnswer = {
  "x": Array<number>;
  "y": Array<number>;
  "neighbours": Array<Array<number>>;
  "scores": Array<Array<number>>;
  "ids": Array<string>;
  "values"?: Array<boolean | number | string | null> | null;
  "also": PlacesAnswer;
  "islands"?: Array<IslandAnswer> | null;
  "hints"?: Array<string>;
};

type NamedAnswer = {
  "index": number;
  "name": string;
};

type NamesAnswer = {
  "names": Array<NamedAnswer>;
  "count": number;
};

type PageAnswer = {
  "items": Array<ItemAnswer>;
  "next_cursor": string | null;
  "complete"?: boolean;
  "hints"?: Array<string>;
};

type PlacesAnswer = {
  "x": Array<number>;
  "y": Array<number>;
  "neighbours": Array<Array<number>>;
  "scores": Array<Array<number>>;
};

type PreviewAnswer = {
  "encoding"?: string;
  "delimiter"?: string;
  "decimal"?: string;
  "header"?: boolean;
  "holds": "vectors" | "texts";
  "dim": number | null;
  "text"?: string | null;
  "columns"?: Array<ColumnGuess>;
  "scale"?: "standard" | null;
  "warnings"?: Array<string>;
  "rows"?: Array<Record<string, string>>;
};

type ProfileAnswer = {
  "items": number;
  "sample": number;
  "pairs": HistogramAnswer;
  "first": HistogramAnswer;
  "tenth": HistogramAnswer;
  "nonzeros": HistogramAnswer;
  "negative": number;
  "similarities": Array<number>;
  "depths": Array<DepthAnswer>;
};

type QueryAnswer = {
  "hits": Array<HitAnswer>;
  "cursor"?: string;
  "explain"?: ExplainAnswer | null;
  "shards"?: ShardsAnswer | null;
  "hints"?: Array<string>;
};

type Readiness = {
  "phase": string;
  "loaded": number;
  "total": number;
  "seconds_left"?: number | null;
  "database"?: "reachable" | "unreachable" | null;
};

type RecallAnswer = {
  "audited": Array<AuditedAnswer>;
  "allowance": Array<AllowanceAnswer>;
  "waiting": number;
};

type RejectedRow = {
  "row": number;
  "code": string;
  "detail": string;
};

type RestAnswer = {
  "coordinates": number;
  "min": number;
  "max": number;
};

type ServiceAnswer = {
  "name": string;
  "version": string;
  "phase": string;
  "permits": "read" | "write";
  "keys": boolean;
};

type ShardsAnswer = {
  "total": number;
  "answered": number;
  "missing": Array<number>;
};

type ShareAnswer = {
  "coordinate": number;
  "name"?: string | null;
  "a": number;
  "b": number;
  "min": number;
  "max": number;
};

type SimilarItem = {
  "row": number;
  "id": string | null;
  "to": string;
  "score": number;
};

type SimilarityAnswer = {
  "score": number;
};

type SketchAnswer = {
  "slots"?: Array<Array<number>> | null;
  "levels"?: Array<Array<number>> | null;
  "codes"?: Array<Array<number>> | null;
};

type SnapshotAnswer = {
  "name": string;
  "bytes": number;
  "sha256": string;
  "created": string;
};

type SnapshotList = {
  "snapshots": Array<SnapshotAnswer>;
};

type SparseBody = {
  "indices": Array<number>;
  "values"?: Array<number> | null;
};

type WeightsAnswer = {
  "kind": "list" | "idf" | "standard" | "robust" | "max";
  "version": number;
  "learned": string | null;
  "items": number;
  "coordinates": number;
};

type Get<Path extends string> =
  Path extends `v1/collections/${string}/items/${string}${Query}` ? ItemAnswer :
  Path extends `v1/collections/${string}/items${Query}` ? PageAnswer :
  Path extends `v1/collections/${string}/loads${Query}` ? LoadList :
  Path extends `v1/collections/${string}/recall${Query}` ? RecallAnswer :
  Path extends `v1/collections/${string}/curve${Query}` ? CurveAnswer :
  Path extends `v1/collections/${string}/names${Query}` ? NamesAnswer :
  Path extends `v1/collections/${string}/snapshots${Query}` ? SnapshotList :
  Path extends `v1/collections/${string}${Query}` ? CollectionAnswer :
  Path extends `v1/collections${Query}` ? CollectionList :
  Path extends `livez${Query}` ? Health :
  Path extends `healthz${Query}` ? Health :
  Path extends `readyz${Query}` ? Readiness :
  Path extends `v1${Query}` ? ServiceAnswer :
  any;

type Post<Path extends string> =
  Path extends `v1/collections/${string}/snapshots/${string}/restore${Query}` ? CollectionAnswer :
  Path extends `v1/collections/${string}/query/batch${Query}` ? BatchAnswer :
  Path extends `v1/collections/${string}/items/delete${Query}` ? DeleteAnswer :
  Path extends `v1/collections/${string}/transform/fit${Query}` ? WeightsAnswer :
  Path extends `v1/collections/${string}/query${Query}` ? QueryAnswer :
  Path extends `v1/collections/${string}/count${Query}` ? CountAnswer :
  Path extends `v1/collections/${string}/load${Query}` ? LoadAnswer :
  Path extends `v1/collections/${string}/backends${Query}` ? BackendAnswer :
  Path extends `v1/collections/${string}/compare${Query}` ? CompareAnswer :
  Path extends `v1/collections/${string}/snapshots${Query}` ? SnapshotAnswer :
  Path extends `v1/collections/${string}/explain${Query}` ? ExplanationAnswer :
  Path extends `v1/collections/${string}/map${Query}` ? MapAnswer :
  Path extends `v1/collections/${string}/profile${Query}` ? ProfileAnswer :
  Path extends `v1/collections/${string}/sketch${Query}` ? SketchAnswer :
  Path extends `v1/preview${Query}` ? PreviewAnswer :
  Path extends `v1/similarity${Query}` ? SimilarityAnswer :
  any;

}
