"""Plain types that all layers share. Imports no other layer.

- `arrays`: names of array types
- `batches`: vectors as arrays
- `links`: links of a neighbour graph, three bytes each
- `hits`: what a search sees, and what it returns by row
- `parameters`: of collections, backends and searches, validated
- `policies`: of searches by hash tables, and of near-duplicate pairs
- `analysis`: what each coordinate adds to a score, a map of items, what recall costs
- `scores`: kinds of scores, and what fields call them
- `saved_index`: the part of an index that the file holds
- `errors`: every error of the index, one class a cause
"""
