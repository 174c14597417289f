"""Extensions of the compiler.

- `vector`: addresses, and sixteen numbers in one register
- `functions`: logarithms, cosines and sines that are equal to the bit on every machine
"""
