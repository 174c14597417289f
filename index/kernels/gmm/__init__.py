"""GMM of dense and sparse rows.

- `dense`, `sparse`: the sums of a query and rows
- `rows`: vectors as kernels take them; L1 norms and transforms
- `tiled_scan`: dense rows for many queries, a tile at a time
- `exact_rerank`: the best rows scored in float64
"""
