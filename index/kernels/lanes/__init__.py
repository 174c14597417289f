"""Compiler extensions.

512-bit vectors, pointers, bits, lane compression, logarithm and trigonometry.
"""
