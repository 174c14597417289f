"""The API: routes, each beside its body, and their answers.

- `collections`, `items`, `load`, `snapshots`, `backends`: stored data
- `query`: searches, and pages of their rankings
- `join`: vectors, or another collection, joined with a collection
- `streams`: bodies that are read as they arrive, and answers that are sent meanwhile
- `analysis`: similarity explained, pairs, groups, map, profile, hashes
- `health`: liveness, readiness, metrics, information on the service
- `bodies`: bodies made of the index's own parameters
- `requests`: converts vectors, names and filters of bodies to types of the index
- `openapi`: the API page; ``schemas.json`` has the parts that no model or signature describes
- `page`: the page in a browser, and its files
"""
