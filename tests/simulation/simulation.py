"""Runs a whole gateway with its clients from a seed, in one thread and in virtual time."""

from __future__ import annotations

import asyncio
from random import Random

from tests.simulation.checkers.bucket import counts_of, missing_objects, surplus
from tests.simulation.clients.workload import Workload, run
from tests.simulation.director import Director
from tests.simulation.history import History
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.node import Node
from tests.simulation.plan import HOST, PORT, Plan, plan_of
from tests.simulation.running import PATIENCE_S, Outcome, count_events, run_in_virtual_time

REST_S, RESTS = 10.0, 30
"""How long the gateway gets to bring the bucket up to date, and how often that is looked at. Late calls take
effect within two minutes.
"""


def run_seed(seed: int, plan: Plan | None = None) -> Outcome:
    """Run a seed and judge its history."""
    return Simulation(seed, plan or plan_of(seed)).run()


class Simulation:
    """The parts of one run."""

    def __init__(self, seed: int, plan: Plan) -> None:
        self.outcome = Outcome(seed, plan, History(), "" if plan.store is None else "--bucket")
        self._plan = plan
        self._loop = SimulatedLoop(self._part_of_chance("loop"))
        self._network = Network(self._loop, self._part_of_chance("network"))
        self._network.one_byte_portions = plan.one_byte_portions
        self._node = Node(
            self._loop, self._network, plan, self.outcome.history, self._part_of_chance("machine")
        )
        self._director = Director(
            self._loop, self._network, self._node, plan, self._part_of_chance("director")
        )

    def _part_of_chance(self, name: str) -> Random:
        return Random(f"{name} {self.outcome.seed}")

    def run(self) -> Outcome:
        outcome, node = self.outcome, self._node
        run_in_virtual_time(outcome, self._loop, self._live, node.bury, lambda: node.disk_has_failed)
        outcome.breaches += missing_objects(node.bucket)
        self._count()
        return outcome

    async def _live(self) -> None:
        seed, duration_s = self.outcome.seed, self._plan.duration_s
        assert await self._node.start()
        created = asyncio.Event()
        if not self._plan.faults_need_topics:
            created.set()

        async def direct() -> None:
            await created.wait()
            await self._director.run(self._loop.time() + duration_s)

        director = asyncio.create_task(direct())

        async def calm_down() -> None:
            await director
            await self._director.end()

        clients = asyncio.create_task(
            run(
                Workload.from_seed(seed, self._plan.profile),
                (HOST, PORT),
                self.outcome.history,
                duration_s,
                self._node.clock.now_ms,
                calm_down,
                created.set if self._plan.faults_need_topics else None,
            )
        )
        await asyncio.wait({clients}, timeout=PATIENCE_S)
        if not clients.done():
            raise AssertionError(f"the clients did not finish within {PATIENCE_S:g} s")
        await clients
        if self._plan.rests:
            await self._rest()
        await self._node.stop()

    async def _rest(self) -> None:
        """Wait until the bucket holds little more than the logs, or for so long that it never will."""
        self._node.reach.calm()
        self._node.clock.jumped_ms = 0  # the age of an object is told by two clocks
        left: list[str] = []
        for _ in range(RESTS):
            await asyncio.sleep(REST_S)
            left = surplus(self._node.bucket, self._node.log_sizes())
            if not left:
                break
        self.outcome.breaches += left

    def _count(self) -> None:
        counts = self.outcome.counts
        counts.update(self._director.faults)
        counts.update({f"disk: {kind}": number for kind, number in self._node.disk.faults.items()})
        counts.update(self._node.counts)
        counts["lives in the bucket"] = self._node.reach.lives
        counts.update(counts_of(self._node.bucket))
        count_events(self.outcome, self._network, self._loop)
