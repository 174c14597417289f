"""Quantized rows: quantization, L1 distances of bytes, scores and certified scans."""
