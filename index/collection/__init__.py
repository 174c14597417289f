"""Items in memory, behind immutable views.

- `memory_collection`: puts, deletes, the view of readers; when tombstones are compacted
- `items`: what callers hand in and get: batches, views, results
- `row_store`: vectors, ids and payloads by row; which rows live, and their compaction
- `ids`: which ids are permitted; from an id to its row
- `backend_index`: a backend with its index of a view
- `optimize`: compaction, or an index optimized, beside readers and writers, and published
- `audit`: recall asked against recall found, by exact answers to some queries
- `compare`: what each backend finds and costs
- `explain`: a similarity by its coordinates
- `name_scan`: the exact scan of a query with names that the space lacks
"""
