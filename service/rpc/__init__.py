"""How processes of one service ask each other: fronts their owner, routers shards.

- `messages`: a JSON head and raw bytes; vectors and texts as bytes
- `batcher`: queries that wait at the same time, answered by one call
- `connection`: one that many questions go over at once

Both pair who asks with who has the items, and pack what they say in the same way. Fronts share a
machine with their owner, where a frame of a socket costs least. Routers ask by HTTP, which carries
the key and the shard that is meant, and passes through whatever lies between machines.
"""
