"""Shared by benchmarks: data sets, timing, reports, servers and clients."""
