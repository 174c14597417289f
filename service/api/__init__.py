"""The API: routes, the bodies that they take and the answers that they give.

- `collections`, `items`, `load`, `snapshots`, `backends`: what is stored
- `query`: searches, and pages of their rankings; two vectors compared
- `analysis`: long reads of a whole collection: near-duplicate pairs, map, profile; hashes
- `health`: liveness, readiness, metrics, what the service is
- `bodies`: what clients send
- `requests`: bodies become calls of the index
- `openapi`: the API page; ``schemas.json`` describes what clients get
- `page`: the page in a browser, and its files
"""
