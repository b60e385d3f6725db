"""The gateways of a run: those that serve from the start, and those that may join."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Final

from tests.simulation.checkers.sealed import Confirmed, SessionName
from tests.simulation.cluster.plan import PORT, ClusterPlan, host_of
from tests.simulation.history import History
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import EPOCH_MS
from tests.simulation.member import Member
from tests.simulation.network import Network
from tests.simulation.node import Node
from tests.simulation.process import DriftingClock
from tests.support.simulated_objects import CALM, SimulatedBucket

TOLERANCE_MS: Final = 50
LOOK_S: Final = 0.25
"""How often the supervisor of a gateway looks whether it runs."""
DOWN_S: Final = (0.1, 0.5, 5.0)
"""The mean times until a gateway that ended is started again."""
KILLED_WHILE_STARTING: Final = 0.15


class Gateways:
    """The gateways, each with a machine of its own. Only those in `wanted` are started again when they end."""

    def __init__(
        self, loop: SimulatedLoop, network: Network, plan: ClusterPlan, history: History, seed: int
    ) -> None:
        self.bucket = SimulatedBucket()
        self.faults: Counter[str] = Counter()
        self._loop = loop
        self._plan = plan
        self._chance = Random(f"gateways {seed}")
        self.nodes = [
            Node(
                loop,
                network,
                plan.shared,
                history,
                Random(f"machine {number} {seed}"),
                Member(
                    host_of(number),
                    plan.settings_of(number),
                    self.bucket,
                    DriftingClock(),
                    plan.store_timeout_s,
                ),
            )
            for number in range(plan.gateways + plan.spare)
        ]
        self.wanted = self.nodes[: plan.gateways]
        self.locks = {node: asyncio.Lock() for node in self.nodes}
        """Held by whoever starts, stops or ends the gateway."""
        self.is_calm = False

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        return tuple((node.name, PORT) for node in self.nodes)

    @property
    def free(self) -> list[Node]:
        """The gateways that run, and that nobody starts or ends."""
        return [node for node in self.nodes if node.gateway is not None and not self.locks[node].locked()]

    def clocks_differ(self) -> bool:
        """Return whether two gateways show different times of day."""
        jumps = [node.clock.jumped_ms for node in self.nodes]
        return max(jumps) - min(jumps) > TOLERANCE_MS

    def wall_ms(self) -> int:
        """Return a time of day that jumps whenever the clock of a gateway does."""
        return EPOCH_MS + int(self._loop.now_s * 1000) + sum(node.clock.jumped_ms for node in self.nodes)

    def node_id_at(self, address: tuple[str, int]) -> int | None:
        """Return the node id of the gateway that serves at an address."""
        gateway = self.nodes[self.addresses.index(address)].gateway
        wal = None if gateway is None else getattr(gateway.backend, "wal", None)
        return None if wal is None else wal.session.node_id

    def disk_has_failed(self) -> bool:
        return any(node.disk_has_failed for node in self.nodes)

    def confirmed(self) -> Iterator[Confirmed]:
        """Yield how far each process confirmed the objects of its session."""
        for node in self.nodes:
            for gateway in node.lives:
                wal = getattr(gateway.backend, "wal", None)
                if wal is not None:
                    session = SessionName(wal.session.node_id, wal.session.session)
                    yield Confirmed(session, wal.session.nonce, wal._rules.confirmed_end)

    async def begin(self) -> None:
        """Start the first gateways, at the same time or one after the other."""
        together = self._chance.random() < 0.5
        starts = [self._bring_up(node, is_quick=True) for node in self.wanted]
        if together:
            await asyncio.gather(*starts)
        else:
            for start in starts:
                await start

    async def supervise(self) -> None:
        """Start each wanted gateway again whenever it has ended, for ever."""
        await asyncio.gather(*(self._supervise(node) for node in self.nodes))

    async def _supervise(self, node: Node) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if node in self.wanted and not node.is_up and not self.locks[node].locked():
                mean_s = LOOK_S if self.is_calm else self._chance.choice(DOWN_S)
                await asyncio.sleep(self._chance.expovariate(1 / mean_s))
                await self._bring_up(node)

    async def _bring_up(self, node: Node, *, is_quick: bool = False) -> None:
        async with self.locks[node]:
            while not node.is_up:
                killed_after_s = None
                can_be_killed = "kill" in self._plan.shared.befalls and not (self.is_calm or is_quick)
                if can_be_killed and self._chance.random() < KILLED_WHILE_STARTING:
                    killed_after_s = self._chance.expovariate(1 / 0.3)
                    self.faults["kill while starting"] += 1
                if not await node.start(killed_after_s=killed_after_s):
                    await asyncio.sleep(self._chance.expovariate(1 / LOOK_S))

    async def restart(self, node: Node) -> None:
        """Stop a gateway as SIGTERM does, and start it again."""
        async with self.locks[node]:
            if node.gateway is not None:
                await node.stop()
        await self._bring_up(node, is_quick=True)

    async def calm_down(self) -> None:
        """End all faults, and wait until all wanted gateways run."""
        self.is_calm = True
        self.bucket.outages.clear()
        for node in self.nodes:
            node.heal_disk()
            node.resume()
            if self._plan.shared.store is not None:
                node.reach.change(CALM)
        for node in self.wanted:
            async with self.locks[node]:
                if node.is_up and node.disk_has_failed:
                    node.kill()
        await self.all_up()

    async def all_up(self) -> None:
        """Wait until all wanted gateways serve."""
        while any(node.gateway is None for node in self.wanted):
            await asyncio.sleep(LOOK_S)

    async def lose_all_disks(self) -> None:
        """Let all gateways start from the bucket alone."""
        for node in self.wanted:
            async with self.locks[node]:
                node.lose_disk()
        await self.all_up()

    async def stop(self) -> None:
        """Stop all gateways, one after the other."""
        for node in self.nodes:
            async with self.locks[node]:
                if node.gateway is not None:
                    await node.stop()

    def bury(self) -> None:
        for node in self.nodes:
            node.bury()
