"""A cluster as Kubernetes takes it, and as KubeRay does.

The database is not among it: a Secret says where that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import yaml

Document: TypeAlias = dict[str, Any]

USER: Final = 10001
"""Of the image."""
PORT: Final = 8000
_HEAD_PORT: Final = 6379
_RAYLET_PORT: Final = 6380
"""Where a node of Ray listens; that it does shows that it lives."""
_HEAD: Final = f"gcws-head-svc:{_HEAD_PORT}"
"""KubeRay makes a Service of this name for the RayCluster "gcws"."""
_RAY_OPTIONS: Final = (f"--node-manager-port={_RAYLET_PORT}", "--object-store-memory=80000000")
"""Shards put nothing into the object store: it gets the least that Ray permits."""
_STOP_SECONDS: Final = 30
_DRAIN_SECONDS: Final = 5
"""Between the order to stop and the stop: clients learn meanwhile to ask others."""
_SECRETS: Final = "/run/secrets/gcws"
_TRIES: Final = 60
"""To join Ray while its head starts, five seconds apart."""
_HOST: Final = "kubernetes.io/hostname"
_NODE_LABELS: Final = {"app": "gcws-ray", "part": "node"}
"""Of the nodes of Ray that have replicas."""
_PROMETHEUS: Final = {"app.kubernetes.io/name": "prometheus"}
"""Labels of the pods that may read metrics, in whatever namespace."""

HEADER: Final = """\
# Made by `gcws-search cluster manifest --shards 2`, which takes other numbers and another image.
# Build the image with --build-arg EXTRA=cluster and name it below; no registry has it.
# PostgreSQL is where the URL says, and outside of this:
# kubectl create secret generic gcws-cluster --from-file=database_url --from-file=cluster_key
# kubectl create secret generic gcws-search-keys --from-file=api_key=./admin.key
"""
RAY_HEADER: Final = f"""{HEADER.replace("manifest", "manifest --kuberay", 1)}\
# kubectl create secret generic gcws-ray --from-file=ray_token
# KubeRay starts the nodes of Ray, and the Job "gcws-up" places the shards on them. To change their
# number, delete the Job and apply this again.
"""


@dataclass(frozen=True, slots=True)
class ManifestOptions:
    """What differs from cluster to cluster.

    Attributes
    ----------
    shards, replicas, routers, nodes
        How many there are: replicas of each shard, nodes of Ray besides its head.
    memory
        Of a router, of a replica, or of a node of Ray with all its replicas; as Kubernetes says it.
    storage
        For the files of a replica, or of a node, and for the snapshots of a router.
    cell
        Name of the cluster, of those that follow one database.
    """

    shards: int
    replicas: int
    routers: int
    nodes: int
    image: str
    memory: str
    storage: str
    cell: str


def plain(options: ManifestOptions) -> str:
    """Return YAML of a StatefulSet for each shard, and one of routers."""
    shards = [
        document
        for shard in range(options.shards)
        for document in (
            _shard(shard, options),
            _budget(f"gcws-shard-{shard}", _labels_of(shard)),
        )
    ]
    policy = _policy("gcws-shard", ["gcws-router"], [{"port": PORT}])
    return HEADER + _text([_headless("gcws-shard"), *shards, *_routers(options), policy])


def kuberay(options: ManifestOptions) -> str:
    """Return YAML of nodes of Ray, of the Job that places shards on them, and of routers."""
    policy = _policy("gcws-ray", ["gcws-ray", "gcws-router"], [])
    nodes = [_head_files(), _ray_cluster(options), _budget("gcws-ray-node", _NODE_LABELS)]
    return RAY_HEADER + _text([*nodes, _up(options), *_routers(options), policy])


class _Dumper(yaml.SafeDumper):
    """Writes in full what occurs twice."""

    def ignore_aliases(self, data: object) -> bool:
        """Return whether a value is written in full."""
        del data
        return True


def _text(documents: Sequence[Document]) -> str:
    return str(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=100))


# Shards


def _headless(app: str, name: str | None = None) -> Document:
    """Return the Service that a StatefulSet must name: each of its pods has an address by it."""
    ports = [{"name": "http", "port": PORT, "targetPort": "http"}]
    spec = {"clusterIP": "None", "selector": {"app": app}, "ports": ports}
    return _document("v1", "Service", name or app, spec)


def _shard(shard: int, options: ManifestOptions) -> Document:
    labels = _labels_of(shard)
    container = _container(
        "shard",
        ["shard", "--shard", str(shard), "--replica", "$(REPLICA)"],
        [
            _field("GCWS_PUBLISHED_HOST", "status.podIP"),
            _field("REPLICA", "metadata.labels['apps.kubernetes.io/pod-index']"),
        ],
        options,
    )
    spec = {
        "serviceName": "gcws-shard",
        "replicas": options.replicas,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": _pod(labels, container | _asked(), [], spreads=True),
        "volumeClaimTemplates": [
            {"metadata": {"name": "data"}, "spec": _claim(options.storage)},
        ],
    }
    return _document("apps/v1", "StatefulSet", f"gcws-shard-{shard}", spec, labels)


def _budget(name: str, labels: dict[str, str]) -> Document:
    """Return what takes one pod of some at a time while machines are drained."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    return _document("policy/v1", "PodDisruptionBudget", name, spec, labels)


def _labels_of(shard: int) -> dict[str, str]:
    return {"app": "gcws-shard", "shard": str(shard)}


# Ray


def _head_files() -> Document:
    """Return what keeps the head's list of replicas while its pod is replaced."""
    return _document("v1", "PersistentVolumeClaim", "gcws-ray-head", _claim("1Gi"))


def _ray_cluster(options: ManifestOptions) -> Document:
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "gcws-ray-head"}}
    head = _node(["--head", "--head-port", str(_HEAD_PORT)], _HEAD_PORT, "1Gi", options)
    template = {"spec": _claim(options.storage)}
    files = {"name": "data", "ephemeral": {"volumeClaimTemplate": template}}
    node = _node(["--address", _HEAD], _RAYLET_PORT, options.memory, options)
    group = {
        "groupName": "nodes",
        "replicas": options.nodes,
        "minReplicas": options.nodes,
        "maxReplicas": options.nodes,
        "rayStartParams": {},
        "template": _pod(_NODE_LABELS, node, [files], spreads=True),
    }
    spec = {
        "headGroupSpec": {
            "rayStartParams": {},
            "template": _pod({"app": "gcws-ray"}, head, [data]),
        },
        "workerGroupSpecs": [group],
    }
    document = _document("ray.io/v1", "RayCluster", "gcws", spec)
    # The commands below are run, and not those that KubeRay would make.
    document["metadata"]["annotations"] = {"ray.io/overwrite-container-cmd": "true"}
    return document


def _node(args: Sequence[str], port: int, memory: str, options: ManifestOptions) -> Document:
    """Return the container of a node of Ray; it lives while it listens at a port."""
    words = ["cluster", "node", *args, "--", *_RAY_OPTIONS]
    name = "gcs-server" if port == _HEAD_PORT else "raylet"
    live = {"tcpSocket": {"port": name}, "periodSeconds": 5}
    container = _container("ray", words, _ray_settings(), options)
    container["command"] = ["gcws-search"]
    container["ports"] = [{"name": name, "containerPort": port}]
    container["resources"] = _resources(memory)
    return container | {
        "startupProbe": live | {"failureThreshold": 60},
        "livenessProbe": live | {"failureThreshold": 12},
        "readinessProbe": live,
    }


def _up(options: ManifestOptions) -> Document:
    """Return the Job that places the shards.

    Who calls Ray must be on a node: the Job is one for as long as it takes, and has no shard.
    """
    script = f"""\
gcws-search cluster node --address {_HEAD} -- --num-cpus=0 {" ".join(_RAY_OPTIONS)} &
tries=0
until gcws-search cluster up; do
  tries=$((tries + 1))
  [ "$tries" -lt {_TRIES} ] || exit 1
  sleep 5
done
"""
    replicas = {"name": "GCWS_REPLICAS", "value": str(options.replicas)}
    container = _container("up", [], [*_ray_settings(), replicas], options)
    container |= {"command": ["sh", "-ec", script], "resources": _resources("1Gi")}
    for name in ("args", "ports"):
        del container[name]
    pod = _pod({"app": "gcws-ray"}, container, [{"name": "data", "emptyDir": {}}])
    pod["spec"]["restartPolicy"] = "Never"
    return _document("batch/v1", "Job", "gcws-up", {"backoffLimit": 3, "template": pod})


def _ray_settings() -> list[Document]:
    """Return the variables of Ray's processes."""
    return [
        _file("RAY_AUTH_TOKEN_PATH", "ray_token"),
        {"name": "RAY_AUTH_MODE", "value": "token"},
    ]


# Routers


def _routers(options: ManifestOptions) -> list[Document]:
    """Return the Service that clients ask, and what answers; each router keeps its snapshots."""
    labels = {"app": "gcws-router"}
    ports = [{"name": "http", "port": PORT, "targetPort": "http"}]
    keys = [_file("GCWS_API_KEY_FILE", "api_key")]
    container = _container("router", ["serve"], keys, options) | _asked()
    spec = {
        "serviceName": "gcws-routers",
        "replicas": options.routers,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": _pod(labels, container, []),
        "volumeClaimTemplates": [
            {"metadata": {"name": "data"}, "spec": _claim(options.storage)},
        ],
    }
    return [
        _document("v1", "Service", "gcws-router", {"selector": labels, "ports": ports}),
        _headless("gcws-router", "gcws-routers"),
        _document("apps/v1", "StatefulSet", "gcws-router", spec),
        _budget("gcws-router", labels),
    ]


# What several have


def _container(
    name: str,
    args: Sequence[str],
    environment: Sequence[Mapping[str, Any]],
    options: ManifestOptions,
) -> Document:
    """Return a process of the image, with the settings of the cluster."""
    settings = [
        _file("GCWS_DATABASE_URL_FILE", "database_url"),
        _file("GCWS_CLUSTER_KEY_FILE", "cluster_key"),
        {"name": "GCWS_SHARDS", "value": str(options.shards)},
        {"name": "GCWS_CELL", "value": options.cell},
    ]
    return {
        "name": name,
        "image": options.image,
        "imagePullPolicy": "IfNotPresent",
        "args": [*args],
        "env": [*settings, *environment],
        "ports": [{"name": "http", "containerPort": PORT}],
        "resources": _resources(options.memory),
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "secrets", "mountPath": _SECRETS, "readOnly": True},
        ],
    }


def _resources(memory: str) -> Document:
    return {"requests": {"cpu": "1", "memory": memory}, "limits": {"memory": memory}}


def _asked() -> Document:
    """Return how a process is asked for its health, and what it does before it stops.

    Collections are read at the start: ready may come long after alive.
    """
    live = {"httpGet": {"path": "/livez", "port": "http"}}
    ready = {"httpGet": {"path": "/readyz", "port": "http"}}
    return {
        "startupProbe": live | {"periodSeconds": 2, "failureThreshold": 60},
        "livenessProbe": live | {"periodSeconds": 10, "timeoutSeconds": 3, "failureThreshold": 6},
        "readinessProbe": ready | {"periodSeconds": 5, "timeoutSeconds": 3},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(_DRAIN_SECONDS)]}}},
    }


def _pod(
    labels: dict[str, str],
    container: Document,
    volumes: Sequence[Document],
    *,
    spreads: bool = False,
) -> Document:
    """Return a pod of one container; one that ``spreads`` is not beside others like it."""
    used = {each.get("value", "") for each in container["env"]}
    secrets = {
        "gcws-cluster": "database_url",
        "gcws-search-keys": "api_key",
        "gcws-ray": "ray_token",
    }
    sources = [
        {"secret": {"name": name}} for name, file in secrets.items() if f"{_SECRETS}/{file}" in used
    ]
    spec: Document = {
        "terminationGracePeriodSeconds": _DRAIN_SECONDS + _STOP_SECONDS,
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": "2Gi"}},
            {"name": "secrets", "projected": {"sources": sources, "defaultMode": 0o440}},
            *volumes,
        ],
    }
    if spreads:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": _HOST,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": labels},
            }
        ]
    return {"metadata": {"labels": labels}, "spec": spec}


def _claim(storage: str) -> Document:
    """Return what is asked of a volume."""
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}


def _policy(name: str, sources: Sequence[str], ports: Sequence[Document]) -> Document:
    """Return who may talk to the pods of a name: the sources, and Prometheus; no ports mean all."""
    prometheus = {"namespaceSelector": {}, "podSelector": {"matchLabels": _PROMETHEUS}}
    inside = [{"podSelector": {"matchLabels": {"app": source}}} for source in sources]
    permitted: Document = {"from": [*inside, prometheus]}
    if ports:
        permitted["ports"] = [*ports]
    spec = {
        "podSelector": {"matchLabels": {"app": name}},
        "policyTypes": ["Ingress"],
        "ingress": [permitted],
    }
    return _document("networking.k8s.io/v1", "NetworkPolicy", name, spec)


def _file(variable: str, name: str) -> Document:
    return {"name": variable, "value": f"{_SECRETS}/{name}"}


def _field(variable: str, path: str) -> Document:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _document(
    version: str, kind: str, name: str, spec: Document, labels: dict[str, str] | None = None
) -> Document:
    metadata: Document = {"name": name, "labels": labels or {"app": name}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
