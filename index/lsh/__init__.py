"""Hash tables over bands.

- `band_keys`: from vectors to band keys
- `tables`: sorted segments of keys, merged as they grow
- `pair_bands`: how many bands find the pairs of a score
- `band_join`: many queries with the rows that share a band of samples with them
- `search`: by tables until the recall is proven, or candidates by depth, without a proof, ranked
  by exact scores or by shared samples
"""
