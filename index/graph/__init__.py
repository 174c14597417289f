"""The neighbour graph: build, beam search, calibration of recall, drift."""
