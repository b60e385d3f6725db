"""Runs several gateways as one cluster with their clients from a seed, in one thread and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random

from tests.simulation.checkers.bucket import counts_of, missing_objects
from tests.simulation.checkers.metadata_changes import changes_of, unfit_changes
from tests.simulation.checkers.sealed import confirmed_behind_seals, seals_of
from tests.simulation.checkers.shortened_metadata import first_objects, strange_takes, takes, wrong_snapshots
from tests.simulation.clients.mover import Mover
from tests.simulation.clients.population import Client
from tests.simulation.clients.surroundings import ClusterOfGateways, Surroundings
from tests.simulation.clients.workload import Workload, run
from tests.simulation.cluster.director import DRIFT, ClusterDirector
from tests.simulation.cluster.gateways import Gateways
from tests.simulation.cluster.plan import ClusterPlan, cluster_plan_of
from tests.simulation.history import History
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.running import PATIENCE_S, Outcome, count_events, run_in_virtual_time

DRIFT_OF_TIMEOUTS = 2 * DRIFT
"""The share by which a timeout may end early: a clock may run too fast, and a coordinator move to a faster
one.
"""


def run_cluster_seed(seed: int, plan: ClusterPlan | None = None) -> Outcome:
    """Run a seed of a cluster and judge its history."""
    plan = plan or cluster_plan_of(seed)
    return ClusterSimulation(seed, plan, Workload.from_seed(seed, plan.shared.profile)).run()


async def nothing(_: Gateways) -> None:
    """Prepare nothing: the gateways find each other."""


class ClusterSimulation:
    """The parts of one run. `prepare` is awaited when the first gateways run."""

    def __init__(
        self,
        seed: int,
        plan: ClusterPlan,
        workload: Workload,
        prepare: Callable[[Gateways], Awaitable[None]] = nothing,
    ) -> None:
        self.outcome = Outcome(seed, plan, History(), "--cluster")
        self._plan = plan
        self._workload = workload
        self._prepare = prepare
        self._loop = SimulatedLoop(Random(f"loop {seed}"))
        self._network = Network(self._loop, Random(f"network {seed}"))
        self._network.one_byte_portions = plan.shared.one_byte_portions
        self.gateways = Gateways(self._loop, self._network, plan, self.outcome.history, seed)
        self._director = ClusterDirector(
            self._loop, self._network, self.gateways, plan, Random(f"director {seed}")
        )

    def run(self) -> Outcome:
        outcome, gateways = self.outcome, self.gateways
        with takes() as taken:
            run_in_virtual_time(outcome, self._loop, self._live, gateways.bury, gateways.disk_has_failed)
        outcome.breaches += missing_objects(gateways.bucket)
        outcome.breaches += confirmed_behind_seals(gateways.confirmed(), seals_of(gateways.bucket))
        changes, unreadable = changes_of(gateways.bucket)
        outcome.breaches += unreadable + unfit_changes(changes)
        firsts = first_objects(gateways.bucket)
        outcome.breaches += strange_takes(taken, firsts) + wrong_snapshots(gateways.bucket, firsts)
        outcome.counts.update(self._director.faults)
        outcome.counts.update(gateways.faults)
        outcome.counts.update(counts_of(gateways.bucket))
        for node in gateways.nodes:
            outcome.counts.update(node.counts)
            outcome.counts["lives in the bucket"] += node.reach.lives
        count_events(outcome, self._network, self._loop)
        return outcome

    async def _live(self) -> None:
        await self.gateways.begin()
        await self._prepare(self.gateways)
        supervising = asyncio.create_task(self.gateways.supervise())
        clients = asyncio.create_task(self._run_clients())
        await asyncio.wait({clients, supervising}, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if supervising.done():
            await supervising
        if not clients.done():
            raise AssertionError(f"the clients did not finish within {PATIENCE_S:g} s")
        await clients
        supervising.cancel()
        await self.gateways.stop()

    async def _run_clients(self) -> None:
        duration_s, gateways = self._plan.shared.duration_s, self.gateways
        directing: list[asyncio.Task[None]] = []

        def created() -> None:
            directing.append(asyncio.create_task(self._director.run(self._loop.now_s + duration_s)))

        async def calm_down() -> None:
            await directing[0]
            await self._director.end()

        await run(
            self._workload,
            gateways.addresses[0],
            self.outcome.history,
            duration_s,
            gateways.wall_ms,
            calm_down,
            created,
            ClusterOfGateways(
                gateways.addresses,
                gateways.clocks_differ,
                DRIFT_OF_TIMEOUTS,
                gateways.node_id_at,
                self._plan.reads_elsewhere,
            ),
            self._movers,
        )

    def _movers(self, surroundings: Surroundings) -> Iterator[tuple[str, Client]]:
        """Return the client that moves partitions, if the plan has one."""
        pause_s = self._plan.shared.befalls.get("move")
        if pause_s is not None:
            chance = Random(f"mover {self.outcome.seed}")
            yield "mover", Mover(surroundings, "mover", chance, pause_s).run()
