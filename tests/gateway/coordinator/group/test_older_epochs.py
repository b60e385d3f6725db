"""Offset commits with an older member epoch are allowed for partitions that the member has held since that
epoch (KIP-1251).
"""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.classic_protocol import GroupLimits
from seqgate.gateway.coordinator.group.offsets import Committer, OffsetCommits
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.coordinator.group.shard import GroupShard
from tests.gateway.coordinator.group.consumer_scene import GROUP, Client, ConsumerScene, settle, snapshot

NONE = ErrorCode.none
STALE = ErrorCode.stale_member_epoch


def commit_error(
    scene: ConsumerScene, member_id: str, member_epoch: int, *partitions: int, topic: str = "t"
) -> ErrorCode:
    value = CommittedOffset(5, -1, "", scene.now_ms)
    records = [OffsetCommitRecord(GROUP, topic, partition, value) for partition in partitions]
    stored = GroupShard(GroupLimits(), 10, topics=scene.cluster)
    stored.consumers.groups.update(scene.groups.groups)
    return OffsetCommits(stored).check(Committer(GROUP, member_epoch, member_id), records, scene.now_ms)


def revoking() -> tuple[ConsumerScene, Client, Client]:
    """Return a group in which a member at epoch 2 must revoke two of four partitions for a new member."""
    scene = ConsumerScene(t=4)
    first, second = Client(scene, "a"), Client(scene, "b")
    first.beat()
    second.beat()
    first.beat(keeps_for_now=True)
    return scene, first, second


def settled() -> tuple[ConsumerScene, list[int], list[int]]:
    """Return a group at epoch 3: member `a` has held two of four partitions since epoch 2, `b` the others
    since epoch 3.
    """
    scene, first, second = revoking()
    settle([first, second])
    assert [first.member_epoch, second.member_epoch] == [3, 3]
    return scene, first.partitions, second.partitions


class TestWhichEpoch:
    def test_an_epoch_since_the_assignment_may_commit(self) -> None:
        scene, kept, given = settled()
        assert commit_error(scene, "a", 3, *kept) is NONE
        assert commit_error(scene, "a", 2, *kept) is NONE
        assert commit_error(scene, "a", 1, *kept) is STALE
        assert commit_error(scene, "b", 3, *given) is NONE
        assert commit_error(scene, "b", 2, *given) is STALE

    def test_a_newer_epoch_is_refused(self) -> None:
        scene, kept, _ = settled()
        assert commit_error(scene, "a", 4, *kept) is STALE
        assert commit_error(scene, "a", 4) is STALE

    @pytest.mark.parametrize("member_epoch", [-1, -2, 0])
    def test_none_that_a_member_was_given(self, member_epoch: int) -> None:
        scene, kept, _ = settled()
        assert commit_error(scene, "a", member_epoch, *kept) is STALE

    def test_without_a_member_only_of_an_empty_group(self) -> None:
        scene = ConsumerScene(t=1)
        client = Client(scene, "a")
        client.beat()
        assert commit_error(scene, "", -1, 0) is ErrorCode.unknown_member_id
        client.leave()
        assert commit_error(scene, "", -1, 0) is NONE
        assert commit_error(scene, "a", 2, 0) is ErrorCode.unknown_member_id

    def test_an_older_one_without_offsets(self) -> None:
        scene, *_ = settled()
        assert commit_error(scene, "a", 1) is NONE


class TestWhichPartition:
    def test_a_partition_of_another_member_refuses_the_whole_commit(self) -> None:
        scene, kept, given = settled()
        assert commit_error(scene, "a", 2, *given) is STALE
        assert commit_error(scene, "a", 2, *kept, given[0]) is STALE
        assert commit_error(scene, "a", 3, *kept, given[0]) is NONE

    def test_a_partition_of_a_topic_that_does_not_exist(self) -> None:
        scene, kept, _ = settled()
        assert commit_error(scene, "a", 2, *kept, topic="missing") is STALE

    def test_a_partition_of_a_topic_that_was_created_again(self) -> None:
        scene, kept, _ = settled()
        scene.cluster.create("t", 4)
        assert commit_error(scene, "a", 2, *kept) is STALE

    def test_a_partition_that_must_be_revoked(self) -> None:
        scene, first, second = revoking()
        assert scene.member("a").current.pending_revocation
        assert commit_error(scene, "a", 2, 0, 1, 2, 3) is NONE
        settle([first, second])
        assert commit_error(scene, "a", 2, 0, 1, 2, 3) is STALE

    def test_a_partition_that_was_revoked_and_assigned_again(self) -> None:
        scene, first, second = revoking()
        settle([first, second])
        second.leave()
        settle([first])
        given = [index for index, epoch in epochs(scene, "a").items() if epoch == first.member_epoch]
        assert len(given) == 2
        assert commit_error(scene, "a", 3, *given) is STALE


class TestTheStoredEpochs:
    def test_the_epochs_of_partitions_survive_a_restart(self) -> None:
        scene, kept, given = settled()
        before = snapshot(scene.groups)
        scene.restart()
        assert snapshot(scene.groups) == before
        assert commit_error(scene, "a", 2, *kept) is NONE
        assert commit_error(scene, "b", 2, *given) is STALE

    def test_a_static_member_that_went_away_begins_at_zero(self) -> None:
        scene = ConsumerScene(t=2)
        client = Client(scene, "a", instance_id="i")
        client.beat()
        client.leave(-2)
        assert epochs(scene, "a") == {0: 0, 1: 0}
        again = Client(scene, "b", instance_id="i")
        again.beat()
        assert epochs(scene, "b") == {0: 0, 1: 0}
        assert commit_error(scene, "b", 1, 0, 1) is NONE
        assert commit_error(scene, "a", 2, 0, 1) is ErrorCode.unknown_member_id


def epochs(scene: ConsumerScene, member_id: str) -> dict[int, int]:
    """Return the epoch since which a member holds each of its partitions."""
    return {
        index: epoch
        for (_, index), epoch in sorted(scene.member(member_id).current.assignment_epochs.items())
    }
