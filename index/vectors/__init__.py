"""Client numbers become rows.

Validation, the vector space and its transform, growing arrays, quantized copies.
"""
