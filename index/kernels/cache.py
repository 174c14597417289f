"""numba's cache of compiled kernels: its folders, and its behaviour on a full or damaged disk.

A folder of kernels belongs to one set of sources, and is named after their content. The place of a
kernel in it depends neither on the path of its source nor on its time. So a folder that was
compiled elsewhere can be installed with the sources, and read even if it is not writable.
"""

import atexit
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numba
from llvmlite import binding
from numba.core import caching

_V3: Final = (
    "avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf",
    "sse3", "sse4.1", "sse4.2", "ssse3", "xsave",
)  # fmt: skip
_V4: Final = *_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"


class Cpu(NamedTuple):
    """A set of instructions."""

    name: str  # LLVM's name
    features: tuple[str, ...]  # what a machine must have, in LLVM's notation

    @property
    def settings(self) -> dict[str, str]:
        """The variables that make numba compile for this CPU."""
        features = ",".join(f"+{feature}" for feature in self.features)
        return {"NUMBA_CPU_NAME": self.name, "NUMBA_CPU_FEATURES": features}

    @property
    def codegen(self) -> tuple[str, str, str]:
        """The key of this CPU's code in numba's cache: platform, name, features."""
        name, features = self.settings.values()
        return binding.get_process_triple(), name, features


AGREED: Final = (Cpu("x86-64-v4", _V4), Cpu("x86-64-v3", _V3), Cpu("generic", ()))
"""The best one first."""


def cpus_of(features: frozenset[str]) -> tuple[Cpu, ...]:
    """Return the agreed CPUs whose code runs with these features, the best one first."""
    return tuple(cpu for cpu in AGREED if features.issuperset(cpu.features))


def features_here() -> frozenset[str]:
    """Return the features of this machine, in LLVM's notation."""
    try:
        return frozenset(name for name, has in binding.get_host_cpu_features().items() if has)
    except RuntimeError:  # unknown on this platform
        return frozenset()


_NUMBA: Any = caching
_PACKAGE: Final = f"{__package__}."
_CUT_SHORT: Final = EOFError, _NUMBA.pickle.UnpicklingError
"""What numba raises when a power cut has emptied a file."""


class Installed(NamedTuple):
    """Installed compiled kernels, complete for a start."""

    folder: Path
    cpu: Cpu  # the CPU that they were compiled for


def installed_kernels(folder: Path, cpus: tuple[Cpu, ...]) -> Installed | None:
    """Return the kernels of a folder for the first of these CPUs for which it has all kernels."""
    found = (cpu for cpu in cpus if mark(folder, cpu.codegen).exists())
    return next((Installed(folder, cpu) for cpu in found), None)


def mark(folder: Path, codegen: tuple[str, str, str]) -> Path:
    """Return the file that exists once all kernels are compiled, for a `Cpu.codegen`."""
    compiler = codegen, numba.__version__, sys.version_info[:2]
    digest = hashlib.sha256(repr(compiler).encode()).hexdigest()[:16]
    return folder / f"complete-{digest}"


def _place(function: Callable[..., Any]) -> str:
    """Return the folder of a function's kernels, within that of all kernels."""
    return function.__module__.removeprefix(_PACKAGE)


class _Locator(caching._CacheLocator):  # numba's seam
    """Tells numba where the kernels of one function are: in a folder named after all sources."""

    def __init__(self, function: Any, file: str) -> None:
        self._py_file = file  # read by numba when it warns
        self._line = function.__code__.co_firstlineno
        self._folder = KernelCache.folder
        self._place = _place(function)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> "_Locator":
        """Return the locator of a function."""
        return cls(py_func, py_file)

    def get_cache_path(self) -> str:
        """Return the folder to write to."""
        return str(self._folder / self._place)

    def get_source_stamp(self) -> str:
        """Return a value that changes with the sources."""
        return self._folder.name

    def get_disambiguator(self) -> str:
        """Return what distinguishes functions with equal names in one file."""
        return str(self._line)


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012  # numba's attribute, which it only reads


class KernelCache(caching.FunctionCache):
    """The cache of one compiled function: if it cannot be read or written, compilation continues.

    With numba's own, a call fails if its machine code cannot be written, or is truncated.
    """

    _impl_class = _Implementation
    folder: ClassVar[Path]  # where kernels are written and read
    # Kernels to read first. They are valid for any target of this process.
    installed: ClassVar[Installed | None] = None
    failure: ClassVar[str | None] = None  # why a function of this process was not saved

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]  # numba's
        self._installed: Any = None
        if self.installed is not None:
            self._installed = _NUMBA.IndexDataCacheFile(
                cache_path=str(self.installed.folder / _place(function)),
                filename_base=self._impl.filename_base,
                source_stamp=self.installed.folder.name,
            )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the machine code of a signature, or None."""
        found = self._load_installed(sig, target_context)
        if found is None:
            found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        return found

    def _load_installed(self, sig: Any, target_context: Any) -> Any:
        if self.installed is None:
            return None
        target_context.refresh()
        codegen = target_context.codegen()
        signature, _, code = self._index_key(sig, codegen)  # type: ignore[no-untyped-call]
        with suppress(OSError, *_CUT_SHORT):
            found = self._installed.load((signature, self.installed.cpu.codegen, code))
            if found is not None:
                return self._impl.rebuild(target_context, found)
        return None

    @contextmanager
    def _guard_against_spurious_io_errors(self) -> Iterator[None]:
        """Guard numba's reading and writing; unreadable code counts as not cached."""
        try:
            yield
        except OSError as error:
            KernelCache.failure = str(error)
        except _CUT_SHORT:
            with suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]  # numba's


def cache_of(function: Callable[..., Any]) -> caching.FunctionCache:
    """Return the cache of a compiled function: ours for a kernel, else numba's."""
    if function.__module__.startswith(_PACKAGE):
        return KernelCache(function)
    return caching.FunctionCache(function)  # type: ignore[no-untyped-call]  # numba's


def cache_folder(here: Path, base: str, name: str) -> Path:
    """Return the first writable folder for compiled kernels, and create it.

    numba skips a folder that it cannot write to, and uses its own, which is not named after the
    content of called functions. If no folder is writable, this process uses a temporary one.

    ``base`` is the folder set by the user; empty: beside the sources, ``here``, or at home.
    """
    parents = [Path(base)] if base else []
    parents.append(here / "__pycache__")
    with suppress(RuntimeError):  # a user without a home
        parents.append(Path.home() / ".cache" / "gcws-search")
    failure = ""
    for parent in parents:
        folder = parent / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError as error:
            failure = failure or str(error)
    KernelCache.failure = failure
    own = Path(tempfile.mkdtemp(prefix="gcws-search-"))
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own / name
