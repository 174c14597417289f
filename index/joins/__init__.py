"""Near-duplicate pairs.

- `planner`: chooses a join by its cost
- `pair_sink`: the best pairs so far; the bucket join
- `prefix_join`: sparse rows by the slots that a similar pair must share
- `all_pairs`: every row with every row
"""
