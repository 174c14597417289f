"""The manifests of a cluster with other numbers: `kubernetes.yml`, or `kuberay.yml` for KubeRay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

Document: TypeAlias = dict[str, Any]

_FOLDER: Final = Path(__file__).parent
# Wherever the files have these words, the memory and the storage of the options are meant.
_MEMORY: Final = "4Gi"
_STORAGE: Final = "20Gi"
_FIRST_SHARD: Final = "gcws-shard-0"


@dataclass(frozen=True, slots=True)
class ManifestOptions:
    """What differs from cluster to cluster."""

    shards: int  # how many there are: replicas of each shard, nodes of Ray besides its head
    replicas: int
    routers: int
    nodes: int
    image: str
    # of a router, of a replica, or of a node of Ray with all its replicas; as Kubernetes says it
    memory: str
    storage: str  # for the files of a replica, or of a node, and for the snapshots of a router
    cell: str  # name of the cluster, of those that follow one database


def plain(options: ManifestOptions) -> str:
    """Return YAML of a StatefulSet for each shard, and one of routers."""
    return _adapt(_FOLDER / "kubernetes.yml", options)


def kuberay(options: ManifestOptions) -> str:
    """Return YAML of nodes of Ray, of the Job that places shards on them, and of routers."""
    return _adapt(_FOLDER / "kuberay.yml", options)


class _Dumper(yaml.SafeDumper):
    """Writes in full what occurs twice."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _adapt(file: Path, options: ManifestOptions) -> str:
    text = file.read_text()
    header = text[: text.index("apiVersion:")]
    documents = [*_for_each_shard([*yaml.safe_load_all(text)], options.shards)]
    values = {
        "GCWS_SHARDS": str(options.shards),
        "GCWS_REPLICAS": str(options.replicas),
        "GCWS_CELL": options.cell,
    }
    for document in documents:
        spec = document["spec"]
        if document["kind"] == "StatefulSet":
            is_router = document["metadata"]["name"] == "gcws-router"
            spec["replicas"] = options.routers if is_router else options.replicas
        workers = spec.get("workerGroupSpecs", [])
        for group in workers:
            group.update(dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), options.nodes))
        for group in (spec, *workers, spec.get("headGroupSpec", {})):
            if "template" in group:
                container = group["template"]["spec"]["containers"][0]
                container["image"] = options.image
                for variable in container["env"]:
                    if variable["name"] in values:
                        variable["value"] = values[variable["name"]]
    words = {_MEMORY: options.memory, _STORAGE: options.storage}
    adapted = [_with_words(each, words) for each in documents]
    return header + str(yaml.dump_all(adapted, Dumper=_Dumper, sort_keys=False, width=100))


def _for_each_shard(documents: list[Document], shards: int) -> Iterator[Document]:
    """Yield the documents, those of the first shard once for each shard."""
    first = [each for each in documents if each["metadata"]["name"] == _FIRST_SHARD]
    for document in documents:
        if "shard" not in document["metadata"]["labels"]:
            yield document
        elif document is first[0]:
            for number in map(str, range(shards)):
                words = {_FIRST_SHARD: _FIRST_SHARD.replace("0", number), "0": number}
                yield from (_with_words(each, words) for each in first)


def _with_words(value: Any, words: dict[str, str]) -> Any:  # noqa: ANN401  # of YAML
    """Return a value with some of its strings replaced, keys excepted."""
    if isinstance(value, dict):
        return {key: _with_words(each, words) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_words(each, words) for each in value]
    return words.get(value, value) if isinstance(value, str) else value
