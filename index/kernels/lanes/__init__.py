"""Extensions of the compiler.

- `vector`: sixteen numbers in one register
- `bits`: operations on the bits of lanes
- `compress`: the lanes that pass a test
- `pointers`: writing at addresses, prefetching
- `logarithm`, `trigonometry`: functions that are equal to the bit on every machine
- `border`: calls from Python
"""
