"""The neighbour graph, compiled.

- `build`: linking of new rows; the pruning rule
- `entry_points`: the rows at which a search enters, next to its keys in the tables
- `beam_search`: best-first search, and its stop rule
- `candidate_pool`: the best rows so far
- `batch_search`: the stages of a query, for a batch
- `tiers`: which queries are hard or foreign
- `queries`: queries in the form that the search compares
- `rerank_depth`: the number of rows to score exactly
- `bridges`: replaces links to deleted rows
- `pair_walk`: partners of rows by their links
- `layout`: positions of rows in a plane by their links
"""
