"""Brute force: dense scans, an inverted index of sparse rows, scans of quantized copies first."""
