"""Collections for programs: on a server, in a file, or in memory, behind one interface.

- `collection`: each operation of a collection once, to wait for or to await
- `remote`: what they ask of a server
- `embedded`: what they do in this process
- `connection`: a server: how requests are sent, and sent again; what is asked besides; snapshots
- `snapshot_store`: snapshots in an object store
- `wire`: HTTP/1.1 over sockets, where nothing needs httpx
- `results`: answers, printed in one line each
- `export`: a whole collection as a file
- `errors`: errors of a server, and of the way to it
"""
