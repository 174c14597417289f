"""The routes, one file a resource.

- `collections`, `items`, `load`, `snapshots`, `backends`: what is stored
- `query`, `pairs`: searches
- `sketch`, `similarity`: vectors that are not stored
- `health`: liveness, readiness, metrics, what the service is
"""
