"""Where work runs: pools, group commit, start-up, the context of a request."""
