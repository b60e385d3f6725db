"""Gateways that beat, hold leases, and watch each other, in virtual time over a simulated bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from seqgate.gateway.cluster.silence import Lease, Watched, Watcher
from seqgate.gateway.cluster.wal.session_wal import SessionWal
from seqgate.gateway.cluster.wal.sessions import Session
from seqgate.gateway.cluster.wal.wal_object import NONCE_BYTES
from tests.support.simulated_objects import CALM, Faults, SimulatedBucket, SimulatedObjects

LEASE_S = 6.0
BEAT_S = LEASE_S / 3


def watched(node_id: int, session: int) -> Watched:
    return Watched(node_id, session, LEASE_S)


class Member:
    """A gateway of the scene: a session that beats, its lease, and its watches."""

    def __init__(
        self,
        scene: Scene,
        node_id: int,
        *,
        clock_rate: float = 1.0,
        faults: Faults = CALM,
        lease_type: Callable[[SessionWal, Callable[[], float]], Lease] | None = None,
        watcher_type: type[Watcher] = Watcher,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.node_id = node_id
        self.session = scene.next_session
        scene.next_session += 1
        self.seconds = lambda: loop.time() * clock_rate
        self.objects = SimulatedObjects(
            scene.bucket, seed=scene.seed * 100 + node_id, faults=faults, name=f"{node_id}"
        )
        own = Session(self.session, node_id, bytes([node_id]) * NONCE_BYTES, "cluster")
        self.wal = SessionWal(
            self.objects, own, puts_in_flight=4, seconds=self.seconds, chance=Random(node_id)
        )
        made = lease_type or (lambda wal, seconds: Lease(wal, LEASE_S, seconds))
        self.lease = made(self.wal, self.seconds)
        self.is_stopped = False
        self.ended: list[tuple[int, float]] = []
        """The nodes that this gateway ended, and when."""
        self._scene = scene
        self.watcher = watcher_type(self.objects, node_id, self.seconds, self._end)
        self.beat = loop.create_task(self._beat())

    async def _beat(self) -> None:
        while not self.wal.is_fenced:
            if not self.is_stopped and not self.wal.in_flight:
                self.wal.put((), (), lambda: None)
            await asyncio.sleep(BEAT_S)

    async def _end(self, node_id: int, session: int) -> bool:
        return self._scene.end(self, node_id, session)

    def stop_beating(self) -> None:
        """Write nothing more, as a process that is stopped."""
        self.is_stopped = True


class Scene:
    """The bucket, and the metadata of the cluster: the live sessions."""

    def __init__(self, seed: int = 1) -> None:
        self.seed = seed
        self.bucket = SimulatedBucket()
        self.members: dict[int, Member] = {}
        self.live: dict[int, int] = {}
        self.next_session = 1
        self.stale: list[str] = []
        """Breaches: a session was ended while its lease was not over."""

    def add(self, member: Member) -> Member:
        self.members[member.node_id] = member
        self.live[member.node_id] = member.session
        self._changed()
        return member

    def end(self, by: Member, node_id: int, session: int) -> bool:
        if self.live.get(node_id) != session:
            return False
        del self.live[node_id]
        by.ended.append((node_id, asyncio.get_running_loop().time()))
        member = self.members[node_id]
        if not member.lease.is_over():
            self.stale.append(f"node {node_id} may answer for {member.lease.left_s:.2f} s more")
        self._changed()
        return True

    def _changed(self) -> None:
        for node_id, member in self.members.items():
            if node_id in self.live and not member.is_stopped:
                member.watcher.follow({node: watched(node, session) for node, session in self.live.items()})

    @property
    def endings(self) -> list[tuple[int, float]]:
        return sorted(ended for member in self.members.values() for ended in member.ended)

    async def until(self, condition: Callable[[], bool], limit_s: float) -> None:
        """Wait in virtual time until the condition is true. Raises TimeoutError."""
        async with asyncio.timeout(limit_s):
            while not condition():
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        for member in self.members.values():
            await member.watcher.stop()
            member.beat.cancel()
            await asyncio.gather(member.beat, return_exceptions=True)
            await member.wal.close()
