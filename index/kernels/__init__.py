"""Compiled functions over arrays, one algorithm a file; nothing here knows of items or requests.

numba keeps what it has compiled on disk, and compiles again when a function's own file has changed,
but not when a function called from it has. An upgrade could then mix old code with new, and hash
one vector in two ways. So the cache of compiled kernels lies in a folder that is named after the
content of all kernel files.

What a kernel writes comes last and is named ``out…``; it is written in place. ``permitted`` and
``skip`` are those of `gmm.rows.HitFilter`, compressed rows those of `gmm.rows.Rows`.

This is the one module that sets something when it is imported. numba opens the cache of a function
while its decorator runs. So the folder must be known before the first kernel is defined, and nobody
can hand it down. Names of the client side import neither numba nor this module.

Kernels may have been installed compiled, in the folder ``compiled`` of this one. They are taken
unless ``NUMBA_CPU_NAME`` or ``NUMBA_CPU_FEATURES`` says what to compile for.

- `compiling`: the decorators of kernels
- `cache`: the folders of compiled kernels, what happens on a full disk, and CPUs to compile for
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

# Set before any kernel is defined: its file is opened when the decorator runs.
KernelCache.folder = CACHE_FOLDER
if _CONFIG.CPU_NAME is None and _CONFIG.CPU_FEATURES is None:
    KernelCache.installed = installed_kernels(COMPILED_FOLDER / _NAME, cpus_of(features_here()))
_DISPATCHER.FunctionCache = cache_of
