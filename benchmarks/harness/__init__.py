"""What benchmarks share: data sets, timing, reports, servers and clients."""
