"""How kernels are compiled: those called from Python, and those called only by kernels.

- `kernel`: called from Python. Named tuples are passed as plain tuples: numba determines the type
  of a plain tuple in 0.2 µs, and that of a named one in 1 µs or more, because it reads the names
  at each call. The kernel restores the names, at no cost in compiled code.
- `inner`: called only by kernels. It has no code to unpack Python's arguments, which is longer than
  many functions, and no machine code of its own. Constant integers are passed like any others;
  otherwise each would compile the function again.
- `inlined`: an `inner` function that is inlined into its callers, where compile-time constants stay
  constants.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar, cast, get_type_hints, overload

import numba
from numba import types
from numba.core import codegen, compiler

_NUMBA: Any = numba
_TYPES: Any = types
_CODEGEN: Any = codegen
_COMPILER: Any = compiler

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that Python calls, by position.

    If an annotation names a named tuple, compiled code takes a plain one. The returned function
    then has the compiled function as its attribute ``compiled``.
    """
    compiled = _without_literals(_compile(function))
    hints = [hint for name, hint in get_type_hints(function).items() if name != "return"]
    named = [place for place, hint in enumerate(hints) if hasattr(hint, "_fields")]
    if not named:
        return cast("Callable[P, R]", compiled)

    @wraps(function)
    def call(*args: Any) -> Any:
        plain = list(args)
        for place in named:
            plain[place] = tuple(plain[place])
        return compiled(*plain)

    call.compiled = compiled  # type: ignore[attr-defined]
    return cast("Callable[P, R]", call)


@overload
def inner(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def inner(*, fastmath: set[str]) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def inner(function: Any = None, /, **options: Any) -> Any:
    """Compile a function that kernels call."""
    if function is None:
        return lambda function: inner(function, **options)
    return _without_literals(_compile_inner(function, **options))


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that is inlined into each kernel that calls it."""
    return cast("Callable[P, R]", _compile_inner(function, forceinline=True))


class _LinkedCode(_CODEGEN.JITCodeLibrary):  # type: ignore[misc]  # numba's
    """Code that is linked into its callers, and optimized only there."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, _name: str) -> int:
        """Return no address: only kernels can call this code."""
        self._ensure_finalized()
        return 0

    def serialize_using_object_code(self) -> Any:
        """Return what numba saves."""
        return self.serialize_using_bitcode()


class _InnerCompiler(_COMPILER.Compiler):  # type: ignore[misc]  # numba's
    def define_pipelines(self) -> Any:
        """Return numba's compilation passes, with code that is only linked."""
        state = self.state
        state.library = _LinkedCode(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        return super().define_pipelines()

    def compile_extra(self, func: Any) -> Any:
        """Return the compiled result, by which callers find it."""
        done = super().compile_extra(func)
        name = object()
        done.target_context.insert_user_function(name, done.fndesc, [done.library])
        return done._replace(entry_point=name)


def _compile(function: Any, **options: Any) -> Any:
    return _NUMBA.njit(cache=True, nogil=True, no_cfunc_wrapper=True, **options)(function)


def _compile_inner(function: Any, **options: Any) -> Any:
    compiled = _compile(function, no_cpython_wrapper=True, pipeline_class=_InnerCompiler, **options)

    def refuse(*_args: Any) -> NoReturn:
        raise TypeError(f"{function.__qualname__} can be called by kernels only")

    compiled._compile_for_args = refuse  # there is no code that Python could call
    compiled._insert = lambda *_args, **_kwargs: None
    return compiled


def _without_literals(compiled: Any) -> Any:
    """Let numba pass constant integers like variables."""
    template = compiled.get_call_template

    def get_call_template(args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
        return template([_plain(each) for each in args], {k: _plain(v) for k, v in kws.items()})

    compiled.get_call_template = get_call_template
    return compiled


def _plain(kind: Any) -> Any:
    return _TYPES.unliteral(kind) if isinstance(kind, types.IntegerLiteral) else kind
