"""GMM of dense and sparse rows: scans, tiles, norms, exact re-ranking."""
