"""A part of each collection's items: in memory, and in a file that is a cache of the database.

- `follower`: applies what has changed in the database to one collection
- `position`: how far a file has followed, and its cluster
- `host`: all collections of one shard
- `answers`: messages of routers, answered
- `searches`: messages that search
- `pool`: threads that answer messages
- `app`: a shard behind HTTP
- `server`: a replica behind its port
- `command`: a replica as a process
- `backends`: comparison backends as the database lists them
"""

from gcws_search.service.cluster.shard.host import ShardHost

__all__ = ["ShardHost"]
