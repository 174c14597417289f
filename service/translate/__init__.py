"""Requests become calls of the index, and results become JSON.

- `bodies`: bodies read (413, 415), and checked by a compiled validator
- `long_json`: long JSON counted, and cut into pieces
- `vectors`: an id or a vector, unknown names included
- `pages`: pages of a ranking by `offset`
- `requests`: vectors, items, filters, search parameters
- `configurations`: collections and backends
- `names`: names of coordinates
- `results`: hits as JSON
"""
