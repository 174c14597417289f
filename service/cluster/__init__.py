"""Many machines, the same API: a database orders every write, shards follow it, routers ask shards.

- `contract`: what database, shards and routers say of each other
- `errors`: what goes wrong between them
- `epochs`: which primary of the database is the last, as each process remembers it
- `messages`: a JSON head and raw bytes, and errors, as bytes
- `http_replica`: replicas behind HTTP, as routers ask them
- `placing`: replicas as actors of Ray
- `rollout`: replicas of all shards, one elsewhere, another number of them
- `status`: a line a replica
- `manifests`: `kubernetes.yml` and `kuberay.yml` with other numbers
- `command`: ``gcws-search cluster``

`database` is all that speaks SQL. `shard` is a part of each collection's items, in memory and in a
file that is a cache. `router` has the collections as routes call them.
"""
