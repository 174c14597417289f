"""The neighbour graph: build, beam search, calibration of recall.

- `neighbour_graph`: the links of all rows; linking of new rows
- `lifecycle`: when the graph is built, extended, rebuilt and saved; number of entry tables
- `search_plan`: the stages of a query and their policy
- `search`: runs queries by a plan; their cost
- `scratch`: working memory of searches
- `calibrate`: recall by beam setting, measured on held-out rows
- `held_out`: the queries of a calibration
- `recall_curve`: the cheapest setting for a recall
- `recall_watch`: whether new rows and audited queries reach the calibrated recall

Compiled, in `kernels.graph`: entry points, the beam search and its stop rule, the pruning rule.
"""
