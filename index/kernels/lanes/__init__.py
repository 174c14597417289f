"""Extensions of the compiler.

- `vector`: sixteen numbers in one register
- `compress`: the lanes that pass a test
- `pointers`: writing at addresses, prefetching
- `functions`: logarithms, cosines and sines that are equal to the bit on every machine
"""
