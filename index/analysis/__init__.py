"""What a collection looks like as a whole, by a sample of its items.

- `buckets`: which similarities share a bucket, and how large buckets are
- `item_map`: places in a plane for a sample and others, with their neighbours
- `principal_components`: kernel PCA on landmarks
- `profile`: histograms of similarities and of non-zeros
"""
