"""What operators are given fits the service: scrape example, alerts, board."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gcws_search.service.cluster.server import ShardService
from tests.support.paths import REPOSITORY
from tests.support.service.client import Client, application, fill, running
from tests.support.service.cluster import ClusterClient
from tests.support.service.postgres import postgres
from tests.support.service.routes import GUARDED

DEPLOY: Final = REPOSITORY / "deploy"
RULES: Final = DEPLOY / "prometheus" / "alerts.yml"
SCRAPE: Final = DEPLOY / "prometheus" / "prometheus.yml"
BOARD: Final = DEPLOY / "grafana" / "board.json"
SERIES: Final = Path(__file__).with_name("alerts.yml")
OF_PROMETHEUS: Final = {"up"}
"""What it tells of a scrape itself."""

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool: Debian's package prometheus has it"
)


def promtool(*words: str | Path, text: str | None = None) -> None:
    done = subprocess.run(
        ["promtool", *words], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def read(path: Path) -> Any:  # noqa: ANN401 (YAML)
    return yaml.safe_load(path.read_text())


@pytest.fixture
def metrics(tmp_path: Path) -> Iterator[str]:
    """Yield the metrics of a service that has done a little of everything."""
    with running(Client(application(tmp_path, audit_share=1.0)[0])) as client:
        fill(client)
        client.post("/v1/collections/plants/query", json={"id": "a", "recall": 0.8})
        client.finish_background_work("plants")
        yield client.get("/metrics").text


@pytest.fixture
def cluster_metrics(tmp_path: Path) -> Iterator[str]:
    """Yield the metrics of a router and of a shard; one replica of another shard failed."""
    with (
        postgres().database() as url,
        running(ClusterClient(url, tmp_path / "cluster", replicas=2)) as client,
    ):
        fill(client)
        client.shards.replicas[0][0].broken = ConnectionRefusedError("nobody listens")
        for _ in range(4):
            assert client.post("/v1/collections/plants/query", json={"id": "a"}).is_success
        registry = CollectorRegistry()
        registry.register(ShardService(client.shards.replicas[1][0].host, "a key", 1))
        yield client.get("/metrics").text + generate_latest(registry).decode()


def expressions() -> Iterator[str]:
    """Yield every expression of the rules and of the board."""
    for group in read(RULES)["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    board = json.loads(BOARD.read_text())
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (
        each["definition"].removeprefix("label_values(")
        for each in board["templating"]["list"]
        if each["type"] == "query"
    )


def names(expression: str) -> set[str]:
    """Return the metrics that an expression names."""
    plain = re.sub(r'"[^"]*"', "", expression)
    return {*re.findall(r"\b(?:(?:gcws|process|python)_\w+|up\b)", plain)}


def labels(expression: str) -> Iterator[tuple[str, str]]:
    """Yield each metric of an expression with a label that is selected by."""
    for name, selected in re.findall(r"(\w+)\{([^}]*)\}", expression):
        yield from ((name, label) for label in re.findall(r'(\w+)=?[=!~]+"', selected))


def test_every_metric_of_rules_and_board_exists(metrics: str, cluster_metrics: str) -> None:
    assert names('sum(rate(gcws_serches_total{a="gcws_x"}[5m])) / up') == {
        "gcws_serches_total", "up",
    }  # fmt: skip
    families = [*text_string_to_metric_families(cluster_metrics)]
    families += text_string_to_metric_families(metrics)
    known = {sample.name: sample.labels for family in families for sample in family.samples}
    used = set().union(*map(names, expressions()))
    assert len(used) > 20
    assert used - OF_PROMETHEUS - known.keys() == set()
    selected = {pair for each in expressions() for pair in labels(each)}
    assert ("gcws_request_seconds_count", "status") in selected
    of_targets = {"instance", "job"}
    wrong = {
        (name, label)
        for name, label in selected
        if name not in OF_PROMETHEUS and label not in of_targets and label not in known[name]
    }
    assert not wrong


def test_the_board_has_no_two_panels_in_one_place() -> None:
    panels = json.loads(BOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    grids = [panel["gridPos"] for panel in panels]
    places = [
        (grid["x"] + x, grid["y"] + y)
        for grid in grids
        for x, y in product(range(grid["w"]), range(grid["h"]))
    ]
    assert len({*places}) == len(places)
    assert max(x for x, _ in places) < 24


@needs_promtool
def test_promtool_finds_no_fault(metrics: str, cluster_metrics: str) -> None:
    promtool("check", "rules", RULES)
    promtool("check", "config", "--syntax-only", SCRAPE)
    promtool("check", "metrics", text=metrics)
    promtool("check", "metrics", text=cluster_metrics)


@needs_promtool
def test_alerts_are_raised_by_what_they_name_alone() -> None:
    promtool("test", "rules", SERIES)


def test_every_alert_is_tried_quiet_and_raised() -> None:
    """And operations.md says what to do about it."""
    named = [rule["alert"] for group in read(RULES)["groups"] for rule in group["rules"]]
    quiet, raised = read(SERIES)["tests"]
    for tried in (quiet, raised):
        assert [each["alertname"] for each in tried["alert_rule_test"]] == named
    assert all(each["exp_alerts"] for each in raised["alert_rule_test"])
    text = (REPOSITORY / "docs" / "operations.md").read_text()
    assert not [name for name in named if f"`{name}`" not in text]


def test_the_profile_mounts_what_is_there() -> None:
    compose = read(REPOSITORY / "docker-compose.yml")
    services = compose["services"].values()
    watching = [each for each in services if "monitoring" in each.get("profiles", [])]
    assert len(watching) == 2
    for service in watching:
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            exists = (REPOSITORY / source).exists() or source in compose["volumes"]
            assert exists, source
    jobs = {job["job_name"]: job for job in read(SCRAPE)["scrape_configs"]}
    job, routers, shards = (jobs[f"gcws-{name}"] for name in ("search", "routers", "shards"))
    discovered = shards["http_sd_configs"]
    for each in (job, routers, shards, *discovered):
        secret = Path(each["authorization"]["credentials_file"])
        assert secret.parent == Path("/run/secrets")
        assert secret.name in compose["services"]["prometheus"]["secrets"]
    services_of = {
        each["metadata"]["name"]: each["spec"].get("clusterIP")
        for each in yaml.safe_load_all((DEPLOY / "kubernetes-cluster.yml").read_text())
        if each["kind"] == "Service"
    }
    assert {*routers["dns_sd_configs"][0]["names"]} == {"router", "gcws-routers"}
    assert services_of["gcws-routers"] == "None", "a name of all routers"
    assert services_of["gcws-router"] is None
    urls = [urlsplit(each["url"]) for each in discovered]
    assert [each.hostname for each in urls] == ["router", "gcws-router"]
    assert {each.path for each in urls} == {"/metrics/targets"} <= {path for _, path in GUARDED}
    for name in ("router", "node"):
        assert {*compose["services"][name]["networks"]} & {
            *compose["services"]["prometheus"]["networks"]
        }
    [target] = job["static_configs"][0]["targets"]
    assert target.partition(":")[0] in compose["services"]
