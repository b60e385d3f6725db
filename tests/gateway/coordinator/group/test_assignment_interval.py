"""The assignment interval (KIP-1263): members that come and go within it count for the next target
assignment.
"""

from __future__ import annotations

import pytest

from seqgate.gateway.coordinator.group import consumer_group, share_group
from seqgate.gateway.coordinator.group.consumer_group import MemberState
from seqgate.gateway.coordinator.group.consumer_heartbeat import ConsumerLimits
from seqgate.gateway.coordinator.group.epoch_group import ASSIGNING, RECONCILING, STABLE
from seqgate.gateway.coordinator.group.share_group import ShareGroup
from seqgate.gateway.coordinator.group.share_heartbeat import ShareGroupLimits, ShareHeartbeat, heartbeat
from seqgate.gateway.coordinator.rows import RowRecord
from tests.gateway.coordinator.group.consumer_scene import (
    SESSION_MS,
    START_MS,
    Client,
    Cluster,
    ConsumerScene,
    settle,
)

INTERVAL_MS = 1_000
LIMITS = ConsumerLimits(session_timeout_ms=SESSION_MS, assignment_interval_ms=INTERVAL_MS)
SHARE_LIMITS = ShareGroupLimits(assignment_interval_ms=INTERVAL_MS)


def scene_of_one(**topics: int) -> tuple[ConsumerScene, Client]:
    scene = ConsumerScene(LIMITS, **(topics or {"t": 4}))
    first = Client(scene, "a", tuple(scene.cluster.topics))
    first.beat()
    return scene, first


class TestConsumers:
    def test_the_first_member_does_not_wait(self) -> None:
        scene, first = scene_of_one()
        assert first.partitions == [0, 1, 2, 3]
        assert scene.state == STABLE

    def test_a_member_that_joins_in_the_interval_waits_for_the_next_target(self) -> None:
        scene, first = scene_of_one()
        scene.advance(INTERVAL_MS - 1)
        second = Client(scene, "b")
        second.beat()
        assert (second.member_epoch, second.partitions) == (scene.group.assignment_epoch, [])
        assert scene.state == ASSIGNING
        first.beat()
        assert first.partitions == [0, 1, 2, 3]
        scene.advance(1)
        settle([second, first])
        assert (len(first.partitions), len(second.partitions)) == (2, 2)
        assert scene.state == STABLE

    def test_all_that_happens_in_the_interval_makes_one_target(self) -> None:
        scene, first = scene_of_one()
        others = [Client(scene, name) for name in "bcd"]
        for other in others:
            other.beat()
        before = scene.group.group_epoch
        scene.advance(INTERVAL_MS)
        settle([first, *others])
        assert scene.group.group_epoch == before
        targets = [record for record in scene.records if record.row is consumer_group.ASSIGNMENT]
        assert [record.value.timestamp_ms for record in targets] == [START_MS, START_MS + INTERVAL_MS]

    def test_the_partitions_of_a_member_that_left_are_free_after_the_interval(self) -> None:
        scene, first = scene_of_one()
        scene.advance(INTERVAL_MS)
        second = Client(scene, "b")
        second.beat()
        settle([first, second])
        scene.advance(INTERVAL_MS - 1)
        second.leave()
        settle([first])
        assert len(first.partitions) == 2
        scene.advance(1)
        settle([first])
        assert first.partitions == [0, 1, 2, 3]

    def test_a_dropped_topic_is_revoked_at_once_and_a_new_one_comes_later(self) -> None:
        scene, first = scene_of_one(t=2, u=2)
        first.names = ("u",)
        reply = first.beat(subscribed_names=("u",), keeps_for_now=True)
        assert reply.assignment == scene.cluster.places("u")
        assert scene.member("a").current.state is MemberState.UNREVOKED_PARTITIONS
        first.catch_up()
        first.beat()
        assert scene.member("a").current.state is MemberState.STABLE
        assert scene.member("a").current.assigned == scene.cluster.places("u")
        scene.cluster.create("v", 1)
        scene.topics_changed()
        first.beat(subscribed_names=("u", "v"))
        assert first.owned == scene.cluster.places("u")
        scene.advance(INTERVAL_MS)
        settle([first])
        assert first.owned == scene.cluster.places("u", "v")

    def test_a_topic_that_grows_in_the_interval_waits(self) -> None:
        scene, first = scene_of_one()
        scene.grow("t", 6)
        first.beat()
        assert len(first.partitions) == 4
        scene.advance(INTERVAL_MS)
        first.beat()
        assert len(first.partitions) == 6

    def test_a_restart_does_not_shorten_the_interval(self) -> None:
        scene, first = scene_of_one()
        scene.restart()
        second = Client(scene, "b")
        second.beat()
        assert scene.state == ASSIGNING
        scene.advance(INTERVAL_MS)
        settle([first, second])
        assert len(second.partitions) == 2

    def test_a_clock_that_was_set_back_makes_nobody_wait(self) -> None:
        scene, first = scene_of_one()
        scene.now_ms -= 3_600_000
        second = Client(scene, "b")
        second.beat()
        settle([first, second])
        assert len(second.partitions) == 2

    @pytest.mark.parametrize("interval_ms", [0, 1])
    def test_without_an_interval_nobody_waits(self, interval_ms: int) -> None:
        scene = ConsumerScene(ConsumerLimits(assignment_interval_ms=interval_ms), t=2)
        first, second = Client(scene, "a"), Client(scene, "b")
        first.beat()
        scene.now_ms += interval_ms
        second.beat()
        assert scene.state == RECONCILING


class Sharing:
    """A share group with an assignment interval, and the records of its life."""

    def __init__(self) -> None:
        self.group = ShareGroup("g")
        self.cluster = Cluster()
        self.cluster.create("t", 2)
        self.cluster.create("u", 2)
        self.records: list[RowRecord] = []
        self.now_ms = START_MS
        self.epochs: dict[str, int] = {}

    def beat(self, member_id: str, *names: str) -> list[int] | None:
        """Send a heartbeat; return the partitions of the answer."""
        epoch = self.epochs.get(member_id, 0)
        told = names or (None if epoch else ("t",))
        request = ShareHeartbeat("g", member_id, epoch, None, "client", "/127.0.0.1", told)
        reply, records = heartbeat(self.group, request, self.cluster, SHARE_LIMITS, self.now_ms)
        self.records += records
        self.epochs[member_id] = reply.member_epoch
        assigned = reply.assignment
        return None if assigned is None else sorted(topic.int * 10 + index for topic, index in assigned)


class TestSharers:
    def test_a_member_that_joins_in_the_interval_waits_for_the_next_targets(self) -> None:
        sharing = Sharing()
        assert sharing.beat("a") == [10, 11]
        assert sharing.beat("b") == []
        sharing.now_ms += INTERVAL_MS - 1
        assert sharing.beat("b") is None
        sharing.now_ms += 1
        assert sharing.beat("b") == [10]
        assert sharing.beat("a") == [11]
        made = [record for record in sharing.records if record.row is share_group.ASSIGNMENT]
        assert [record.value.timestamp_ms for record in made] == [START_MS, START_MS + INTERVAL_MS]

    def test_a_dropped_topic_goes_at_once_and_a_new_one_comes_later(self) -> None:
        sharing = Sharing()
        assert sharing.beat("a", "t") == [10, 11]
        assert sharing.beat("a", "u") == []
        sharing.now_ms += INTERVAL_MS
        assert sharing.beat("a") == [20, 21]
