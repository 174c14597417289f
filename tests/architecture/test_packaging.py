"""Facts about the files around the code: image, compose file, metadata, README, CI."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from gcws_search.service.settings import Settings
from tests.support.documents.compose import filled_in, read_compose
from tests.support.documents.dockerfile import Instruction, instructions
from tests.support.paths import REPOSITORY
from tests.support.processes import run_python

MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|home|root|Users)/|/tmp/plan|\.\./shared|\bshared/")
REGISTRY_HOSTS = re.compile(
    r"pypi\.org|pythonhosted|docker\.io|ghcr\.io|quay\.io|\bregistry\.(?:npm|hub)|npmjs|debian\.org",
    re.IGNORECASE,
)
README_COMMAND = re.compile(
    r"^```(?:sh|bash|console)\n(?:\$ )?(python3 -m venv .*)\n```$", re.MULTILINE
)


COMPOSE = read_compose()
SEARCH = COMPOSE["services"]["search"]
DOCKERFILE = [*instructions()]
LAST_FROM = max(i for i, each in enumerate(DOCKERFILE) if each.keyword == "FROM")
STAGE = DOCKERFILE[LAST_FROM + 1 :]
"""What follows the last FROM."""
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def only(keyword: str) -> Instruction:
    """Return the one instruction of this keyword in the last stage."""
    [instruction] = [instruction for instruction in STAGE if instruction.keyword == keyword]
    return instruction


# The compose file


def test_the_compose_file_fits_the_published_schema() -> None:
    """check-jsonschema carries the Compose Specification's schema (Apache-2.0)."""
    words = ("-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec")
    run_python(*words, REPOSITORY / "docker-compose.yml")


def test_the_container_is_confined_to_loopback_and_a_volume() -> None:
    assert SEARCH["ports"] == ["${GCWS_BIND:-127.0.0.1}:${GCWS_PORT:-8000}:8000"]
    assert SEARCH["volumes"] == ["data:/data"]
    assert "data" in COMPOSE["volumes"]
    assert SEARCH["read_only"] is True
    assert SEARCH["cap_drop"] == ["ALL"]
    assert SEARCH["security_opt"] == ["no-new-privileges:true"]
    assert SEARCH["mem_limit"].startswith("${GCWS_MEMORY:-")


@pytest.mark.parametrize("name", ["api_key", "read_only_api_key"])
def test_keys_are_secrets_and_need_not_be_there(name: str) -> None:
    variable = f"GCWS_{name.upper()}_FILE"
    given = {variable: "./my.key"}
    [line] = [each for each in SEARCH["environment"] if each.startswith(f"{variable}=")]
    file = COMPOSE["secrets"][name]["file"]
    assert (filled_in(line, given), filled_in(file, given)) == (
        f"{variable}=/run/secrets/{name}",
        "./my.key",
    )
    assert (filled_in(line, {}), filled_in(file, {})) == (f"{variable}=", "/dev/null")
    assert name in SEARCH["secrets"]
    assert not [each for each in SEARCH["environment"] if re.match(r"GCWS_\w*API_KEY\b", each)]


def test_the_container_gets_longer_to_stop_than_requests_get() -> None:
    grace_seconds = int(SEARCH["stop_grace_period"].removesuffix("s"))
    assert grace_seconds > Settings.model_fields["shutdown_seconds"].default


def test_both_files_ask_for_health_alike_and_without_curl() -> None:
    image = only("HEALTHCHECK").command
    assert SEARCH["healthcheck"]["test"] == ["CMD", *image]
    assert image == ["gcws-search", "health"]


# The image


def test_every_stage_starts_from_one_exact_version_that_the_package_permits() -> None:
    [base] = {i.text.split(" AS ")[0] for i in DOCKERFILE if i.keyword == "FROM"}
    version = re.fullmatch(r"python:3\.(\d+)\.\d+-slim-\w+", base)
    assert version is not None
    assert int(version[1]) >= int(PROJECT["requires-python"].removeprefix(">=3."))


def test_the_image_does_not_run_as_root() -> None:
    user = only("USER")
    assert int(user.text.split(":")[0]) > 0
    assert STAGE.index(user) < STAGE.index(only("ENTRYPOINT"))


def test_the_image_has_the_installation_that_kernels_were_compiled_for() -> None:
    runs = [i.text for i in STAGE if i.keyword == "RUN"]
    assert not [text for text in runs if "pip" in text or "apt" in text or "python" in text]
    before = DOCKERFILE[: -len(STAGE)]
    last = [each.text for each in before if each.keyword == "RUN"][-1]
    assert last.startswith("python -m gcws_search.index.warmup.release install ")
    folder = only("COPY").text.split()[-1]
    assert only("ENV").settings["PATH"].startswith(f"{folder}/bin:")
    assert f"RUN python -m venv {folder}" in [f"{each.keyword} {each.text}" for each in before]
    arguments = [each.text for each in DOCKERFILE if each.keyword == "ARG"]
    assert arguments == ["EXTRA=", "KERNEL_TARGETS="]  # every CPU, and no extra, unless asked


@pytest.mark.parametrize("extra", ["", "cluster"])
def test_the_image_installs_what_the_metadata_name_at_versions_that_are_fixed(extra: str) -> None:
    [command] = [i.text for i in DOCKERFILE if "requirements" in i.text and i.keyword == "RUN"]
    shown = subprocess.run(
        ["sh", "-ec", command.replace("pip", "echo", 1)],
        env={**os.environ, "EXTRA": extra}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "--require-hashes" in shown
    file = REPOSITORY / "deploy" / shown.split()[-1]
    assert f"deploy/{file.name} ./" in {i.text for i in DOCKERFILE if i.keyword == "COPY"}
    fixed = {}
    for entry in re.split(r"\n(?=\S)", file.read_text().strip()):
        name, version, hashes = re.fullmatch(r"(\S+)==(\S+)((?:.|\n)*)", entry).groups()  # type: ignore[union-attr]
        assert "--hash=sha256:" in hashes
        fixed[name] = version
    more = PROJECT["optional-dependencies"][extra] if extra else []
    for wanted in map(Requirement, [*PROJECT["dependencies"], *more]):
        assert wanted.specifier.contains(fixed[wanted.name])


def test_a_login_shell_of_the_image_finds_its_commands(tmp_path: Path) -> None:
    [command] = [i.text for i in DOCKERFILE if "profile.d" in i.text]
    subprocess.run(["sh", "-ec", command.replace("/etc", str(tmp_path))], check=True)
    [file] = (tmp_path / "profile.d").glob("*.sh")
    shown = subprocess.run(
        ["sh", "-ec", f". {file}; echo $PATH"],
        env={"PATH": "/usr/bin"}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert shown == "/opt/gcws/bin:/usr/bin\n"


def test_settings_of_the_image_are_settings_of_the_service() -> None:
    set_here = {name for i in DOCKERFILE if i.keyword == "ENV" for name in i.settings}
    ours = {name.removeprefix("GCWS_").lower() for name in set_here if name.startswith("GCWS_")}
    assert ours == {"data_dir", "host", "port"}
    assert ours <= set(Settings.model_fields)


def test_the_build_context_is_what_the_image_copies() -> None:
    allowed = re.findall(r"^!(\S+)$", (REPOSITORY / ".dockerignore").read_text(), re.MULTILINE)
    copied = {
        word
        for i in DOCKERFILE
        if i.keyword == "COPY" and not i.text.startswith("--from")
        for word in i.text.split()[:-1]
    }
    assert set(allowed) == copied
    assert {PROJECT["readme"], *PROJECT["license-files"]} <= copied


# Metadata


def test_extras_and_the_console_script_exist() -> None:
    assert set(PROJECT["optional-dependencies"]) == {
        "test", "bench", "cluster", "learn", "docs", "page", "rdkit", "biom", "xlsx",
    }  # fmt: skip
    assert PROJECT["scripts"] == {"gcws-search": "gcws_search.__main__:main"}


def test_every_package_of_the_tree_is_installed() -> None:
    """A folder of modules without ``__init__.py`` would be missing from the wheel."""
    folders = {
        path.parent
        for name in ("index", "service", "gcws_search")
        for path in (REPOSITORY / name).rglob("*.py")
    }
    assert not [str(folder) for folder in folders if not (folder / "__init__.py").exists()]


# README and CI


def test_the_readme_has_two_commands_and_ci_runs_the_second() -> None:
    run, test = README_COMMAND.findall((REPOSITORY / "README.md").read_text())
    assert run.endswith("gcws-search serve")
    assert "pytest" in test
    assert test in (REPOSITORY / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize("named", [MACHINE_PATHS, REGISTRY_HOSTS])
def test_no_tracked_file_names_a_machine_path_or_a_registry(named: re.Pattern[str]) -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("not a git checkout: no list of tracked files")
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=REPOSITORY, text=True)
    paths = {REPOSITORY / name for name in listed.split("\0")[:-1]} - {Path(__file__)}
    texts = {path: path.read_text(errors="replace") for path in paths if path.is_file()}
    assert not {path for path, text in texts.items() if named.search(text)}


@pytest.mark.parametrize(
    "failing",
    ["nothing", "ruff", "biome", "deno", "mypy", "mkdocs", "pytest", "tests.rehearse_image"],
)
def test_the_checks_fail_if_and_only_if_one_of_them_does(failing: str, tmp_path: Path) -> None:
    """Every command is a stub that says how it was called; one of them may fail."""
    tools, script = tmp_path / ".venv" / "bin", tmp_path / ".ci" / "run"
    tools.mkdir(parents=True)
    script.parent.mkdir()
    script.write_bytes((REPOSITORY / ".ci" / "run").read_bytes())
    linters = ("ruff", "biome", "deno", "mypy", "mkdocs")
    for name in ("python", "python3", "pip", "chromium", "promtool", *linters):
        stub = tools / name
        stub.write_text(f'#!/bin/sh\ncase "${{0##*/}} $*" in *{failing}*) exit 3;; esac\n')
        stub.chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", script], env={**os.environ, "PATH": path}, capture_output=True, check=False
    )
    assert (done.returncode == 0) == (failing == "nothing"), done.stderr.decode()
