"""Many machines, the same API: a database orders every write, shards follow it, routers ask shards.

- `contract`: rows, messages and errors that all processes share; which primary is current
- `connections`, `schema`, `database`, `committer`, `bases`, `names`: everything that uses SQL;
  `names` frees names of coordinates that no item uses
- `segments`, `offload`: files of vectors that rows of the database refer to; moving vectors there
- `operations`: questions of routers, answers of shards, and merging the answers
- `duplicates`: pairs, groups and joins over shards
- `catalog`, `collection`: what routes call on a router
- `shards`: which replica of a shard a router asks, and fail-over to another one
- `server`, `host`, `follower`: a replica's HTTP server, its collections, one collection
- `bulk`: loads files into a new collection, without a router
- `command`, `rollout`, `placing`: commands, starting and moving replicas, replicas as Ray actors
"""
