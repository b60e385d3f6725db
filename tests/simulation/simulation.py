"""Runs a whole gateway with its clients from a seed, in one thread and in virtual time."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import traceback
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from unittest import mock

from gateway.runtime.loop import slices
from tests.simulation.chance import seeded
from tests.simulation.checkers import breaches
from tests.simulation.checkers.bucket import counts_of, missing_objects, surplus
from tests.simulation.clients.workload import Workload, run
from tests.simulation.director import Director
from tests.simulation.events_of_names import LineAcknowledged, NameFenced, NameTold
from tests.simulation.history import Acknowledged, Fetched, History, TransactionEnded
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.node import Node
from tests.simulation.plan import HOST, PORT, Plan, plan_of
from tests.simulation.turns import TurnsOfProcesses

REST_S, RESTS = 10.0, 30
"""How long the gateway gets to bring the bucket up to date, and how often that is looked at. Late calls take effect within two minutes."""
PATIENCE_S = 3_600.0
"""Virtual time within which a run must end."""


@dataclass
class Outcome:
    """The result of a run. `fingerprint` covers every event: the same seed must give the same fingerprint."""

    seed: int
    plan: Plan
    history: History
    breaches: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    fingerprint: str = ""

    def told(self) -> str:
        """Return a report for people: the seed, the command to replay it, and the breaches."""
        bucket = "" if self.plan.store is None else " --bucket"
        lines = [
            f"seed {self.seed}: {len(self.breaches)} breaches; python -m tests.simulation{bucket} --seed {self.seed}",
            f"  {self.plan}",
        ]
        return "\n".join([*lines, *(f"  {breach}" for breach in self.breaches[:20])])


class _Complaints(logging.Handler):
    """Collects errors that production code only logs. One with a traceback is a bug, unless the disk fails."""

    def __init__(self, node: Node) -> None:
        super().__init__(logging.WARNING)
        self.breaches: list[str] = []
        self._node = node

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            if isinstance(record.exc_info[1], OSError) and self._node.disk_has_failed:
                return
            formatted = logging.Formatter().format(record)
            self.breaches.append(f"logged: {formatted}")


def run_seed(seed: int, plan: Plan | None = None) -> Outcome:
    """Run a seed and judge its history."""
    return Simulation(seed, plan or plan_of(seed)).run()


class Simulation:
    """The parts of one run."""

    def __init__(self, seed: int, plan: Plan) -> None:
        self.outcome = Outcome(seed, plan, History())
        self._plan = plan
        self._chance = Random(f"run {seed}")
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
        complaints = _Complaints(self._node)
        root = logging.getLogger()
        before = (root.handlers, root.level)
        root.handlers = [complaints]
        root.setLevel(logging.WARNING)
        try:
            with seeded(self._chance), mock.patch.object(slices, "_turns", TurnsOfProcesses()):
                self._run_to_the_end()
        finally:
            root.handlers = before[0]
            root.setLevel(before[1])
        self.outcome.breaches += complaints.breaches + self._loop.unhandled
        self._count()
        return self.outcome

    def _run_to_the_end(self) -> None:
        outcome = self.outcome
        gc.disable()  # a garbage collection would take longer or shorter, depending on earlier runs in this process
        try:
            self._loop.run_until_complete(self._live())
        except Exception:
            outcome.breaches.append(f"the run came to no end: {traceback.format_exc()}")
        finally:
            self._node.bury()
            gc.enable()
        outcome.breaches += breaches(outcome.history)
        outcome.breaches += missing_objects(self._node.bucket)

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
        self._node.calm_store()
        self._node.clock.jumped_ms = 0  # the age of an object is told by two clocks
        left: list[str] = []
        for _ in range(RESTS):
            await asyncio.sleep(REST_S)
            left = surplus(self._node.bucket, self._node.log_sizes())
            if not left:
                break
        self.outcome.breaches += left

    def _count(self) -> None:
        outcome = self.outcome
        counts = outcome.counts
        counts.update(self._director.faults)
        counts.update(self._network.faults)
        counts.update({f"disk: {kind}": number for kind, number in self._node.disk.faults.items()})
        counts.update(self._node.counts)
        counts.update(counts_of(self._node.bucket))
        events = outcome.history.events
        counts["records checked"] = sum(isinstance(event, Acknowledged) for event in events)
        counts["lines acknowledged"] = sum(isinstance(event, LineAcknowledged) for event in events)
        counts["lives fenced by name"] = sum(isinstance(event, NameFenced) for event in events)
        counts["names told"] = sum(isinstance(event, NameTold) for event in events)
        counts["transactions ended"] = sum(isinstance(event, TransactionEnded) for event in events)
        counts["records read"] = sum(len(event.records) for event in events if isinstance(event, Fetched))
        counts["events"] = len(events)
        for what in ("lost", "doubled"):
            counts[what] = sum(breach.startswith(f"{what}: ") for breach in outcome.breaches)
        counts["virtual seconds"] = round(self._loop.time())
        digest = hashlib.sha256(repr(events).encode())
        digest.update(str((self._network.bytes_delivered, self._loop.time())).encode())
        outcome.fingerprint = digest.hexdigest()[:16]
