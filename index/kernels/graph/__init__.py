"""The neighbour graph: build, beam search, candidate pools, re-rank depth, pairs."""
