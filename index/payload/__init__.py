"""Payloads as JSON, columns of their keys, and filters over these."""
