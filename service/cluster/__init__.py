"""Many machines, the same API: a database orders every write, shards follow it, routers ask shards.

- `contract`, `epochs`: what all say of each other; which primary of the database is current
- `connections`, `schema`, `database`, `committer`: all that speaks SQL
- `search`, `operations`: what routers ask, a shard's answer, and the answers of all as one
- `catalog`, `collection`, `pairs`: what routes call on a router
- `shards`: which replica of a shard a router asks, and what if it is late
- `server`, `host`, `follower`: a replica behind its port, its collections, one of them
- `command`, `rollout`, `placing`: commands, what they do to replicas, replicas as actors of Ray
- `manifests`: `kubernetes.yml` and `kuberay.yml` with other numbers
"""
