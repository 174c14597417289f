"""The API: routes, each beside the body that it takes, and the answers that they give.

- `collections`, `items`, `load`, `snapshots`, `backends`: what is stored
- `query`: searches, and pages of their rankings
- `join`: vectors, or another collection, joined with a collection
- `streams`: bodies as of a load, read as they come; answers that are sent meanwhile
- `analysis`: what items and vectors are to each other: similarity explained, pairs, map, hashes
- `health`: liveness, readiness, metrics, what the service is
- `bodies`: bodies made of the index's own parameters
- `requests`: vectors, names and filters of bodies in the index's own words
- `openapi`: the API page; ``schemas.json`` has what no model and no signature says of it
- `page`: the page in a browser, and its files
"""
