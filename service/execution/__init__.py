"""Where work runs: pools, awaited puts, start-up, the context of a request."""
