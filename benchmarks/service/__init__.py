"""Benchmarks of the service through HTTP, and of durable writes."""
