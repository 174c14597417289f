"""The collections of a cluster as routes call them: writes to the database, searches to shards.

- `catalog`: all collections
- `collection`: one collection
- `replicas`: which replica of a shard is asked, and what if it is late
- `gathering`: queries that ask for the same at the same time, as one message
- `merging`: hits of shards as those of one collection
- `descriptions`: descriptions, statistics and comparisons of shards as one
- `pairs`: near-duplicate pairs within shards and across them
- `samples`: some items of all shards as a collection in memory
- `opening`: a router's parts, made of its settings
- `snapshots`: a snapshot made of the database's rows, and the way back
"""
