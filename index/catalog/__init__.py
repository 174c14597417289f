"""What a service sees: the collections of a data directory.

- `catalog`: all collections: create, open, drop, restore
- `collection`: one collection: what is written is in memory and on the disk
- `describe`: configuration, counts, bytes, statistics
- `check`: a file checked and repaired
"""
