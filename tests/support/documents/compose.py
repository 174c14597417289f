"""Reads the compose file, and runs services of its profile "cluster" as processes."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.documents.dockerfile import instructions
from tests.support.documents.markdown import blocks
from tests.support.paths import REPOSITORY
from tests.support.service.postgres import Postgres

SECRETS: Final = "/run/secrets/"
PROFILES: Final = {"cluster", "standby"}


def read_compose() -> dict[str, Any]:
    document = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
    assert isinstance(document, dict)
    return document


def filled_in(text: str, variables: Mapping[str, str]) -> str:
    """Return text with ``${NAME:-default}`` and ``${NAME:+instead}`` as compose fills them in."""
    known = [(rf"\$\{{{name}:\+([^}}]*)\}}", r"\1") for name in variables]
    known += [(rf"\$\{{{name}:-[^}}]*\}}", value) for name, value in variables.items()]
    for pattern, value in [*known, (r"\$\{\w+:-([^}]*)\}", r"\1"), (r"\$\{\w+:\+[^}]*\}", "")]:
        text = re.sub(pattern, value, text)
    return text


def cluster_services() -> dict[str, dict[str, Any]]:
    """Return the services of the profile and of its standby, by name."""
    found = read_compose()["services"].items()
    return {name: each for name, each in found if PROFILES & {*each.get("profiles", [])}}


class Rehearsal:
    """Services of the profile as processes of this machine.

    ``folder``: has the secrets, and what processes write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.services = cluster_services()

    def make_secrets(self) -> list[str]:
        """Run the commands of the page that come before compose; return all of its commands."""
        page = (REPOSITORY / "docs" / "cluster.md").read_text()
        [block] = [text for _, text in blocks(page) if "mkdir" in text]
        lines = block.splitlines()
        ours = "\n".join(line for line in lines if not line.startswith("docker "))
        subprocess.run(["sh", "-ec", ours], cwd=self.folder, check=True)
        return lines

    def secret(self, name: str) -> Path:
        return self.folder / "secrets" / name

    def command(self, name: str) -> list[str]:
        """Return a service's command; that of the image where it has none."""
        [usual] = [each.command for each in instructions() if each.keyword == "CMD"]
        return [filled_in(word, {}) for word in self.services[name].get("command", usual)]

    def environment(self, name: str) -> dict[str, str]:
        """Return a service's variables; a file of secrets is there if the service is given it.

        A volume that a variable names is a folder beside the secrets.
        """
        service, found = self.services[name], {}
        volumes = [each.split(":") for each in service.get("volumes", [])]
        folders = {path: str(self.folder / volume) for volume, path, *_ in volumes}
        for key, value in service["environment"].items():
            text = filled_in(str(value), {})
            secret = text.removeprefix(SECRETS)
            if secret != text:
                assert secret in service["secrets"]
                text = str(self.secret(secret))
            found[key] = folders.get(text, text)
        return found

    def start(
        self,
        words: Sequence[str],
        name: str,
        *,
        exchanged: Mapping[str, Sequence[str]],
        more: Mapping[str, str],
    ) -> "subprocess.Popen[bytes]":
        """Start a program of a service's image, with the variables of both alone.

        ``exchanged``: words, and what stands for them on this machine. ``more``: variables that
        differ on this machine.
        """
        [entry] = [each.command for each in instructions() if each.keyword == "ENTRYPOINT"]
        assert entry == ["gcws-search"]
        passed = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        for each in instructions():
            if each.keyword == "ENV":
                passed |= {k: text for k, text in each.settings.items() if k.startswith("GCWS_")}
        command = [each for word in words for each in exchanged.get(word, [word])]
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "gcws_search", *command],
                env={**passed, **self.environment(name), **more},
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def create_database(self, server: Postgres, monkeypatch: Any) -> None:  # noqa: ANN401
        """Make the database as PostgreSQL's image does: it asks all for the password."""
        environment = self.environment("database")
        password = Path(environment["POSTGRES_PASSWORD_FILE"]).read_text().strip()
        monkeypatch.setenv("PGPASSWORD", password)
        server.create()
        server.start()
        server.execute(f"ALTER USER gcws PASSWORD '{password}'")
        server.execute(f"CREATE DATABASE {environment['POSTGRES_DB']}")
        (server.data / "pg_hba.conf").write_text("host all all all scram-sha-256\n")
        variables = environment | {"PGDATA": str(server.data), "PATH": os.environ["PATH"]}
        with (REPOSITORY / "deploy/postgres/replication.sh").open() as script:
            subprocess.run(["sh", "-s"], stdin=script, env=variables, user=server.user, check=True)
        server.execute("SELECT pg_reload_conf()")
