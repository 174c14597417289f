"""Near-duplicate pairs.

- `planner`: chooses a join by its cost
- `pair_sink`: the best pairs so far; the bucket join
- `exact_join`: every row with every row, or sparse rows by the slots that a similar pair must share
"""
