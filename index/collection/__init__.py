"""One collection: its items in memory behind immutable views, its file, what keeps them in step.

- `memory_collection`: puts, deletes, the view of readers; when tombstones are compacted
- `items`: what callers hand in and get: batches, views, results, pages
- `row_store`: vectors, ids and payloads by row; which rows live, and their compaction
- `ids`: which ids are permitted; from an id to its row
- `backend_index`: a backend with its index of a view
- `writer`: puts and deletes, in the file and in memory; one writer a collection
- `group_commit`: the queue of writes that are committed together
- `background_task`: a thread that begins when something is due
- `recovery`: from a file to memory, at the start
- `checkpoints`: the graph written to the file, part by part
- `optimizer`: compactions and optimized indexes, made in the background
- `audit`: recall asked against recall found, by exact answers to some queries
- `attached_backends`: comparison backends attached and dropped
- `reclaim`: free space given back
- `compare`: what each backend finds and costs
- `explain`: a similarity by its coordinates
- `name_scan`: the exact scan of a query with names that the space lacks
"""
