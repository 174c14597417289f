"""The neighbour graph, compiled.

- `build`: new rows linked; the pruning rule
- `entry_points`: the rows at which a search enters, beside its keys in the tables
- `beam_search`: best-first search, and what stops it
- `candidate_pool`: the best rows so far
- `batch_search`: the stages of a query, for a batch
- `tiers`: which queries are hard or foreign
- `queries`: queries as the search compares them
- `rerank_depth`: how many rows to score exactly
- `bridges`: links to deleted rows, replaced
- `pair_walk`: partners of rows by their links
- `layout`: places of rows in a plane by their links
"""
