"""Bodies and answers as pydantic models.

- `base`: ids, vectors, strictness
- `requests`: bodies of requests
- `query_options`: options and filters of queries
- `backends`: search methods and their parameters
- `analysis`: the map and the profile of a collection
- `answers`, `collections`: what a client gets
"""
