"""How processes of one service ask each other: fronts their owner, routers shards.

- `messages`: a JSON head and raw bytes; vectors and texts as bytes
- `batcher`: queries that wait at the same time, answered by one call
- `connection`: one that many questions go over at once
"""
