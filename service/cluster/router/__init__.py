"""The collections of a cluster as routes call them: writes to the database, searches to shards.

- `catalog`: all collections, their snapshots, and a router made of its settings
- `collection`: one collection
- `shards`: messages about one collection, and the items that shards send
- `replicas`: which replica of a shard is asked, and what if it is late
- `merging`: hits of shards as those of one collection
- `descriptions`: descriptions, statistics and comparisons of shards as one
- `pairs`: near-duplicate pairs within shards and across them
"""
