"""An installation puts one name at the top level, and a few of its names load little."""

import base64
import csv
import gc
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import lazy_loader
import numba
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gcws_search.imports import quick_imports
from gcws_search.index.kernels.cache import AGREED, cpus_of, features_here
from gcws_search.index.warmup.release import build_wheel
from tests.support.paths import PRODUCT, REPOSITORY, sources as tracked
from tests.support.processes import run_python

SOURCES = ("pyproject.toml", "README.md", "LICENSE", "gcws_search", "index", "service")

FEW = """
from gcws_search.index.warmup import compile as warmup
from gcws_search.index.warmup.compile import chains
todo = [[one for one in chain if one.name == "dense similarity"] for chain in chains()]
warmup.chains = lambda: todo
warmup.compile_kernels()
"""
"""Compiles some kernels as if they were all."""
USE = f"""
import json
{FEW}
from gcws_search.index.kernels.cache import KernelCache
from gcws_search.index.kernels.gmm import dense
from gcws_search.index.similarities import gmm_matrix
from gcws_search.index.warmup.compile import _Collection
stats = dense.matrix_dense.stats
counts = [sum(stats.cache_hits.values()), sum(stats.cache_misses.values())]
cpu = KernelCache.installed and KernelCache.installed.cpu.name
rows = _Collection(dim=24)._rows
scores = gmm_matrix(rows[:50], rows).tolist()
print(json.dumps([cpu, warmup.kernels_are_cached(), *counts, scores]))
"""
LOOK = """
import logging, sys
from gcws_search.index import compile_kernels, kernels_are_cached
from gcws_search.index.kernels.cache import KernelCache
from gcws_search.index.warmup import compile as warmup
print(KernelCache.installed and KernelCache.installed.cpu.name, kernels_are_cached())
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
warmup.chains = list
compile_kernels()
"""
"""Tells of the kernels that are found, and compiles none."""


def pip(*arguments: str | Path) -> str:
    """Run pip of this interpreter without a network, and return what it says."""
    return run_python("-m", "pip", *arguments, PYTHONPATH="").stdout  # else it finds the checkout


def wheel_of(project: Path, folder: Path) -> Path:
    """Build a wheel of a project, and return its path."""
    pip("wheel", "-q", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, project)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("project")
    ignore = shutil.ignore_patterns("__pycache__")
    for name in SOURCES:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, copy / name, symlinks=True, ignore=ignore)
        else:
            shutil.copyfile(source, copy / name)
    return wheel_of(copy, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def release(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel of this tree with kernels for the best CPU of this machine, and for any."""
    cpus = sorted({cpus_of(features_here())[0], AGREED[-1]})
    return build_wheel(wheel, tmp_path_factory.mktemp("release"), cpus, program=FEW)


@pytest.fixture(scope="module")
def other_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel of somebody else's package called ``index``."""
    project = tmp_path_factory.mktemp("other")
    (project / "index").mkdir(parents=True)
    (project / "index" / "__init__.py").write_text("WHOSE = 'another'\n")
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools>=77"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "other-index"\nversion = "1"\n'
        '[tool.setuptools]\npackages = ["index"]\n'
    )
    return wheel_of(project, tmp_path_factory.mktemp("wheels"))


def make_environment(folder: Path, *wheels: Path) -> Path:
    """Make an environment that sees what is installed here, with some wheels; return its folder."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "base.pth").write_text(f"{Path(lazy_loader.__file__).parents[1]}\n")
    install = ("install", "-q", "--no-deps", "--ignore-installed")
    pip("--python", environment / "bin" / "python", *install, *wheels)
    return environment


@pytest.fixture(scope="module")
def released(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("released"), release)


@pytest.fixture(scope="module")
def beside(wheel: Path, other_index: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("beside"), wheel, other_index)


def copied(environment: Path, folder: Path) -> Path:
    """Return the interpreter of a copy of an environment."""
    return shutil.copytree(environment, folder / "environment", symlinks=True) / "bin" / "python"


@pytest.fixture
def python(released: Path, tmp_path: Path) -> Path:
    """Return the interpreter of an environment of its own, with the wheel with kernels."""
    return copied(released, tmp_path)


@pytest.fixture
def sources(python: Path) -> Path:
    """Return the folder of the kernels' sources in it."""
    [kernels] = python.parents[1].glob("lib/python*/site-packages/gcws_search/index/kernels")
    return kernels


def said(python: Path, program: str, folder: Path, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= variables
    done = subprocess.run(
        [python, "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_wheel_without_kernels_holds_plain_files_below_one_name(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"gcws_search"}
    ours = {str(path.relative_to(REPOSITORY)) for path, _ in tracked(*PRODUCT)}
    found = {name.removeprefix("gcws_search/") for name in names}
    assert found >= {name.removeprefix("gcws_search/") for name in ours}
    data = {
        "py.typed",
        "__init__.pyi",
        "index/__init__.pyi",
        "commands/digits.npz",
        "commands/digits.txt",
    }
    static = REPOSITORY / "service" / "page" / "static"
    data |= {f"service/page/static/{p.relative_to(static)}" for p in static.rglob("*.*")}
    assert {f"gcws_search/{name}" for name in data} <= set(names)
    assert not [name for name in names if "/compiled/" in name]


def test_a_wheel_with_kernels_is_for_the_platforms_of_numba(release: Path, wheel: Path) -> None:
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert f"-{python}-{python}" in release.name
    assert "-any" not in release.name
    with zipfile.ZipFile(release) as archive, zipfile.ZipFile(wheel) as plain:
        names = archive.namelist()
        [record] = [name for name in names if name.endswith("/RECORD")]
        about = archive.read(record.replace("RECORD", "WHEEL")).decode()
        rows = {row[0]: row[1:] for row in csv.reader(archive.read(record).decode().splitlines())}
        for name, (digest, size) in rows.items():
            if name != record:
                content = archive.read(name)
                encoded = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
                assert digest == f"sha256={encoded.rstrip('=')}"
                assert int(size) == len(content)
        assert sorted(rows) == sorted(names)
        more = set(names) - set(plain.namelist())
    assert "Root-Is-Purelib: false" in about.splitlines()
    assert "-any" not in about
    folders = {name.split("/")[3] for name in more}
    assert folders == {"compiled"}
    assert {Path(name).suffix for name in more} == {".nbi", ".nbc", ""}
    assert not [name for name in more if name.endswith("lock")]


def test_kernels_that_were_installed_are_not_compiled_again(
    python: Path, sources: Path, tmp_path: Path
) -> None:
    """Neither the sources nor the user's home can be written to."""
    shutil.rmtree(sources / "__pycache__", ignore_errors=True)
    (sources / "__pycache__").touch()
    home = tmp_path / "home"
    home.touch()
    nowhere = {"HOME": str(home), "NUMBA_CACHE_DIR": ""}
    best = cpus_of(features_here())[0].name
    program = f"{USE}assert KernelCache.failure"
    cpu, *facts, scores = json.loads(said(python, program, tmp_path, **nowhere))
    assert (cpu, *facts) == (best, True, 1, 0)
    generic = {**AGREED[-1].settings, "NUMBA_CACHE_DIR": str(sources / "compiled")}
    other = json.loads(said(python, USE, tmp_path, **generic))
    assert other == [None, True, 1, 0, scores], "scores are equal to the bit on each CPU"


@pytest.mark.parametrize("changed", ["nothing", "sources", "numba", "CPU", "features"])
def test_kernels_of_other_sources_and_of_another_compiler_are_not_taken(
    python: Path, sources: Path, tmp_path: Path, changed: str
) -> None:
    """What the kernels were compiled by is told where it is that which differs."""
    own, program = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}, LOOK
    best = cpus_of(features_here())[0].name
    if changed == "sources":
        with (sources / "gmm" / "dense.py").open("a") as file:
            file.write("# changed\n")
    elif changed == "numba":
        program = f"import numba; numba.__version__ = '0.1'{LOOK}"
    elif changed == "CPU":
        own |= {"NUMBA_CPU_NAME": "generic"}
    elif changed == "features":
        own |= {"NUMBA_CPU_FEATURES": ""}
    found, *told = said(python, program, tmp_path, **own).splitlines()
    assert found == (f"{best} True" if changed == "nothing" else "None False")
    if changed in ("nothing", "sources"):
        assert told == []
        return
    [line] = told
    assert f"installed for numba {numba.__version__}, Python" in line
    here = "0.1" if changed == "numba" else numba.__version__
    assert f", but here is numba {here}, Python" in line


def test_installed_kernels_that_are_cut_short_are_compiled(
    python: Path, sources: Path, tmp_path: Path
) -> None:
    own = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    files = [*(sources / "compiled").rglob("dense.matrix_dense*.nbc")]
    for file in files:
        os.truncate(file, file.stat().st_size // 2)
    assert files
    assert json.loads(said(python, USE, tmp_path, **own))[1:4] == [True, 0, 1]
    assert json.loads(said(python, USE, tmp_path, **own))[1:4] == [True, 1, 0]


@pytest.mark.parametrize("first", ["gcws-search", "other-index"])
def test_it_lives_beside_a_package_called_index_and_outlives_it(
    beside: Path, tmp_path: Path, first: str
) -> None:
    python = copied(beside, tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "index.py").write_text("WHOSE = 'of the folder'\n")
    ours = "from gcws_search import InvalidVector; import gcws_search; print(gcws_search.__file__)"
    theirs = "import index; print(index.WHOSE)"
    assert str(python.parents[1]) in said(python, ours, folder)
    assert said(python, theirs, folder) == "of the folder"
    assert said(python, theirs, tmp_path) == "another"
    pip("--python", python, "uninstall", "-q", "-y", first)
    if first == "gcws-search":
        assert said(python, theirs, tmp_path) == "another"
        gone = "import importlib.util as u; print(u.find_spec('gcws_search'))"
        assert said(python, gone, tmp_path) == "None"
    else:
        assert str(python.parents[1]) in said(python, ours, folder)


def test_a_name_of_the_client_side_loads_no_compiler_nor_framework_and_sets_nothing(
    tmp_path: Path,
) -> None:
    program = (
        "import json, os, sys, threading\n"
        "before = dict(os.environ), sys.getswitchinterval(), threading.active_count()\n"
        "from gcws_search import InvalidVector, SearchParams, CollectionConfig\n"
        "from gcws_search import connect, connect_async, Collection, Hit, NoServer\n"
        "assert before == (dict(os.environ), sys.getswitchinterval(), threading.active_count())\n"
        "print(json.dumps(list(sys.modules)))"
    )
    loaded = {*json.loads(said(Path(sys.executable), program, tmp_path))}
    heavy = {"numba", "llvmlite", "fastapi", "pydantic", "scipy", "pyarrow", "httpx"}
    assert "gcws_search" in loaded
    assert not loaded & (heavy | {"gcws_search.index.kernels"})  # sets where kernels are kept


def test_no_start_waits_for_what_it_does_not_call(tmp_path: Path) -> None:
    # numba imports the package scipy itself, to see its version.
    program = (
        "import json, sys\n"
        "import click\n"
        "from gcws_search.commands.app import app\n"
        "from typer.main import get_command\n"
        "group = get_command(app)\n"
        "group.resolve_command(click.Context(group), ['serve'])\n"
        "from gcws_search.index import compile_kernels\n"
        "compile_kernels(without_blas=True)\n"
        "print(json.dumps(['.'.join(n.split('.')[:2]) for n in sys.modules]))"
    )
    loaded = set(json.loads(said(Path(sys.executable), program, tmp_path)))
    assert {"gcws_search.service", "numba.np"} <= loaded
    assert not loaded & {"scipy.special", "scipy.sparse", "scipy.stats", "scipy.linalg"}
    assert not loaded & {"sklearn", "pandas", "pyarrow"}


def test_a_file_is_sent_and_received_without_pandas(tmp_path: Path) -> None:
    # pyarrow imports it to look whether something is of it.
    lists = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    pq.write_table(pa.table({"vector": lists, "label": [3, 5]}), tmp_path / "rows.parquet")
    (tmp_path / "rows.csv").write_text("id,x,y,label\na,1,2,3\nb,4,5,6\n")
    program = (
        "import io, sys\n"
        "from gcws_search.formats.files import input_files\n"
        "from gcws_search.formats.sources import Choices, source_of\n"
        "from gcws_search.service.ingest.arrow import read_arrow\n"
        "from gcws_search.service.ingest.source import ByteReader\n"
        "from gcws_search.service.settings import Settings\n"
        "rows = 0\n"
        "for name in ('rows.parquet', 'rows.csv'):\n"
        "    [file] = input_files(name, None)\n"
        "    body = b''.join(source_of(file, Choices()).whole(lambda _: None).pieces())\n"
        "    reader = ByteReader(io.BytesIO(body).read, max_read_bytes=len(body))\n"
        "    rows += sum(map(len, read_arrow(reader, Settings())))\n"
        "print(rows, 'pandas' in sys.modules)"
    )
    assert said(Path(sys.executable), program, tmp_path) == "4 False"


def test_a_command_writes_parquet_without_pandas(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from gcws_search.__main__ import main\n"
        "sys.argv = ['gcws-search', '--version']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    import pyarrow\n"
        "    print(len(pyarrow.array(['a'])), 'pandas' in sys.modules)"
    )
    assert said(Path(sys.executable), program, tmp_path).splitlines()[-1] == "1 False"


def test_every_public_name_can_be_imported() -> None:
    import gcws_search  # noqa: PLC0415
    from gcws_search import index  # noqa: PLC0415

    for name in dir(index):
        assert getattr(index, name) is not None
    for name in {*dir(gcws_search)} - {"__version__"}:
        found = getattr(gcws_search, name)
        is_of_client = getattr(found, "__module__", "").startswith(
            ("gcws_search.client.", "gcws_search.duplicates")
        )
        assert is_of_client or found is getattr(index, name)


def test_the_package_is_the_console_script(tmp_path: Path) -> None:
    assert run_python("-m", "gcws_search", "version", folder=tmp_path).stdout.strip()


def test_a_hidden_module_is_missing_inside_and_there_again_after() -> None:
    sys.modules.pop("this", None)
    with quick_imports("this", "gcws_search"):
        assert not gc.isenabled()
        with pytest.raises(ImportError):
            importlib.import_module("this")
        importlib.import_module("gcws_search")  # it was loaded
    assert "this" not in sys.modules
    assert importlib.util.find_spec("this") is not None
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off_and_an_error_restores_all() -> None:
    gc.disable()
    try:
        with pytest.raises(ZeroDivisionError), quick_imports("this"):
            raise ZeroDivisionError
        assert not gc.isenabled()
        assert "this" not in sys.modules
    finally:
        gc.enable()
