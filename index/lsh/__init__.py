"""Hash tables over bands.

- `band_keys`: from vectors to band keys
- `tables`: sorted segments of keys, merged as they grow
- `pair_bands`: the number of bands that find the pairs of a score
- `band_join`: joins many queries with the rows that share a band with them
- `search`: probes tables until the recall is proven; or takes candidates by depth, without a
  proof, ranked by exact scores or by shared samples
"""
