"""A gateway of a simulation: it is started, stopped and killed many times, while its disk and clock stay."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from random import Random
from typing import Any, Final

from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.cluster.parts.manifest import PartitionKey
from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.runtime.loop import slices
from seqgate.log import Storage
from tests.faults.disk_faults import FaultRates
from tests.faults.simulated_disk import SimulatedDisk
from tests.simulation.events_of_clusters import NodeCrashed, NodeStarted
from tests.simulation.history import GatewayCrashed, GatewayStarted, History
from tests.simulation.loop import SimulatedLoop
from tests.simulation.loop_flushes import WatchedDurability
from tests.simulation.machine import SimulatedClock, SimulatedMachine
from tests.simulation.member import Member
from tests.simulation.network import Network
from tests.simulation.plan import Plan
from tests.simulation.process import Process
from tests.simulation.reach import Reach
from tests.support.simulated_objects import Faults, SimulatedBucket

logger = logging.getLogger(__name__)

DATA = "/data"
SLOW_END: Final = Faults(slow=0.8, slow_latency_s=5.0, slow_creates_below="wal/")
"""How a zombie reaches the store: it is long in learning of its end, and quick in its uploads and deletions.
"""
START_PATIENCE_S = 600.0
STORE_PATIENCE_S = 3_000.0
"""The same where a start waits for a store whose calls fail."""
AMID_PATIENCE_S = 5.0
SLOW_READS_S = (0.1, 2.0)
"""The latency of the store for a gateway that takes over, once it has sealed the logs before, in a run about
zombies.
"""
READING_PATIENCE_S = 30.0
LOOK_S = 0.01
READ_CALLS = 50
KEPT_BY_ZOMBIES = 0.5
"""The share of gateways that keep their producers when another one takes over, in a run about zombies."""
NAME = "gateway"
FAILED_STARTS: Final = 100
"""The most starts in a row that may fail in a cluster; one more is a breach."""


class Node:
    """One gateway and the machine below it. It is the only one of its run, unless it is a `member` of a
    cluster.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        network: Network,
        plan: Plan,
        history: History,
        chance: Random,
        member: Member | None = None,
    ) -> None:
        self.name = NAME if member is None else member.name
        self.clock = SimulatedClock(loop)
        self._member = member
        self._chance = chance
        self._loop = loop
        self._plan = plan
        self.disk = self._new_disk()
        self.reach = (
            Reach(SimulatedBucket(), plan.store, chance)
            if member is None
            else Reach(member.bucket, plan.store, chance, member.name, member.store_timeout_s)
        )
        self._failed_starts = 0
        self.disk_has_failed = False
        """Whether the disk has failed since the last start. The next start brings offline partitions back."""
        self.counts: Counter[str] = Counter()
        self.gateway: Gateway | None = None
        self.lives: list[Gateway] = []
        """The gateways of all processes until now."""
        self._network = network
        self._history = history
        self._process: Process | None = None
        self._dead: list[Process] = []
        self._replaced: dict[Process, SimulatedDisk] = {}
        """The gateways that run although another one took over, with their disks."""
        self._spare_disk: SimulatedDisk | None = None
        """The disk of another machine, with what a gateway left there."""
        self._is_over = asyncio.Event()

    def _new_disk(self) -> SimulatedDisk:
        return SimulatedDisk(
            self._chance,
            max_descriptors=self._plan.max_descriptors,
            now_ms=self.clock.now_ms,
            on_latency=self._loop.pass_time,
            tells_cached=self._plan.cold_reads,
        )

    @property
    def _patience_s(self) -> float:
        return START_PATIENCE_S if self._plan.store is None else STORE_PATIENCE_S

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.alive

    @property
    def is_paused(self) -> bool:
        return self._process is not None and self._process.is_paused

    def _at_ms(self) -> int:
        return round(self._loop.now_s * 1000)

    def _note_crash(self, kind: str) -> None:
        at_ms = self._at_ms()
        crashed = GatewayCrashed(at_ms, kind)
        self._history.add(crashed if self._member is None else NodeCrashed(at_ms, self.name, kind))

    def _note_start(self) -> None:
        at_ms = self._at_ms()
        self._history.add(GatewayStarted(at_ms) if self._member is None else NodeStarted(at_ms, self.name))

    async def start(self, *, killed_after_s: float | None = None) -> bool:
        """Start the gateway; return whether it runs.

        With `killed_after_s`, kill it after that time, even in the middle of its start.
        """
        slices._turns.pop(self._loop, None)  # a new process has a new loop
        member = self._member
        process = self._process = Process(self.name, None if member is None else member.drifting)
        self._is_over.clear()
        self.disk_has_failed = False
        machine = SimulatedMachine(
            self._loop,
            self.clock,
            Storage(disk=self.disk.process()),
            self._chance,
            self.reach.for_new_process(),
        )
        own = () if member is None else member.settings
        gateway = Gateway(load_config(overrides=[f"log.dirs={DATA}", *self._plan.settings, *own]), machine)
        if self._plan.store is None:
            gateway.durability = WatchedDurability(
                machine.storage, self._loop, lambda: self.gateway is gateway, self._loop.unhandled.append
            )
        self.lives.append(gateway)
        starting = process.begin(gateway.start())
        if member is not None:
            # the run may end while the others keep it from joining
            starting.add_done_callback(lambda done: done.cancelled() or done.exception())
        over = asyncio.ensure_future(self._is_over.wait())
        patience_s = self._patience_s if killed_after_s is None else killed_after_s
        await asyncio.wait({starting, over}, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if not process.alive:
            return False
        if killed_after_s is not None:
            self.kill()
            return False
        if not starting.done():
            raise AssertionError(f"the gateway did not start within {self._patience_s} s")
        error = starting.exception()
        if error is not None:
            self._note_failed_start(error)
            self.kill()
            return False
        self.gateway = gateway
        self.reach.reset()
        self.counts["starts"] += 1
        self._failed_starts = 0
        self._note_start()
        if member is not None:
            ended = process.begin(gateway.backend.ended())
            ended.add_done_callback(lambda _: self._ends_itself(process))
        return True

    @property
    def bucket(self) -> SimulatedBucket:
        return self.reach.bucket

    async def begins_to_read(self) -> None:
        """Wait until the gateway that takes over reads a manifest, and slow its store down from then on. A
        start may do without.
        """
        deadline_s = self._loop.time() + READING_PATIENCE_S
        while self._loop.time() < deadline_s and not self._has_read_a_manifest():
            await asyncio.sleep(LOOK_S)
        if self._plan.store is not None and self.gateway is None:
            self.reach.become(replace(self._plan.store, latency_s=SLOW_READS_S))

    def _has_read_a_manifest(self) -> bool:
        """Return whether the gateway runs, or one of the last calls of its start was for a manifest."""
        return self.gateway is not None or self.reach.has_read_a_manifest(READ_CALLS)

    def log_sizes(self) -> dict[PartitionKey, int]:
        """Return the bytes of the segments of all partitions; 0 for those without a log."""
        gateway = self.gateway
        assert gateway is not None
        topics = gateway.services.topics.metadata_log.image.topics_by_id
        sizes = {
            PartitionKey(topic.topic_id, partition): 0
            for topic in topics.values()
            for partition in topic.partitions
        }
        for log in gateway.services.partitions.log_directory.logs():
            sizes[PartitionKey(log.topic_id, log.partition)] = sum(
                segment.size_bytes for segment in log.segments.segments
            )
        return sizes

    def _note_failed_start(self, error: BaseException) -> None:
        """Record the reason why a gateway could not start on a failing disk, or beside the others of its
        cluster.
        """
        self.counts["failed starts"] += 1
        self._failed_starts += 1
        if (
            self._member is not None
            and self._failed_starts <= FAILED_STARTS
            and isinstance(error, StartFailed)
        ):
            self.counts[f"failed start: {re.sub('[0-9]+', 'N', str(error))[:90]}"] += 1
            return
        if not isinstance(error, StartFailed) or not self.disk_has_failed:
            raise AssertionError(f"the gateway can't start: {error!r}") from error

    def kill(self) -> None:
        """Kill the process as kill -9 does: written data stays, sent data may arrive."""
        self._end("kill")
        self.disk.kill()

    def cut_power(self) -> None:
        """Cut the power: of the data that is not durable, a part or nothing stays."""
        self._end("power cut")
        self.disk.power_cut(self._chance)
        self.forget_cached()

    def lose_disk(self) -> None:
        """Kill the process, and give the next one an empty disk."""
        self._end("lost disk")
        self.disk = self._new_disk()

    def change_machine(self) -> None:
        """Let the next start use the disk of another machine, which may hold what an earlier gateway left.
        Nothing may run here.
        """
        assert not self.is_up
        self.disk, self._spare_disk = self._disk_elsewhere(), self.disk

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task of the gateway's process."""
        assert self._process is not None
        return self._process.begin(work)

    def pause(self) -> None:
        """Let the process stand still, as SIGSTOP does: its timers and callbacks wait, and so do the bytes
        that reach it.
        """
        assert self._process is not None
        self._process.is_paused = True

    def drift(self, rate: float) -> None:
        """Let the machine's clock run `rate` times as fast as the loop's time from now on."""
        assert self._member is not None
        self._member.drifting.run_at(rate, self._loop.now_s)

    def resume(self) -> None:
        """Let a process that stands still go on."""
        if self._process is not None and self._process.is_paused:
            self._process.resume()

    def _ends_itself(self, process: Process) -> None:
        """End a process that has learned that it may not serve any more, as `seqgate.gateway.running.run`
        does.
        """
        if process is self._process and process.alive:
            self.counts["fenced"] += 1
            self.kill()

    def leave_running(self, *, pauses: bool = False) -> Process:
        """Let the gateway run, and the next start be on another machine, as an operator does who takes the
        gateway for dead.

        Return its process, which stands still if it `pauses`, until somebody resumes it.

        Only idempotent producers stay connected: a gateway that has not learned of its end may serve old data
        to readers.
        """
        process, gateway = self._process, self.gateway
        assert process is not None
        assert gateway is not None
        self._process = self.gateway = None
        self._replaced[process] = self.disk
        self.disk = self._disk_elsewhere()
        self.counts["takeover"] += 1
        keeps = not self._plan.profile.zombies or self._chance.random() < KEPT_BY_ZOMBIES
        self._network.lead_away(process, lambda client: keeps and client.startswith("idempotent"))
        self._note_crash("kill")
        process.begin(gateway.backend.ended()).add_done_callback(
            lambda ended: self._has_ended(process, ended)
        )
        process.is_paused = pauses
        if self._plan.profile.zombies:
            self.reach.become(SLOW_END)
        return process

    def _has_ended(self, process: Process, ended: asyncio.Task[None]) -> None:
        """End the process of a gateway that has learned of its end, as `seqgate.gateway.running.run` does."""
        if not ended.cancelled():
            ended.exception()
        self.counts["fenced"] += process in self._replaced
        self._end_replaced(process)

    def _end_replaced(self, process: Process) -> None:
        disk = self._replaced.pop(process, None)
        if disk is None:
            return
        process.die()
        self._dead.append(process)
        self._network.process_died(process, polite=True)
        disk.kill()
        self._spare_disk = disk

    def _disk_elsewhere(self) -> SimulatedDisk:
        disk, self._spare_disk = self._spare_disk, None
        return disk or self._new_disk()

    async def crash_amid(self, *, power: bool) -> None:
        """Crash before one of the next disk operations, whichever code is running."""
        plan = self.disk.plan
        plan.kind, plan.fail_at = "cut", plan.operations + self._chance.randint(1, 40)
        plan.on_cut = self.cut_power if power else self.kill
        over = asyncio.ensure_future(self._is_over.wait())
        await asyncio.wait({over}, timeout=AMID_PATIENCE_S)
        over.cancel()
        plan.fail_at, plan.on_cut = 0, None

    def fail_disk(self, rates: FaultRates) -> None:
        """Let disk operations fail at random, until `heal_disk`."""
        self.disk_has_failed = True
        self.disk.plan.rates = rates

    def heal_disk(self) -> None:
        self.disk.plan.heal()

    def forget_cached(self) -> None:
        """Drop the page cache: the next reads wait for the disk."""
        for path in self.disk.files():
            self.disk.make_cold(path)

    def _end(self, kind: str) -> None:
        process, self._process, self.gateway = self._process, None, None
        if process is None:
            return
        if process.alive:
            process.die()
        self._dead.append(process)
        self._is_over.set()
        self.counts[kind] += 1
        self._network.process_died(process, polite=kind == "kill")
        self._note_crash("kill" if kind == "kill" else "power")

    async def stop(self) -> None:
        """Stop the gateway as SIGTERM does."""
        process, gateway = self._process, self.gateway
        assert process is not None
        assert gateway is not None
        self.gateway = None
        stopping = process.begin(gateway.stop())
        if self._member is None:
            await asyncio.wait({stopping}, timeout=self._patience_s)
        elif await self._ends_before(stopping):
            return  # another gateway has ended the session meanwhile
        if not stopping.done():
            raise AssertionError("the gateway did not stop")
        self.counts["stops"] += 1
        error = stopping.exception()
        if error is not None and not self.disk_has_failed:
            raise AssertionError(f"the gateway did not stop properly: {error!r}") from error
        process.die()
        self._dead.append(process)
        self._is_over.set()
        self._process = self.gateway = None
        self._network.process_died(process, polite=True)
        self.disk.kill()

    async def _ends_before(self, work: asyncio.Future[Any]) -> bool:
        """Wait until the work is done; return whether the process has ended before."""
        over = asyncio.ensure_future(self._is_over.wait())
        await asyncio.wait({work, over}, timeout=self._patience_s, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        return over.done() and not work.done()

    def bury(self) -> None:
        for process in list(self._replaced):
            self._end_replaced(process)
        for process in self._dead:
            process.bury()
