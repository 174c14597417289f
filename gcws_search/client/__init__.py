"""Collections for programs: on a server, in a file, or in memory, behind one interface.

- `collection`: each operation of a collection once, for blocking callers and for coroutines
- `remote`: executes the operations on a server
- `embedded`: executes the operations in this process
- `connection`: a server: requests, retries, operations outside of one collection; snapshots
- `snapshot_store`: snapshots in an object store
- `wire`: HTTP/1.1 over sockets, for requests that do not need httpx
- `results`: answers, printed in one line each
- `export`: a whole collection as a file
- `errors`: errors of a server and of its connection
"""
