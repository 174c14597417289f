"""Plain types that all layers share.

Arrays, batches, hits, errors, parameters. Imports no other layer.
"""
