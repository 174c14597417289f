"""Compiled functions over arrays, one algorithm per file; nothing here knows items or requests.

numba caches compiled code on disk, and recompiles when a function's own file has changed, but not
when a function that it calls has changed. An upgrade could then mix old and new code, and hash one
vector in two ways. So the cache is in a folder that is named after the content of all kernel
files.

Outputs of a kernel come last, are named ``out…``, and are written in place. For ``permitted`` and
``skip`` see `gmm.rows.HitFilter`; for compressed rows see `gmm.rows.Rows`.

This is the only module that changes a setting when it is imported. numba opens the cache of a
function while its decorator runs. So the folder must be known before the first kernel is defined,
and cannot be passed as an argument. Modules of the client import neither numba nor this module.

Compiled kernels may be installed, in the folder ``compiled`` of this one. They are used unless
``NUMBA_CPU_NAME`` or ``NUMBA_CPU_FEATURES`` names a target.

- `compiling`: the decorators of kernels
- `cache`: the folders of compiled kernels, behaviour on a full disk, CPUs to compile for
"""

import hashlib
from pathlib import Path
from typing import Any, Final

import numba
from numba.core import dispatcher

from gcws_search.index.kernels.cache import (
    KernelCache,
    cache_folder,
    cache_of,
    cpus_of,
    features_here,
    installed_kernels,
)

_HERE = Path(__file__).parent
_CONFIG: Any = numba.config
_DISPATCHER: Any = dispatcher


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(_HERE.rglob("*.py")):
        digest.update(path.relative_to(_HERE).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


_NAME: Final = f"kernels-{_digest()}"
CACHE_FOLDER: Final = cache_folder(_HERE, _CONFIG.CACHE_DIR, _NAME)
"""Where compiled kernels of these sources are saved."""
COMPILED_FOLDER: Final = _HERE / "compiled"
"""Where kernels lie that were installed compiled, in a folder of the same name as there."""

# Set before any kernel is defined: a decorator opens its function's cache.
KernelCache.folder = CACHE_FOLDER
if _CONFIG.CPU_NAME is None and _CONFIG.CPU_FEATURES is None:
    KernelCache.installed = installed_kernels(COMPILED_FOLDER / _NAME, cpus_of(features_here()))
_DISPATCHER.FunctionCache = cache_of
