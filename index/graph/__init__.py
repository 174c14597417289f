"""The neighbour graph: build, beam search, calibration of recall.

- `neighbour_graph`: the links of all rows, and how new rows are linked
- `lifecycle`: when the graph is built, extended, rebuilt and saved; how many entry tables it has
- `search_plan`: the stages of a query and their policy
- `search`: queries through a plan, and what they cost
- `scratch`: memory that searches write on
- `calibrate`: recall by beam setting, measured on held-out rows
- `held_out`: the queries of a calibration
- `recall_curve`: the cheapest setting for a recall
- `recall_watch`: whether new rows and audited queries find what calibration says

Compiled, in `kernels.graph`: entry points, the beam search and its end, the pruning rule.
"""
