"""Collections of a data directory: items in memory behind immutable views, their files in step.

- `catalog`: all collections: create, open, drop, restore
- `stored_collection`: one collection: what is written is in memory and on the disk
- `describe`: configuration, counts, bytes, statistics
- `check`: a file checked and repaired
- `memory_collection`: puts, deletes, the view of readers; when tombstones are compacted
- `items`: what callers hand in and get: batches, ids, views, results, pages
- `similar`: items that are stored unless one like them is
- `row_store`: vectors, ids and payloads by row, and back; which rows live, their compaction
- `backend_index`: a backend with its index of a view
- `writer`: puts and deletes, in the file and in memory; the queue of those committed together
- `recovery`: from a file to memory, at the start
- `checkpoints`: the graph written to the file, part by part
- `optimizer`: compactions and optimized indexes, made in the background
- `audit`: recall asked against recall found, by exact answers to some queries
- `attached_backends`: comparison backends attached and dropped
- `reclaim`: free space given back
- `compare`: what each backend finds and costs
- `fit`: weights learned from items; all rows encoded anew under others
- `explain`: a similarity by its coordinates
- `find`: items by the beginning of their ids, or by a text in ids and payloads
- `groups`: near-duplicates joined by pairs, and which of them is kept
- `hints`: keys and values of a filter that no item has, and similar ones
- `join`: vectors joined with the items
- `item_map`: places in a plane for a sample and others, with their neighbours
- `ranking`: pages of a ranking, which share no hit
- `profile`: histograms of similarities and of non-zeros; buckets, and what shares one
- `name_scan`: the exact scan of a query with names that the space lacks
"""
