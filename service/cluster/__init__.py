"""Many machines, the same API: a database orders every write, shards follow it, routers ask shards.

Both ends share `contract` (rows, changes, replicas, errors), `search` and `operations` (each
question, a shard's answer, and the answers of all as one), and `epochs` (the current primary).
`connections`, `schema`, `database` and `committer` speak SQL.

A router is a `catalog` of `collection`; `pairs` are its near-duplicates, `shards` says which
replica is asked. A shard is a `server` around a `host`, with a `follower` for each collection.
`command` has ``gcws-search shard`` and ``gcws-search cluster``; `rollout` changes the replicas,
`placing` runs them as actors of Ray, `manifests` prints YAML for Kubernetes.
"""
