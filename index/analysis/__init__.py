"""What a collection looks like as a whole, by a sample of its items.

- `item_map`: places in a plane for a sample and others, with their neighbours
- `profile`: histograms of similarities and of non-zeros; buckets, and what shares one
"""
