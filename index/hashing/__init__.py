"""Samples, signatures and bands: GCWS and random binning."""
