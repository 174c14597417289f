"""How kernels are compiled: those that Python calls, and those that only kernels call.

- `kernel`: called from Python. Named tuples cross as plain ones: numba tells the type of a plain
  tuple in 0.2 µs, and that of a named one in 1 µs and more, for it spells out the names at each
  call. A kernel names the parts again, which compiled code does for nothing.
- `inner`: called by kernels only. Without the code that takes Python's arguments apart, which is
  longer than many a function, and without machine code of its own. Whole numbers known in compiling
  are passed as any others, or each of them would compile the function again.
- `inlined`: an `inner` function whose code goes into that of its callers, where numbers known in
  compiling stay known.
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

    Where an annotation says a named tuple, compiled code takes a plain one. What is returned then
    has the compiled function as its attribute ``compiled``.
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
    """Compile a function whose code goes into that of each kernel that calls it."""
    return cast("Callable[P, R]", _compile_inner(function, forceinline=True))


class _LinkedCode(_CODEGEN.JITCodeLibrary):  # type: ignore[misc]  # numba's
    """Code that is linked into that of callers, which is optimized there, and nowhere else."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, _name: str) -> int:
        """Return no address: nothing but kernels can call this code."""
        self._ensure_finalized()
        return 0

    def serialize_using_object_code(self) -> Any:
        """Return what numba saves."""
        return self.serialize_using_bitcode()


class _InnerCompiler(_COMPILER.Compiler):  # type: ignore[misc]  # numba's
    def define_pipelines(self) -> Any:
        """Return what numba does to compile, into code that is linked only."""
        state = self.state
        state.library = _LinkedCode(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        return super().define_pipelines()

    def compile_extra(self, func: Any) -> Any:
        """Return what was compiled, by which callers find it."""
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
    """Let numba pass whole numbers known in compiling as others."""
    template = compiled.get_call_template

    def get_call_template(args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
        return template([_plain(each) for each in args], {k: _plain(v) for k, v in kws.items()})

    compiled.get_call_template = get_call_template
    return compiled


def _plain(kind: Any) -> Any:
    return _TYPES.unliteral(kind) if isinstance(kind, types.IntegerLiteral) else kind
