"""Causes the faults of a simulation."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

from tests.faults.disk_faults import FaultRates
from tests.simulation.loop import SLOW_THREAD_LATENCY_S, SLOW_THREADS, SimulatedLoop
from tests.simulation.network import SLOW, Network
from tests.simulation.node import NAME, Node
from tests.simulation.plan import Plan
from tests.simulation.process import Process

KILLED_WHILE_STARTING = 0.3
PAUSED = 0.5
"""The share of gateways that stand still while another one takes over."""
PAUSE_S = 0.7
ZOMBIE_PAUSES_S = (0.1, 0.5, 2.0)
"""The mean time for which they stand still. In a run about zombies the choices for it, from when the other
one reads the first manifest.
"""
CUT_WHILE_SLOW = 0.5
AT_ONCE = 0.2
"""The share of crashes and cuts that directly follow the previous one."""
MOSTLY = 0.7
"""The share of slow work where a profile has slow flushes."""
CLOCK_JUMPS_MS = (-3_600_000, 600_000)


class Director:
    """Follows the plan until `end` is called, which repairs everything."""

    def __init__(self, loop: SimulatedLoop, network: Network, node: Node, plan: Plan, chance: Random) -> None:
        self.faults: Counter[str] = Counter()
        self._loop = loop
        self._network = network
        self._node = node
        self._plan = plan
        self._chance = chance
        self._restarting = asyncio.Lock()

    async def run(self, until_s: float) -> None:
        """Run every kind of fault in its own task."""
        self._hurry()
        tasks = [
            asyncio.create_task(self._again_and_again(kind, mean_s, until_s), name=f"fault: {kind}")
            for kind, mean_s in self._plan.befalls.items()
        ]
        for task in tasks:
            await task

    async def _again_and_again(self, kind: str, mean_s: float, until_s: float) -> None:
        happen = {
            "kill": self._kill,
            "power cut": self._cut_power,
            "stop": self._stop,
            "cut": self._cut_connections,
            "part": self._part,
            "clock": self._jump,
            "slow network": self._slow_down,
            "disk": self._fail_disk,
            "slow disk": self._slow_disk,
            "slow threads": self._slow_threads,
            "cold": self._forget_cached,
            "kill amid": self._kill_amid,
            "power cut amid": self._cut_power_amid,
            "lost disk": self._lose_disk,
            "store away": self._take_store_away,
            "takeover": self._take_over,
            "move": self._move,
        }[kind]
        while True:
            mean = mean_s / 20 if self._chance.random() < AT_ONCE else mean_s
            await asyncio.sleep(self._chance.expovariate(1 / mean))
            if self._loop.time() >= until_s:
                return
            self.faults[kind] += 1
            await happen()

    async def end(self) -> None:
        """End all faults, and start the gateway if it is down."""
        self._network.heal()
        self._network.slow = SLOW
        self._hurry(at_the_end=True)
        self._network.one_byte_portions = 0.0
        async with self._restarting:
            self._node.heal_disk()
            if self._node.is_up and self._node.disk_has_failed:
                # a restart brings partitions back that a failed flush took offline
                self._node.kill()
            if self._plan.store is not None and self._node.is_up:
                # What the clients read at the end comes from the bucket alone.
                self._node.lose_disk()
            await self._bring_up()
            self._hurry(at_the_end=True)

    # --- the gateway

    async def _kill(self) -> None:
        async with self._restarting:
            self._node.kill()
            await self._bring_up()

    async def _cut_power(self) -> None:
        async with self._restarting:
            self._node.cut_power()
            await self._bring_up()

    async def _lose_disk(self) -> None:
        async with self._restarting:
            self._node.lose_disk()
            await self._bring_up()

    async def _take_over(self) -> None:
        """Start another gateway while one runs, which goes on until it learns of its end. It may stand still
        until the other one runs.
        """
        async with self._restarting:
            left = None
            if self._node.gateway is not None:
                pauses = self._chance.random() < PAUSED or self._plan.profile.zombies
                left = self._node.leave_running(pauses=pauses)
            resuming = asyncio.create_task(self._resume(left))
            await self._bring_up()
            await resuming

    async def _resume(self, process: Process | None) -> None:
        """Let a process go on that stands still, at a moment of the takeover or after it."""
        mean_s = PAUSE_S
        if self._plan.profile.zombies and process is not None:
            mean_s = self._chance.choice(ZOMBIE_PAUSES_S)
            await self._node.begins_to_read()
        await asyncio.sleep(self._chance.expovariate(1 / mean_s))
        if process is not None and process.is_paused:
            self.faults["resumed"] += 1
            process.resume()

    async def _move(self) -> None:
        """End the gateway, and start another one on the disk of another machine."""
        async with self._restarting:
            if self._node.gateway is not None and self._chance.random() < 0.5:
                await self._node.stop()
            else:
                self._node.kill()
            self._node.change_machine()
            await self._bring_up()

    async def _take_store_away(self) -> None:
        """No call reaches the store for a while."""
        now_s = self._loop.time()
        self._node.bucket.outages.append((now_s, now_s + self._chance.choice((0.5, 0.5, 5.0, 40.0))))

    async def _stop(self) -> None:
        async with self._restarting:
            if self._node.is_up:
                await self._node.stop()
            await self._bring_up()

    async def _bring_up(self) -> None:
        """Start the gateway, sometimes with a crash during the start, until it runs."""
        has_slow_flushes = self._plan.profile.flush_s is not None
        if has_slow_flushes:
            self._hurry(at_the_end=True)
        while not self._node.is_up:
            await asyncio.sleep(self._chance.expovariate(1 / 0.3))
            killed_after_s = None
            if "kill" in self._plan.befalls and self._chance.random() < KILLED_WHILE_STARTING:
                killed_after_s = self._chance.expovariate(1 / 0.02)
                self.faults["kill while starting"] += 1
            await self._node.start(killed_after_s=killed_after_s)
        if has_slow_flushes:
            self._hurry()

    async def _kill_amid(self) -> None:
        await self._crash_amid(power=False)

    async def _cut_power_amid(self) -> None:
        await self._crash_amid(power=True)

    async def _crash_amid(self, *, power: bool) -> None:
        async with self._restarting:
            await self._node.crash_amid(power=power)
            await self._bring_up()

    async def _fail_disk(self) -> None:
        """Let the disk fail for a while; then heal it and restart the gateway."""
        rate = self._chance.choice((0.001, 0.01, 0.1, 0.5))
        kinds = self._chance.choice(
            (
                ("sync_eio",),
                ("write_enospc", "write_short"),
                ("write_eio", "name_eio", "sync_eio"),
                ("read_eio", "open_eio", "open_emfile"),
            )
        )
        async with self._restarting:
            self._node.fail_disk(FaultRates(**dict.fromkeys(kinds, rate)))
            await asyncio.sleep(self._chance.expovariate(1 / 0.5))
            self._node.heal_disk()
            self._node.kill()
            await self._bring_up()

    async def _slow_disk(self) -> None:
        rates = self._node.disk.plan.rates
        rates.latency, rates.latency_s = 0.2, self._chance.choice((0.01, 0.2))
        await asyncio.sleep(self._chance.expovariate(1 / 0.5))
        rates.latency = 0.0

    async def _slow_threads(self) -> None:
        """Delay threads, so that clients retry and a power cut meets much data that is written and not
        durable.
        """
        loop, chance = self._loop, self._chance
        loop.slow_threads = chance.choice((0.3, 1.0))
        loop.slow_thread_latency_s = chance.choice((SLOW_THREAD_LATENCY_S, 3.0))
        await asyncio.sleep(chance.expovariate(1 / 2.0))
        if "power cut" in self._plan.befalls and chance.random() < CUT_WHILE_SLOW:
            self.faults["power cut while slow"] += 1
            await self._cut_power()
        self._hurry()

    def _hurry(self, *, at_the_end: bool = False) -> None:
        """Set the speed of threads to the plan's profile; at the end of a run all threads are quick."""
        flush_s = None if at_the_end else self._plan.profile.flush_s
        self._loop.slow_threads = SLOW_THREADS if flush_s is None else MOSTLY
        self._loop.slow_thread_latency_s = SLOW_THREAD_LATENCY_S if flush_s is None else flush_s

    async def _forget_cached(self) -> None:
        self._node.forget_cached()

    # --- the gateway's surroundings

    async def _cut_connections(self) -> None:
        self._network.cut_some(self._chance.choice((0.1, 0.3, 1.0)))

    async def _part(self) -> None:
        others = sorted({end.process.name for end in self._network.ends} - {NAME})
        if others:
            self._network.part(NAME, self._chance.choice(others))
            await asyncio.sleep(self._chance.expovariate(1 / 1.0))
            self._network.heal()

    async def _jump(self) -> None:
        self._node.clock.jumped_ms += self._chance.randint(*CLOCK_JUMPS_MS)

    async def _slow_down(self) -> None:
        self._network.slow = self._chance.choice((0.05, 0.5))
        await asyncio.sleep(self._chance.expovariate(1 / 0.5))
        self._network.slow = SLOW
