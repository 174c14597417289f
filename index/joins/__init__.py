"""Near-duplicate pairs: a planner over bucket, graph, prefix-filter and all-pairs joins."""
