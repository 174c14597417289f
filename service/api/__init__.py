"""The API: routes, the bodies that they take and the answers that they give.

- `collections`, `items`, `load`, `snapshots`, `backends`: what is stored
- `query`: searches
- `analysis`: long reads of a whole collection: near-duplicate pairs, map, profile
- `sketch`, `similarity`: vectors that are not stored
- `health`: liveness, readiness, metrics, what the service is
- `bodies`, `backend_bodies`, `query_options`: what clients send
- `derived`: bodies made of the index's own types
- `requests`: bodies become calls of the index
- `pages`: pages of a ranking by `offset`
- `answers`, `results`: what clients get
- `openapi`: the API page
"""
