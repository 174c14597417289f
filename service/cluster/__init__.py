"""Parts of a cluster: a database orders every write, shards follow it and answer searches.

- `contract`: what database, shards and routers say of each other
- `errors`: what goes wrong between them
- `messages`: a JSON head and raw bytes, and errors, as bytes

`database` is all that speaks SQL. `shard` is a part of each collection's items, in memory and in a
file that is a cache.
"""
