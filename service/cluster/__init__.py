"""Many machines, the same API: a database orders every write, shards follow it, routers ask shards.

- `contract`: what all say of each other, and remember of the current primary
- `connections`, `schema`, `database`, `committer`, `bases`, `names`: all that speaks SQL; the last
  frees names of coordinates that no item has any more
- `segments`, `offload`: vectors in files, as the rows of the database refer to them; how they get
  there
- `operations`: what routers ask, a shard's answer, and the answers of all as one
- `duplicates`: pairs, groups and joins over shards
- `catalog`, `collection`: what routes call on a router
- `shards`: which replica of a shard a router asks, and what if it is late
- `server`, `host`, `follower`: a replica behind its port, its collections, one of them
- `bulk`: files into a new collection, without a router
- `command`, `rollout`, `placing`: commands, what they do to replicas, replicas as actors of Ray
"""
