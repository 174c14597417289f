"""Plain types that all layers share. Imports no other layer.

- `arrays`: names of array types
- `batches`: vectors as arrays
- `links`: links of a neighbour graph, three bytes each
- `hits`: the rows that a search sees, and the hits by row
- `parameters`: validated parameters of collections, backends and searches
- `policies`: of searches by hash tables, and of near-duplicate pairs
- `analysis`: contributions of coordinates to a score, a map of items, cost by recall
- `scores`: kinds of scores, and their names in fields
- `saved_index`: the part of an index that is stored in the file
- `errors`: every error of the index, one class per cause
"""
