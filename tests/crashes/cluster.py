"""Rounds of one cluster: clients write and search, something is killed, all is compared.

A commit waits for the database's standby. After each kill the database and all replicas must have
what was acknowledged.
"""

import os
import random
import shutil
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from gcws_search.service.cluster.contract import Replica
from tests.crashes.checking import expect
from tests.crashes.cluster_points import POINTS, Needs, Trap
from tests.service.cluster.partitions.clients import Load, Things
from tests.support.service.network import HERE
from tests.support.service.postgres_pair import PostgresPair, kill_server
from tests.support.service.programs import Program
from tests.support.service.ray_cluster import RayCluster, kill_all, process_of
from tests.support.service.shards import differing
from tests.support.waiting import wait_until

KINDS: Final = (
    "replica", "router", "database", "standby", "promotion", "zombie", "point", "head", "node",
    "all",
)  # fmt: skip
"""What is killed."""
LOST_DATABASES: Final = frozenset({"database", "promotion"})
"""Kills of these fail no search, but for one that is to find what no replica had read before."""
RESTARTED: Final = frozenset({"router", "router at a point", "zombie", "all"})
"""Kills of these end a router: whatever is asked of it may fail."""
_STORED: Final = ("put 503", "delete 503", "strict 503")
_FOUND: Final = ("session 503", "base 503")
_GONE: Final = tuple(
    f"{kind} {error}"
    for kind in ("put", "delete", "strict", "session", "base")
    for error in ("ConnectError", "ReadError", "RemoteProtocolError", "WriteError")
)


def may_fail(killed: str) -> set[tuple[int, str]]:
    """Return which answers of which router may come of a kill."""
    told = {
        **dict.fromkeys(RESTARTED, _STORED + _FOUND + _GONE),
        **dict.fromkeys(LOST_DATABASES, _STORED + _FOUND),
        "standby": _STORED,
    }
    return {(router, each) for router in (0, 1) for each in told.get(killed, ())}


_DATABASE: Final = "crashes"
_NODES: Final = 3
_REFUSED: Final = 4
"""A standby of so many is gone until writes are refused."""


class ClusterTrial:
    """A cluster that things are killed of.

    ``kills``: by kind. ``killed``: the last. ``answers``: of requests, by what was killed.
    ``seconds``: how long it took until something worked again, by what. ``servers``: the databases.
    """

    def __init__(self, seed: int) -> None:
        self.kills: Counter[str] = Counter()
        self.killed = "nothing"
        self.answers: Counter[tuple[str, str]] = Counter()
        self.seconds: dict[str, list[float]] = {}
        self._random = random.Random(seed)
        self.servers = PostgresPair(autovacuum="on")
        self.routers: list[Program] = []
        self.client = HERE
        self._closing: list[Callable[[], None]] = [self.servers.remove]
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        self.servers.start(_DATABASE)
        self.servers.add_standby()
        cluster = self.cluster = RayCluster(self.servers.url(_DATABASE))
        self._closing.append(cluster.stop)
        self._trap = Trap(cluster.folder / "points")
        cluster.variables |= self._trap.variables
        cluster.start_head()
        cluster.start_nodes(_NODES)
        cluster.up()
        for number in range(2):
            name = f"router-{number}"
            self.routers.append(Program(name, ["serve"], cluster.folder, cluster.variables))
            self._closing.append(self.routers[-1].kill)
        for router in self.routers:
            router.wait_until_ready()
        self.database, self.wait_until_whole = cluster.database, cluster.wait_until_whole
        self.things = Things(self)

    def stop(self) -> None:
        while self._closing:
            self._closing.pop()()

    @property
    def told(self) -> str:
        """What was killed, what clients were answered, and how long it took."""
        kinds = ", ".join(f"{kind} {number}" for kind, number in self.kills.items())
        times = [
            f"{what} {statistics.median(found):.1f} s (at most {max(found):.1f})"
            for what, found in self.seconds.items()
        ]
        answers = [f"{of}: {count} {what}" for (of, what), count in sorted(self.answers.items())]
        return (
            f"{self.kills.total()} kills: {kinds}. Answers by what was killed: {', '.join(answers)}"
            f". Until it works again, the median and the worst: {', '.join(times) or 'nothing'}"
        )

    def said(self) -> str:
        """Return the end of what all have said."""
        return self.cluster.logs()

    def kill(self, kind: str) -> None:
        """Kill something while clients ask, have it come back, and compare all."""
        with self.running(kind) as load:
            time.sleep(self._random.uniform(0.2, 1.5))
            lost = getattr(self, f"_kill_{kind}")() or []
            self.cluster.wait_until_whole(but=lost)
            # Writes of one collection have one order: none of before is under way after that.
            load.wait_for_write(time.monotonic())
        self.kills[kind] += 1

    @contextmanager
    def running(self, killed: str) -> Iterator[Load]:
        """Have clients ask until the block ends and a while after it, and compare all.

        No request fails but those that something killed explains.
        """
        self.cluster.wait_until_whole()
        self.killed, refused = killed, set[tuple[int, str]]()
        load = self.load = Load(self.things, self._random.randrange(1 << 30))
        load.cut_off = {0, 1}
        try:
            with load.running(refused):
                yield load
                load.go_on(times=10)
                refused |= may_fail(self.killed)
        except BaseException as error:
            error.add_note(self.cluster.logs())
            raise
        history = load.history
        if self.killed in LOST_DATABASES:
            searches = [each for each in history.refusals if each.split()[1] in ("session", "base")]
            expect(all("shard_unavailable" in each for each in searches), *searches)
        for (_, what), count in history.answers.items():
            self.answers[self.killed, what] += count

    def _pause(self) -> None:
        time.sleep(self._random.uniform(0.0, 2.0))

    def _note(self, what: str, seconds: float) -> None:
        self.seconds.setdefault(what, []).append(seconds)

    # Replicas and routers

    def _kill_replica(self) -> None:
        victim = self._random.choice(self.cluster.wait_until_whole())
        began = time.monotonic()
        os.kill(process_of(victim), signal.SIGKILL)
        self.cluster.wait_until_whole(but=[victim.address])
        self._note("a replica is listed after its kill", time.monotonic() - began)

    def _kill_router(self) -> None:
        self._restart(self._random.choice(self.routers))

    def _restart(self, *routers: Program) -> None:
        for router in routers:
            router.kill()
            router.start()
        for router in routers:
            router.wait_until_ready()

    def _kill_point(self) -> list[str]:
        name = [*POINTS][self.kills["point"] % len(POINTS)]
        point = POINTS[name]
        self.killed = f"{point.part} at a point"
        there = self.cluster.wait_until_whole()
        listed = {process_of(each): each for each in there}
        self._trap.arm(name, self._random.randint(1, point.max_times))
        try:
            lost = self._lead_to_point(point.needs, there)
            victim = wait_until(self._trap.victim, lambda: f"not reached: {name}")
        finally:
            self._trap.disarm()
        if victim in listed:
            lost.append(listed[victim].address)
        self._restart(*(each for each in self.routers if victim == each.process.pid))
        return lost

    def _lead_to_point(self, needs: Needs, there: Sequence[Replica]) -> list[str]:
        """Do what gets a process to its point; return the addresses that are lost by it."""
        chosen = self._random.choice(there)
        process = process_of(chosen)
        if needs == "pause":
            os.kill(process, signal.SIGSTOP)
            try:
                self.load.go_on("put", "delete")
            finally:
                os.kill(process, signal.SIGCONT)
        if needs == "fill":
            folder = self._folder_of(chosen, process)
            os.kill(process, signal.SIGKILL)
            shutil.rmtree(folder)
            return [chosen.address]
        if needs == "database":
            servers = self.servers
            kill_server(servers.standby, signal.SIGQUIT)
            self.load.go_on("base")  # meanwhile commits wait for the standby
            self._kill_and_start_database()
            servers.standby.start()
        return []

    def _folder_of(self, replica: Replica, process: int) -> str:
        node = self.cluster.nodes.index(self.cluster.node_of(process))
        name = f"{replica.shard}-of-{replica.shards}-replica-{replica.replica}"
        return str(self.cluster.folder / f"node-{node}" / "cluster" / "main" / name)

    # Databases

    def _how(self) -> signal.Signals:
        return self._random.choice((signal.SIGQUIT, signal.SIGKILL))

    def _kill_and_start_database(self) -> None:
        kill_server(self.servers.primary, self._how())
        self._pause()
        self.servers.primary.start()

    def _kill_database(self) -> None:
        kill_server(self.servers.primary, self._how())
        self._pause()
        began = time.monotonic()
        self.servers.primary.start()
        self._note_writes("the primary's restart", began, gone=began)

    def _note_writes(self, what: str, began: float, *, gone: float) -> None:
        """Note how long it took until a write was acknowledged that was asked for after a loss."""
        acknowledged = self.load.wait_for_write(gone)
        self._note(f"a write is acknowledged after {what}", acknowledged - began)

    def _kill_standby(self) -> None:
        servers = self.servers
        kill_server(servers.standby, self._how())
        gone = time.monotonic()
        self.load.go_on("base")
        self._expect_no_write_since(gone)
        if self.kills["standby"] % _REFUSED == 0:
            self.load.fail("put", 0)
        self._expect_no_write_since(gone)
        began = time.monotonic()
        servers.standby.start()
        self._note_writes("the standby's return", began, gone=gone)

    def _expect_no_write_since(self, gone: float) -> None:
        alone = self.load.acknowledged_since(gone)
        expect(not alone, "acknowledged on one machine alone", alone)

    def _kill_promotion(self) -> None:
        servers = self.servers
        began = time.monotonic()
        kill_server(servers.primary, self._how())
        gone = time.monotonic()
        servers.promote_standby()
        self._note_writes("the primary's loss and a promotion", began, gone=gone)
        servers.add_standby()

    def _kill_zombie(self) -> list[str]:
        """Lose the primary, promote its standby, start the first again, and restart all others."""
        servers = self.servers
        kill_server(servers.primary, self._how())
        gone = time.monotonic()
        servers.promote_standby()
        self.load.wait_for_write(gone)
        former = servers.standby
        former.start()
        if self._random.random() < 2 / 3:  # else its commits wait for the promoted one
            former.wait_for_standby("")
        is_alone = self._random.random() < 1 / 3
        if is_alone:
            kill_server(servers.primary, self._how())
        there = self._restart_all()
        self._pause()
        if is_alone:
            servers.primary.start()
        for router in self.routers:
            router.wait_until_ready()
        began = time.monotonic()
        self._note_writes("a former primary came back", began, gone=began)
        self.load.go_on("strict")
        kill_server(former, self._how())
        servers.add_standby()
        return there

    def _restart_all(self) -> list[str]:
        """Kill replicas and routers in some order; return the addresses that are lost."""
        there = self.cluster.listed()
        victims: list[Replica | Program] = [*there, *self.routers]
        self._random.shuffle(victims)
        for victim in victims:
            if isinstance(victim, Program):
                victim.kill()
                victim.start()
            else:
                os.kill(process_of(victim), signal.SIGKILL)
            time.sleep(self._random.uniform(0.0, 0.3))
        return [each.address for each in there]

    # Ray

    def _kill_head(self) -> None:
        cluster = self.cluster
        if cluster.head is not None:
            kill_all(cluster.head)
        self._pause()
        cluster.start_head()

    def _kill_node(self) -> list[str]:
        cluster, there = self.cluster, self.cluster.wait_until_whole()
        victim = cluster.node_of(process_of(self._random.choice(there)))
        lost = [each.address for each in there if cluster.node_of(process_of(each)) is victim]
        began = time.monotonic()
        kill_all(victim)
        cluster.wait_until_whole(but=lost)
        self._note("the replicas of a lost node are listed", time.monotonic() - began)
        cluster.start_nodes(1)
        return lost

    def _kill_all(self) -> list[str]:
        """Kill all but the disks: replicas, routers, head, both databases and nodes."""
        cluster, there = self.cluster, self.cluster.wait_until_whole()
        running = [number for number, each in enumerate(cluster.nodes) if each.poll() is None]
        servers = self._random.sample((self.servers.primary, self.servers.standby), 2)
        kill_server(servers[0], self._how())
        for router in self.routers:
            router.kill()
        for node in [*(cluster.nodes[each] for each in running), cluster.head]:
            if node is not None:
                kill_all(node)
        kill_server(servers[1], self._how())
        self.servers.primary.start()
        self.servers.standby.start()
        cluster.start_head()
        for number in running:
            cluster.restart_node(number)
        self._restart(*self.routers)
        return [each.address for each in there]

    # Comparing

    @contextmanager
    def changed(self, statement: str) -> Iterator[None]:
        """Change the items of the database behind everybody's back, until the block ends."""
        table = f"items_{self.things.number}"
        with self.cluster.database.connections.use() as connection:
            connection.execute(f"CREATE TABLE before AS TABLE {table}".encode())
            connection.execute(statement.format(self.things.number).encode())
            try:
                yield
            finally:
                for undo in (f"DELETE FROM {table}", f"INSERT INTO {table} TABLE before"):
                    connection.execute(undo.encode())
                connection.execute(b"DROP TABLE before")

    def check_replicas(self, number: int) -> None:
        """Compare all replicas with what the database has of a collection."""
        key, there = self.cluster.variables["GCWS_CLUSTER_KEY"], self.cluster.wait_until_whole()
        others = differing(self.database, there, number, key)
        expect(not others, "a replica differs", others)
