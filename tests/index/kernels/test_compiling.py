"""How kernels are compiled: what crosses from Python, and what is compiled once."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import types

from gcws_search.index.contracts.arrays import Int64s
from gcws_search.index.kernels.compiling import inlined, inner, kernel


class Part(NamedTuple):
    first: int
    second: int


@inner
def _sum(number: int, further: int) -> int:
    return number + further


@inlined
def _twice(number: int) -> int:
    return 2 * number


@kernel
def total(part: Part, number: int, out: Int64s) -> int:
    part = Part(*part)
    out[0] = _sum(part.first, 0) + _sum(3, number) + _twice(part.second)
    return number


def test_named_tuples_are_given_to_kernels_as_plain_ones() -> None:
    out = np.zeros(1, np.int64)
    assert total(Part(1, 2), 5, out) == 5
    assert out[0] == 1 + 8 + 4
    called: Any = total
    [(part, number, _)] = called.compiled.signatures
    assert isinstance(part, types.UniTuple)
    assert number == types.int64


def test_numbers_known_in_compiling_do_not_compile_an_inner_function_again() -> None:
    compiled: Any = _sum
    numba: Any = types
    _, _, arguments, _ = compiled.get_call_template([numba.literal(3), numba.literal(4)], {})
    assert list(arguments) == [types.int64, types.int64]
    assert len(compiled.signatures) == 1


@pytest.mark.parametrize("function", [_sum, _twice])
def test_inner_functions_refuse_python(function: Callable[..., int]) -> None:
    compiled: Any = function
    total(Part(1, 2), 5, np.zeros(1, np.int64))
    with pytest.raises(TypeError, match="can be called by kernels only"):
        function(*range(compiled.py_func.__code__.co_argcount))
