"""Causes the faults of a cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.cluster.gateways import Gateways
from tests.simulation.cluster.plan import ClusterPlan
from tests.simulation.director import CLOCK_JUMPS_MS
from tests.simulation.loop import SLOW_THREAD_LATENCY_S, SLOW_THREADS, SimulatedLoop
from tests.simulation.network import SLOW, Network
from tests.simulation.node import Node
from tests.support.simulated_objects import CALM

PAUSES_S: Final = (0.2, 1.0, 4.0, 12.0)
"""The mean times for which gateways stand still, shorter and longer than their leases."""
APART_S: Final = (0.5, 2.0, 8.0)
CUT_OFF_S: Final = (0.5, 3.0, 10.0)
AWAY_S: Final = (0.5, 0.5, 5.0, 20.0)
DRIFT: Final = 0.045
"""The share by which clocks run too fast or too slow; two of them differ by less than the gateways expect."""
SLOW_PAIR_S: Final = 0.5
FEWEST: Final = 1
"""The gateways that never leave for good."""


class ClusterDirector:
    """Follows the plan until `end` is called, which repairs everything."""

    def __init__(
        self, loop: SimulatedLoop, network: Network, gateways: Gateways, plan: ClusterPlan, chance: Random
    ) -> None:
        self.faults: Counter[str] = Counter()
        self._loop = loop
        self._network = network
        self._gateways = gateways
        self._plan = plan.shared
        self._chance = chance

    async def run(self, until_s: float) -> None:
        """Run every kind of fault in its own task."""
        happen = {
            "kill": self._kill,
            "power cut": self._cut_power,
            "kill amid": self._kill_amid,
            "lost disk": self._lose_disk,
            "stop": self._stop,
            "rolling restart": self._roll,
            "pause": self._pause,
            "apart": self._part,
            "one way": self._part_one_way,
            "isolated": self._isolate,
            "cut off": self._cut_off,
            "slow store": self._slow_store,
            "store away": self._take_store_away,
            "slow pair": self._slow_pair,
            "slow network": self._slow_network,
            "slow threads": self._slow_threads,
            "cut": self._cut_connections,
            "clock": self._jump,
            "drift": self._drift,
            "join": self._join,
            "leave": self._leave,
        }
        tasks = [
            asyncio.create_task(self._again_and_again(kind, happen[kind], mean_s, until_s))
            for kind, mean_s in self._plan.befalls.items()
            if kind in happen
        ]
        for task in tasks:
            await task

    async def _again_and_again(self, kind: str, happen: object, mean_s: float, until_s: float) -> None:
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / mean_s))
            if self._loop.now_s >= until_s:
                return
            self.faults[kind] += 1
            await happen()  # type: ignore[operator]

    async def end(self) -> None:
        """End all faults, and let all gateways run, with empty disks in some runs."""
        network, loop = self._network, self._loop
        network.heal()
        network.slow, network.one_byte_portions = SLOW, 0.0
        loop.slow_threads, loop.slow_thread_latency_s = SLOW_THREADS, SLOW_THREAD_LATENCY_S
        await self._gateways.calm_down()
        if self._plan.store is not None and self._chance.random() < 0.5:
            await self._gateways.lose_all_disks()

    # --- lives of gateways

    def _any(self) -> Node | None:
        """Return a gateway that serves, and that no other fault has in hand."""
        free = self._gateways.free
        return self._chance.choice(free) if free else None

    async def _kill(self) -> None:
        if (node := self._any()) is not None:
            node.kill()

    async def _cut_power(self) -> None:
        if (node := self._any()) is not None:
            node.cut_power()

    async def _lose_disk(self) -> None:
        if (node := self._any()) is not None:
            node.lose_disk()

    async def _kill_amid(self) -> None:
        if (node := self._any()) is not None:
            async with self._gateways.locks[node]:
                await node.crash_amid(power=self._chance.random() < 0.5)

    async def _stop(self) -> None:
        """Stop a gateway; its supervisor starts it again."""
        if (node := self._any()) is not None:
            async with self._gateways.locks[node]:
                await node.stop()

    async def _roll(self) -> None:
        for node in list(self._gateways.wanted):
            await self._gateways.restart(node)

    async def _pause(self) -> None:
        node = self._any()
        if node is None:
            return
        async with self._gateways.locks[node]:
            node.pause()
            await self._for(PAUSES_S)
            node.resume()

    async def _join(self) -> None:
        others = [node for node in self._gateways.nodes if node not in self._gateways.wanted]
        if others:
            self._gateways.wanted.append(self._chance.choice(others))

    async def _leave(self) -> None:
        """Stop a gateway, and do not start it again before it joins."""
        node = self._any()
        if node is None or node not in self._gateways.wanted or len(self._gateways.wanted) <= FEWEST:
            return
        self._gateways.wanted.remove(node)
        async with self._gateways.locks[node]:
            await node.stop()

    async def _for(self, means_s: tuple[float, ...]) -> None:
        await asyncio.sleep(self._chance.expovariate(1 / self._chance.choice(means_s)))

    # --- the network

    def _names(self) -> list[str]:
        return sorted({end.process.name for end in self._network.ends})

    async def _part(self) -> None:
        await self._part_a_pair(one_way=False)

    async def _part_one_way(self) -> None:
        await self._part_a_pair(one_way=True)

    async def _part_a_pair(self, *, one_way: bool) -> None:
        """Separate a gateway from another one, or from a client."""
        node = self._any()
        others = self._names()
        if node is None or not (others := [name for name in others if name != node.name]):
            return
        gateways = [name for name in others if any(name == each.name for each in self._gateways.nodes)]
        chosen = self._chance.choice(gateways if gateways and self._chance.random() < 0.5 else others)
        pair = (node.name, chosen) if self._chance.random() < 0.5 else (chosen, node.name)
        self._network.part(*pair, one_way=one_way)
        await self._for(APART_S)
        self._network.rejoin(*pair)

    async def _isolate(self) -> None:
        """Separate a gateway from all others, and from a part of the clients."""
        node = self._any()
        if node is None:
            return
        share = self._chance.choice((0.0, 0.5, 1.0))
        gateways = {each.name for each in self._gateways.nodes}
        others = [
            name
            for name in sorted({*self._names(), *gateways})
            if name != node.name and (name in gateways or self._chance.random() < share)
        ]
        for name in others:
            self._network.part(node.name, name)
        await self._for(APART_S)
        for name in others:
            self._network.rejoin(node.name, name)

    async def _slow_pair(self) -> None:
        node, others = self._any(), self._names()
        if node is None or not others:
            return
        other = self._chance.choice(others)
        self._network.pairs.slow_down(node.name, other, SLOW_PAIR_S)
        await self._for(APART_S)
        self._network.pairs.slow_down(node.name, other, 0.0)

    async def _slow_network(self) -> None:
        self._network.slow = self._chance.choice((0.05, 0.5))
        await asyncio.sleep(self._chance.expovariate(1 / 0.5))
        self._network.slow = SLOW

    async def _cut_connections(self) -> None:
        self._network.cut_some(self._chance.choice((0.1, 0.3, 1.0)))

    # --- the store

    async def _cut_off(self) -> None:
        """Let one gateway not reach the store, while the others do."""
        if (node := self._any()) is not None and (faults := self._plan.store) is not None:
            node.reach.change(faults, is_cut_off=True)
            await self._for(CUT_OFF_S)
            node.reach.change(CALM if self._gateways.is_calm else faults)

    async def _slow_store(self) -> None:
        if (node := self._any()) is not None and (faults := self._plan.store) is not None:
            node.reach.change(replace(faults, slow=0.5, slow_latency_s=self._chance.choice((1.0, 5.0, 20.0))))
            await self._for(CUT_OFF_S)
            node.reach.change(CALM if self._gateways.is_calm else faults)

    async def _take_store_away(self) -> None:
        now_s = self._loop.now_s
        self._gateways.bucket.outages.append((now_s, now_s + self._chance.choice(AWAY_S)))

    # --- clocks and threads

    async def _jump(self) -> None:
        self._chance.choice(self._gateways.nodes).clock.jumped_ms += self._chance.randint(*CLOCK_JUMPS_MS)

    async def _drift(self) -> None:
        """Let the clock of a machine run a little faster or slower from now on."""
        node = self._chance.choice(self._gateways.nodes)
        node.drift(1 + self._chance.uniform(-DRIFT, DRIFT))

    async def _slow_threads(self) -> None:
        loop = self._loop
        loop.slow_threads = self._chance.choice((0.3, 1.0))
        loop.slow_thread_latency_s = self._chance.choice((SLOW_THREAD_LATENCY_S, 3.0))
        await asyncio.sleep(self._chance.expovariate(1 / 2.0))
        loop.slow_threads, loop.slow_thread_latency_s = SLOW_THREADS, SLOW_THREAD_LATENCY_S
