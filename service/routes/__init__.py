"""The routes, one file a resource.

- `collections`, `items`, `load`, `snapshots`, `backends`: what is stored
- `query`: searches
- `analysis`: long reads of a whole collection: near-duplicate pairs, map, profile
- `sketch`, `similarity`: vectors that are not stored
- `health`: liveness, readiness, metrics, what the service is
"""
