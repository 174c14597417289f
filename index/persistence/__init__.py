"""Memory and file in step.

- `writer`: group commit, one writer a collection
- `changes`: puts and deletes, in the file and in memory
- `item_reader`: vectors as they were sent
- `recovery`: from a file to memory, at the start
- `checkpoints`: the graph written to the file, part by part
- `optimizer_thread`: optimizes the index in the background
- `auditor`: searches, and exact answers to audited queries in the background
- `attached_backends`: comparison backends attached and dropped
- `metadata`: what callers keep with a collection
- `reclaim`: free space given back
"""
