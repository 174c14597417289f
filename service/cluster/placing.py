"""Replicas as Ray actors, which Ray restarts on their node or another one; calls of tasks.

Only this module uses Ray. Actors are detached and named. A shard has a placement group with one
bundle per replica, each on a separate node; a replica that was moved is outside of it.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import ray
from ray.exceptions import RayError
from ray.util.placement_group import (
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from gcws_search.index import GcwsError
from gcws_search.service.cluster.rollout import ReplicaPlace, ReplicaState
from gcws_search.service.cluster.server import ShardServer
from gcws_search.service.errors import ServiceError
from gcws_search.service.server import configure_logs, tune_process
from gcws_search.service.settings import Settings

# Resources of a replica: not zero, so that nodes without any are left out.
CPUS: Final = 0.01
_RETRY_SECONDS: Final = 1.0
_STATE_SECONDS: Final = 2.0
_LEAVE_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 15.0  # limit for a replica to close its files
_NODE_ID: Final = "ray.io/node-id"
_CALLS: Final = 4  # parallel calls of an actor: one may wait while another asks for the state

_log = logging.getLogger(__name__)


class ReplicaActor:
    """The process of a replica; its settings are those of its node except the place."""

    def __init__(self, place: tuple[str, int, int, int]) -> None:  # a `ReplicaPlace`
        self._place = ReplicaPlace(*place)
        node, settings = ray.util.get_node_ip_address(), Settings()
        configure_logs(settings.log_level, settings.log_format)
        tune_process()
        cell, shards, shard, replica = self._place
        folder = settings.data_dir / "cluster" / cell / f"{shard}-of-{shards}-replica-{replica}"
        self._settings = settings.model_copy(
            update={"host": node, "port": 0, "data_dir": folder, "shards": shards, "cell": cell}
        )
        self._server: ShardServer | None = None
        self._failure = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replica", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Serve; exit if the server fails, so that Ray starts another process."""
        try:
            while not self._stopping.is_set():
                try:
                    shard, replica = self._place.shard, self._place.replica
                    server = self._server = ShardServer(
                        self._settings, shard, replica, shares_memory=True
                    )
                except (GcwsError, ServiceError, OSError, ValueError) as error:
                    if str(error) != self._failure:
                        _log.warning("%s does not start: %s", self._place.name, error)
                    self._failure = str(error)
                    self._stopping.wait(_RETRY_SECONDS)
                else:
                    self._failure = ""
                    server.run()
                    break
        except BaseException:
            _log.exception("%s has failed", self._place.name)
        if not self._stopping.is_set():
            os._exit(1)

    def state(self) -> ReplicaState:
        """Return the state of the replica."""
        server = self._server
        return ReplicaState(
            ray.get_runtime_context().get_node_id(),
            "" if server is None else server.address,
            server is not None and server.host.is_ready and server.host.is_listed,
            self._failure,
        )

    def leave(self, seconds: float, discards: bool) -> None:
        """Make routers ask other replicas, then stop; remove the files if they are not needed."""
        self._stopping.set()
        if self._server is not None:
            self._server.leave(seconds)
        self._thread.join(_CLOSE_SECONDS)
        if discards:
            shutil.rmtree(self._settings.data_dir, ignore_errors=True)


_Actor: Final = ray.remote(ReplicaActor)


class RayPlacement:
    """Runs replicas as actors in placement groups; Ray restarts them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def nodes(self) -> list[str]:
        """Return the ids of the nodes that may have replicas."""
        return [
            each["NodeID"]
            for each in ray.nodes()
            if each["Alive"] and each["Resources"].get("CPU", 0.0) >= CPUS
        ]

    def places(self, cell: str) -> list[ReplicaPlace]:
        """Return the replicas that run, or that Ray will start."""
        found = (ReplicaPlace.parse(name) for name in ray.util.list_named_actors())
        return sorted(place for place in found if place is not None and place.cell == cell)

    def states(self, places: Iterable[ReplicaPlace]) -> Mapping[ReplicaPlace, ReplicaState]:
        """Return the states of the replicas that answer."""
        asked = {}
        for place in places:
            with suppress(ValueError, RayError):
                asked[ray.get_actor(place.name).state.remote()] = place
        found: dict[ReplicaPlace, ReplicaState] = {}
        for each in _wait_for_calls([*asked], _STATE_SECONDS):
            with suppress(RayError):
                found[asked[each]] = ray.get(each)
        return found

    def start(
        self, place: ReplicaPlace, *, without: Collection[str], avoided: Collection[str] = ()
    ) -> None:
        """Start a replica, in its shard's group if nodes permit it.

        It never runs on the nodes ``without``, and on ``avoided`` ones only without an alternative.
        """
        nbytes = self._settings.replica_bytes
        memory = {} if nbytes is None else {"memory": float(nbytes)}
        try:
            group = get_placement_group(place.group)
        except ValueError:  # no such group
            bundles = [{"CPU": CPUS, **memory} for _ in range(self._settings.replicas)]
            group = placement_group(
                bundles, strategy="STRICT_SPREAD", name=place.group, lifetime="detached"
            )
        table = placement_group_table(group)
        nodes = table["bundles_to_node_id"]
        options: dict[str, Any] = {}
        taken = {*without, *avoided}
        if place.replica in table["bundles"] and nodes.get(place.replica) not in taken:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=place.replica
            )
        else:
            options["label_selector"] = _labels_but(taken)
            options["fallback_strategy"] = [{"label_selector": _labels_but(without)}]
        _Actor.options(
            name=place.name,
            lifetime="detached",
            max_restarts=-1,
            max_concurrency=_CALLS,
            num_cpus=CPUS,
            **memory,
            **options,
        ).remote(tuple(place))

    def end(self, places: Collection[ReplicaPlace], *, discards: bool, waits: bool = True) -> None:
        """Stop replicas for good: unlist them, let them answer while they are asked, end them."""
        seconds = _LEAVE_SECONDS if waits else 0.0
        actors = {}
        for place in places:
            with suppress(ValueError):  # already gone
                actors[place] = ray.get_actor(place.name)
        asked = [each.leave.remote(seconds, discards) for each in actors.values()]
        _wait_for_calls(asked, seconds + _CLOSE_SECONDS)
        for actor in actors.values():
            ray.kill(actor, no_restart=True)

    def remove_groups(self, cell: str, *, but: int | None) -> None:
        """Remove the empty groups of all numbers of shards except one."""
        for each in placement_group_table().values():
            place = ReplicaPlace.parse(f"{each['name']}/0")
            if place is not None and place.cell == cell and place.shards != but:
                with suppress(ValueError):  # already removed
                    remove_placement_group(get_placement_group(each["name"]))


def _wait_for_calls(asked: list[Any], seconds: float) -> list[Any]:
    """Return the calls that end within a time."""
    return ray.wait(asked, num_returns=len(asked), timeout=seconds)[0] if asked else []


def _labels_but(nodes: Collection[str]) -> dict[str, str]:
    return {_NODE_ID: f"!in({','.join(sorted(nodes))})"} if nodes else {}
