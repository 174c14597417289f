"""The similarity of two vectors, without a collection."""
