"""The manifests of a cluster: what Kubernetes and KubeRay ask of them, what the service asks."""

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema
import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from gcws_search.commands.app import app
from gcws_search.service.settings import Settings
from gcws_search.version import program_version
from tests.support.documents.compose import cluster_services
from tests.support.documents.dockerfile import instructions
from tests.support.paths import REPOSITORY

DEPLOY: Final = REPOSITORY / "deploy"
VERSIONS: Final = ("1.30", "1.34")
"""Of Kubernetes."""
SECRETS: Final = {
    "gcws-cluster": {"database_url", "cluster_key"},
    "gcws-search-keys": {"api_key"},
    "gcws-metrics": {"read_only_api_key"},
    "gcws-tls": {"ca.crt", "tls.crt", "tls.key"},
    "gcws-ray": {"ray_token"},
}
"""As the heads of the files make them."""
OTHERS: Final = (
    *("--shards=3", "--replicas=4", "--routers=5", "--nodes=6"),
    *("--image=mine:1", "--memory=1Gi", "--storage=2Gi", "--cell=b"),
)


def printed(*words: str) -> str:
    """Return what the command prints."""
    shown = CliRunner().invoke(app, ["cluster", "manifest", *words])
    assert shown.exit_code == 0, shown.output
    return shown.output


def closed(required: list[str], /, **properties: object) -> dict[str, Any]:
    """Return the schema of an object that has these properties alone."""
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


# What KubeRay's RayCluster asks for around its pods; those are checked as Kubernetes' own.
_NUMBER: Final = {"type": "integer", "minimum": 0}
_GROUP: Final = {
    "rayStartParams": {"type": "object", "additionalProperties": {"type": "string"}},
    "template": {"type": "object"},
}
_WORKERS: Final = closed(
    ["groupName", "minReplicas", "maxReplicas", "template"],
    groupName={"type": "string"},
    replicas=_NUMBER,
    minReplicas=_NUMBER,
    maxReplicas=_NUMBER,
    **_GROUP,
)
RAY_CLUSTER: Final = closed(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayCluster"},
    metadata={"type": "object", "required": ["name"]},
    spec=closed(
        ["headGroupSpec"],
        headGroupSpec=closed([*_GROUP], **_GROUP),
        workerGroupSpecs={"type": "array", "items": _WORKERS},
    ),
)


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def of_kind(text: str, kind: str) -> list[dict[str, Any]]:
    return [each for each in documents(text) if each["kind"] == kind]


WORDS: Final[dict[str, tuple[str, ...]]] = {
    "plain": ("--shards=2",),
    "kuberay": ("--shards=2", "--kuberay"),
    "plain, others": OTHERS,
    "kuberay, others": (*OTHERS, "--kuberay"),
}
"""Of the command, by the name of what it prints."""


@cache
def text_of(name: str) -> str:
    """Return a manifest by its name."""
    return printed(*WORDS[name]) if name in WORDS else (DEPLOY / "kubernetes.yml").read_text()


@pytest.fixture
def text(request: pytest.FixtureRequest) -> str:
    """Return the manifest that a test is of."""
    return text_of(request.param)


both = pytest.mark.parametrize("text", [*WORDS, "one node"], indirect=True)
ours = pytest.mark.parametrize("text", [*WORDS], indirect=True)


def pods(text: str) -> Iterator[dict[str, Any]]:
    """Yield the templates of all pods."""
    for each in documents(text):
        spec = each["spec"]
        if each["kind"] == "RayCluster":
            groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
            yield from (group["template"] for group in groups)
        elif "template" in spec:
            yield spec["template"]


def plain_documents(text: str) -> Iterator[dict[str, Any]]:
    """Yield what Kubernetes knows by itself; the pods of a RayCluster as templates of their own."""
    for each in documents(text):
        if each["kind"] != "RayCluster":
            yield each
    for number, template in enumerate(pods(text)):
        name = {"name": f"template-{number}"}
        yield {"apiVersion": "v1", "kind": "PodTemplate", "metadata": name, "template": template}


@pytest.mark.parametrize(
    ("name", "words"), [("kubernetes-cluster.yml", []), ("kuberay.yml", ["--kuberay"])]
)
def test_the_file_is_what_the_command_prints(name: str, words: list[str]) -> None:
    text = (DEPLOY / name).read_text()
    assert printed(*words, "--shards", "2") == text
    command = " ".join(["gcws-search cluster manifest", *words, "--shards 2"])
    assert f"`{command}`" in text.splitlines()[0]


@both
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_schemas_are_met(text: str, version: str) -> None:
    for each in plain_documents(text):
        kubernetes_validate.validate(each, version, strict=True)


def test_the_schemas_refuse_a_misspelt_key() -> None:
    [stateful, *_] = of_kind(text_of("plain"), "StatefulSet")
    stateful["spec"]["template"]["spec"]["containers"][0]["comand"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(stateful, VERSIONS[0], strict=True)


RAY_READER = "_derive_autoscaling_config_from_ray_cr"
"""What Ray itself reads such a document with; it has no public one."""


@pytest.mark.parametrize("name", ["kuberay", "kuberay, others"])
def test_a_ray_cluster_is_as_kuberay_and_ray_read_it(name: str) -> None:
    autoscaling_config = pytest.importorskip("ray.autoscaler._private.kuberay.autoscaling_config")
    [cluster] = of_kind(text_of(name), "RayCluster")
    jsonschema.validate(cluster, RAY_CLUSTER)
    cluster["metadata"]["namespace"] = "default"
    read = getattr(autoscaling_config, RAY_READER)(cluster)
    nodes = read["available_node_types"]["nodes"]
    wanted = 6 if "others" in name else 3
    assert (nodes["min_workers"], nodes["max_workers"]) == (wanted, wanted)


@both
def test_pods_are_confined_as_compose_says(text: str) -> None:
    [user] = {each.text for each in instructions() if each.keyword == "USER"}
    for pod in pods(text):
        security = pod["spec"]["securityContext"]
        assert f"{security['runAsUser']}:{security['runAsGroup']}" == user
        assert security["runAsNonRoot"] is True
        assert pod["spec"]["automountServiceAccountToken"] is False
        grace = pod["spec"]["terminationGracePeriodSeconds"]
        assert grace > Settings.model_fields["shutdown_seconds"].default
        [container] = pod["spec"]["containers"]
        assert container["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }


@both
def test_what_is_mounted_is_there(text: str) -> None:
    for each in documents(text):
        claims = each["spec"].get("volumeClaimTemplates", [])
        claimed = {claim["metadata"]["name"] for claim in claims}
        for pod in pods(yaml.safe_dump(each)):
            [container] = pod["spec"]["containers"]
            mounted = [mount["name"] for mount in container["volumeMounts"]]
            volumes = [volume["name"] for volume in pod["spec"]["volumes"]]
            assert sorted(mounted) == sorted([*volumes, *claimed])


@ours
def test_each_pod_is_given_the_secrets_that_it_reads(text: str) -> None:
    for pod in pods(text):
        [container] = pod["spec"]["containers"]
        files = [one for one in container["env"] if one["name"].endswith(("_FILE", "_PATH"))]
        read = {one["value"].rpartition("/")[2] for one in files}
        [secrets] = [one for one in pod["spec"]["volumes"] if one["name"] == "secrets"]
        sources = [source["secret"] for source in secrets["projected"]["sources"]]
        names = [source["name"] for source in sources]
        parts = [{item["path"] for item in source.get("items", ())} for source in sources]
        assert read == set().union(
            *(part or SECRETS[name] for name, part in zip(names, parts, strict=True))
        )
        for name in names:
            made = " ".join(f"--from-file={file}" for file in sorted(SECRETS[name]))
            [line] = [line for line in text.splitlines() if f"generic {name} " in line]
            assert {*line.split()} >= {*made.replace("=api_key", "=api_key=./admin.key").split()}


@both
def test_settings_are_settings_of_the_service(text: str) -> None:
    for pod in pods(text):
        [container] = pod["spec"]["containers"]
        named = {each["name"] for each in container["env"]}
        set_here = {name.removeprefix("GCWS_").lower() for name in named if "GCWS_" in name}
        assert set_here <= set(Settings.model_fields)
        others = {"REPLICA", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"}
        assert named - {f"GCWS_{name.upper()}" for name in set_here} <= others


@both
def test_selectors_select_what_is_there(text: str) -> None:
    labels = [pod["metadata"]["labels"] for pod in pods(text)]

    def selects(wanted: dict[str, str]) -> bool:
        return any(wanted.items() <= each.items() for each in labels)

    for each in documents(text):
        spec = each["spec"]
        if each["kind"] == "Service":
            assert selects(spec["selector"])
        elif "selector" in spec:
            assert selects(spec["selector"]["matchLabels"])
        elif each["kind"] == "NetworkPolicy":
            [rule] = spec["ingress"]
            *inside, prometheus = rule["from"]
            found = [spec["podSelector"], *(source["podSelector"] for source in inside)]
            assert all(selects(one["matchLabels"]) for one in found)
            assert prometheus["namespaceSelector"] == {}
            assert prometheus["podSelector"]["matchLabels"]


@ours
def test_one_pod_at_a_time_is_taken_of_those_that_stand_in_for_each_other(text: str) -> None:
    budgets = [each["spec"] for each in of_kind(text, "PodDisruptionBudget")]
    assert all(budget["maxUnavailable"] == 1 for budget in budgets)
    wanted = [budget["selector"]["matchLabels"] for budget in budgets]
    sets = of_kind(text, "StatefulSet")
    several = [each["spec"]["template"]["metadata"]["labels"] for each in sets]
    for cluster in of_kind(text, "RayCluster"):
        groups = cluster["spec"]["workerGroupSpecs"]
        several += [group["template"]["metadata"]["labels"] for group in groups]
        head = cluster["spec"]["headGroupSpec"]["template"]["metadata"]["labels"]
        assert not any(labels.items() <= head.items() for labels in wanted)
    assert several
    for labels in several:
        assert [one for one in wanted if one.items() <= labels.items()] == [labels]


def named(text: str, kind: str, name: str) -> dict[str, Any]:
    """Return what is said of the one document of a kind and a name."""
    [found] = [each for each in of_kind(text, kind) if each["metadata"]["name"] == name]
    spec: dict[str, Any] = found["spec"]
    return spec


def check_owns_data(stateful: dict[str, Any]) -> dict[str, Any]:
    """Fail unless pods have their data claimed; return their container."""
    [claim] = stateful["volumeClaimTemplates"]
    [container] = stateful["template"]["spec"]["containers"]
    paths = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert paths[claim["metadata"]["name"]] == "/data"
    found: dict[str, Any] = container
    return found


def test_the_one_node_owns_its_data_and_is_asked_for_what_it_answers() -> None:
    [stateful] = of_kind(text_of("one node"), "StatefulSet")
    assert stateful["spec"]["replicas"] == 1
    container = check_owns_data(stateful["spec"])
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    paths = [container[probe]["httpGet"]["path"] for probe in probes]
    assert paths == ["/livez", "/livez", "/readyz"]


@ours
def test_shards_are_asked_by_tls_alone(text: str) -> None:
    shards = 0
    for pod in pods(text):
        [container] = pod["spec"]["containers"]
        named = {each["name"] for each in container["env"]}
        is_router = "GCWS_API_KEY_FILE" in named
        is_shard = "GCWS_READ_ONLY_API_KEY_FILE" in named and not is_router
        assert ("GCWS_TLS_CA_FILE" in named) == (is_router or is_shard)
        assert ({"GCWS_TLS_CERTIFICATE_FILE", "GCWS_TLS_KEY_FILE"} <= named) == is_shard
        asked = [probe["httpGet"] for probe in container.values() if "httpGet" in probe]
        assert {each.get("scheme") for each in asked} <= {"HTTPS" if is_shard else None}
        shards += is_shard
    assert shards


@ours
def test_a_router_keeps_its_snapshots_when_its_pod_is_replaced(text: str) -> None:
    routers = named(text, "StatefulSet", "gcws-router")
    check_owns_data(routers)
    assert named(text, "Service", routers["serviceName"])["clusterIP"] == "None"


def test_images_of_a_cluster_have_the_version_as_their_tag() -> None:
    images = {each["image"] for each in cluster_services().values() if "build" in each}
    assert images == {f"gcws-search-cluster:{program_version()}"}


@pytest.mark.parametrize("kind", [[], ["--kuberay"]])
def test_all_of_a_cluster_are_told_where_its_bases_are(kind: list[str]) -> None:
    base = {"name": "GCWS_BASE", "value": "s3://corpus/bases"}
    text = printed(*kind, "--base", base["value"])
    [*found] = (each["env"] for pod in pods(text) for each in pod["spec"]["containers"])
    assert found
    assert all(base in env for env in found)
    assert "GCWS_BASE" not in printed(*kind)
    refused = CliRunner().invoke(app, ["cluster", "manifest", *kind, "--base", "/bases"])
    assert refused.exit_code != 0
    assert "'/bases'" in refused.output


def test_there_is_a_set_for_each_shard() -> None:
    *sets, routers = of_kind(text_of("plain, others"), "StatefulSet")
    assert "replicas" not in routers["spec"]  # the autoscaler's
    assert [each["metadata"]["name"] for each in sets] == [f"gcws-shard-{n}" for n in range(3)]
    for number, each in enumerate(sets):
        assert each["spec"]["replicas"] == 4
        [container] = each["spec"]["template"]["spec"]["containers"]
        assert container["args"][:3] == ["shard", "--shard", str(number)]
        values = {one["name"]: one.get("value") for one in container["env"]}
        assert (values["GCWS_SHARDS"], values["GCWS_CELL"]) == ("3", "b")
        assert container["image"] == "mine:1"
    [scaled] = of_kind(text_of("plain, others"), "HorizontalPodAutoscaler")
    assert (scaled["spec"]["minReplicas"], scaled["spec"]["maxReplicas"]) == (5, 20)
    target = scaled["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == (routers["kind"], routers["metadata"]["name"])
    services = {each["metadata"]["name"] for each in of_kind(text_of("plain"), "Service")}
    assert services == {"gcws-shard", "gcws-router", "gcws-routers"}


def test_the_job_s_script_is_one_for_the_shell(tmp_path: Path) -> None:
    """It tries until the command has success, and no longer."""
    [job] = of_kind(text_of("kuberay"), "Job")
    [container] = job["spec"]["template"]["spec"]["containers"]
    shell, option, script = container["command"]
    stub = tmp_path / "gcws-search"
    stub.write_text(
        '#!/bin/sh\necho "$*" >>"$CALLS"\n[ "$2" = node ] && exit\n'
        # The node begins in the background: the first try waits for it.
        'until grep -q node "$CALLS"; do :; done\n[ "$(grep -c up "$CALLS")" = 3 ]\n'
    )
    stub.chmod(0o755)
    calls = tmp_path / "calls"
    done = subprocess.run(
        [shell, option, script.replace("sleep 5", "sleep 0")],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "CALLS": str(calls)},
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    lines = calls.read_text().splitlines()
    assert lines.count("cluster up") == 3
    assert [line for line in lines if line.startswith("cluster node --address gcws-head-svc:6379")]
