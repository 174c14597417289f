"""The warm-up leaves no kernel to be compiled by a request."""

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

from numba.core.dispatcher import Dispatcher

from index import kernels
from index.warmup import compile_kernels

ROOT = Path(__file__).parents[2]


def _kernels() -> dict[str, Dispatcher]:
    found = {}
    for module in pkgutil.iter_modules(kernels.__path__):
        loaded = importlib.import_module(f"index.kernels.{module.name}")
        for name, value in vars(loaded).items():
            if isinstance(value, Dispatcher) and value.py_func.__module__ == loaded.__name__:
                found[f"{module.name}.{name}"] = value
    return found


def test_every_kernel_that_python_calls_is_compiled_by_the_warm_up() -> None:
    seen: list[tuple[int, int]] = []
    compile_kernels(lambda done, total, name: seen.append((done, total)))
    assert [done for done, _ in seen] == list(range(1, seen[0][1] + 1))
    outside = "\n".join(
        path.read_text() for path in (ROOT / "index").glob("**/*.py") if "kernels" not in path.parts
    )
    missing = [
        name
        for name, kernel in _kernels().items()
        if not kernel.signatures and f"{name.split('.')[1]}(" in outside
    ]
    assert missing == []


def test_the_cache_of_kernels_is_named_after_their_content(tmp_path: Path) -> None:
    program = "from index.kernels import CACHE_FOLDER; print(CACHE_FOLDER)"

    def folder(root: Path) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=root, env={"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PATH": ""},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    copy = tmp_path / "copy"
    (copy / "index" / "kernels").mkdir(parents=True)
    (copy / "index" / "__init__.py").write_text("")
    for path in (ROOT / "index" / "kernels").glob("*.py"):
        (copy / "index" / "kernels" / path.name).write_bytes(path.read_bytes())
    first = folder(copy)
    assert first.startswith(str(tmp_path / "cache"))
    assert folder(copy) == first
    changed = copy / "index" / "kernels" / "randomness.py"
    changed.write_text(changed.read_text() + "\n# changed\n")
    assert folder(copy) != first
