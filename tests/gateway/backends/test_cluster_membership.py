"""Gateways that join, watch each other, resign and are taken over, over one metadata log and one bucket."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import pytest

from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.backends.cluster_membership import ClusterMembership, heartbeat_s
from seqgate.gateway.cluster.wal.session_wal import SessionWal
from seqgate.gateway.cluster.wal.sessions import SessionFacts, register
from seqgate.gateway.config import load_config
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.membership import NOT_REGISTERED
from seqgate.gateway.runtime.loop.machine import Machine
from tests.gateway.backends.shared_changes import SharedChanges
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import Node, open_node
from tests.support.simulated_objects import CALM, SimulatedBucket, SimulatedObjects

LEASE_S = 3_600.0
SHORT_LEASE_S = 3.0
"""The lease of members of which one dies: the others wait that long before they take over."""
PATIENCE_S = 120.0
FACTS = SessionFacts("cluster-a", 1_700_000_000_000, "host-1", "0.1.0")
SETTINGS = ("seqgate.cluster.balance.delay.ms=0", "seqgate.max.partitions=100")


def lease(lease_s: float) -> str:
    return f"seqgate.cluster.lease.ms={int(lease_s * 1000)}"


class Member:
    """A gateway of the cluster, without sockets: its node, its session that beats, and its membership."""

    def __init__(
        self, node: Node, wal: SessionWal, objects: SimulatedObjects, lease_s: float, settings: Sequence[str]
    ) -> None:
        self.node = node
        self._lease_s = lease_s
        self.wal = wal
        self.lost: list[str] = []
        self.uploaded: list[tuple[uuid.UUID, int]] = []
        config = load_config(
            overrides=[*SETTINGS, lease(lease_s), f"node.id={wal.session.node_id}", *settings]
        )
        self.membership = ClusterMembership(
            config, Machine(), objects, wal, node.services, self, self.lost.append
        )
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._tail())]

    async def hand_over(self, topic_id: uuid.UUID, index: int) -> None:
        self.uploaded.append((topic_id, index))

    def keep(self, topic_id: uuid.UUID, index: int) -> None:
        raise AssertionError(f"partition {index} of {topic_id} has not moved")

    async def _beat(self) -> None:
        while not self.wal.is_fenced:
            self.wal.put((), (), lambda: None)
            await asyncio.sleep(self._lease_s / 3)

    async def _tail(self) -> None:
        while True:
            await self.node.services.topics.metadata_log.catch_up()
            await asyncio.sleep(0.02)

    @property
    def image(self) -> MetadataImage:
        return self.node.services.topics.metadata_log.image

    def led(self) -> list[int]:
        """Return how many partitions of `t` each live node leads."""
        topic = self.image.topics_by_name.get("t")
        if topic is None:
            return []
        return [
            sum(partition.leader == node_id for partition in topic.partitions.values())
            for node_id in self.image.brokers.live(0)
        ]

    async def die(self) -> None:
        """Stop at once, as a process that is killed."""
        self.halt()
        await self.membership.rest()

    def halt(self) -> None:
        for task in self._tasks:
            task.cancel()


class Cluster(AsyncExitStack):
    """The bucket and the metadata log that all members share."""

    def __init__(self, path: Path, lease_s: float = LEASE_S) -> None:
        super().__init__()
        self._path = path
        self._lease_s = lease_s
        self._bucket = SimulatedBucket()
        self._shared = SharedChanges()
        self.members: list[Member] = []

    async def __aenter__(self) -> Self:
        return self

    async def start(self, node_id: int, *settings: str) -> Member:
        """Start a member, which does not join yet; its membership has further settings."""
        number = len(self.members)
        objects = SimulatedObjects(self._bucket, seed=number, faults=CALM, name=str(number))
        session = await register(objects, node_id, FACTS)
        wal = SessionWal(objects, session, puts_in_flight=4, seconds=Machine().boot_seconds)
        self.push_async_callback(wal.close)
        node = await self.enter_async_context(
            open_node(
                self._path / str(number),
                *SETTINGS,
                lease(self._lease_s),
                f"node.id={node_id}",
                journal=self._shared.journal,
            )
        )
        member = Member(node, wal, objects, self._lease_s, settings)
        self.push_async_callback(member.die)
        await node.services.topics.metadata_log.catch_up()
        self.members.append(member)
        return member

    async def join(self, node_id: int) -> Member:
        member = await self.start(node_id)
        await member.membership.join()
        return member


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_gateways_that_join_share_the_leaders(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        first = await cluster.join(1)
        await create(first.node, "t", 6)
        await cluster.join(2)
        third = await cluster.join(3)
        await until(lambda: third.led() == [2, 2, 2])
        assert sorted(first.uploaded) == sorted(set(first.uploaded))
        assert not any(member.lost for member in cluster.members)


async def test_a_gateway_that_dies_is_taken_over(tmp_path: Path) -> None:
    async with Cluster(tmp_path, SHORT_LEASE_S) as cluster:
        first = await cluster.join(1)
        second = await cluster.join(2)
        await create(first.node, "t", 6)
        await until(lambda: second.led() == [3, 3])
        begun_s = time.monotonic()
        await first.die()
        await until(lambda: second.led() == [6])
        assert time.monotonic() - begun_s >= SHORT_LEASE_S / 2
        assert list(second.image.brokers.live(0)) == [2]
        assert first.wal.session.session in second.image.brokers.ended
        await first.node.services.topics.metadata_log.catch_up()
        assert len(first.lost) == 1
        assert "shows the end of session" in first.lost[0]
        assert second.lost == []


async def test_a_gateway_that_resigns_hands_over_at_once(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        first = await cluster.join(1)
        second = await cluster.join(2)
        await create(first.node, "t", 6)
        first.halt()
        await first.membership.rest()
        await first.wal.seal("the gateway stopped")
        await first.membership.resign()
        await second.node.services.topics.metadata_log.catch_up()
        assert second.led() == [6]
        assert first.lost == []


async def test_a_later_session_of_a_node_ends_the_earlier_one(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        first = await cluster.join(1)
        again = await cluster.join(1)
        await until(lambda: bool(first.lost))
        assert again.lost == []
        assert again.image.brokers.is_current(1, again.wal.session.session)


async def test_of_two_gateways_that_choose_the_same_id_one_is_refused(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.start(1), await cluster.start(1)
        joining = [member.membership.join(replaces=NOT_REGISTERED) for member in (first, second)]
        refused = [
            each for each in await asyncio.gather(*joining, return_exceptions=True) if each is not None
        ]
        assert len(refused) == 1
        assert isinstance(refused[0], StartFailed)
        assert "another gateway has taken the node id 1" in str(refused[0])


async def test_a_gateway_without_a_login_at_the_others_may_be_alone_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logins = "listeners=SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=SCRAM-SHA-256"
    async with Cluster(tmp_path) as cluster:
        alone = await cluster.start(1, *logins)
        await alone.membership.join()
        lacking = await cluster.start(2, *logins)
        with pytest.raises(StartFailed, match=r"set sasl\.mechanism\.inter\.broker\.protocol to one of"):
            await lacking.membership.join()
        assert list(alone.image.brokers.live(0)) == [1]
        await cluster.join(3)
        await until(lambda: "This gateway can't ask node 3" in caplog.text)


@pytest.mark.parametrize(
    ("lease_ms", "beat_ms", "expected"), [(6000, None, 2.0), (6000, 500, 0.5), (900, None, 0.3)]
)
def test_a_gateway_beats_three_times_in_a_lease(lease_ms: int, beat_ms: int | None, expected: float) -> None:
    overrides = [f"seqgate.cluster.lease.ms={lease_ms}"]
    overrides += [] if beat_ms is None else [f"seqgate.cluster.heartbeat.ms={beat_ms}"]
    assert heartbeat_s(load_config(overrides=overrides)) == expected


def test_a_lease_that_ends_before_the_next_beat_is_refused() -> None:
    config = load_config(overrides=["seqgate.cluster.lease.ms=600", "seqgate.cluster.heartbeat.ms=400"])
    with pytest.raises(StartFailed, match=r"at most half of seqgate\.cluster\.lease\.ms"):
        heartbeat_s(config)
