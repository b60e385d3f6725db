from __future__ import annotations

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.classic_protocol import (
    ClassicRequests,
    GroupLimits,
    Join,
    JoinReply,
    expire,
)
from seqgate.gateway.coordinator.group.events import Effects
from seqgate.gateway.coordinator.group.member_bytes import MemberBytes
from seqgate.gateway.coordinator.group.shard import GroupShard
from tests.gateway.coordinator.group.mixed_scene import MixedScene, owning
from tests.gateway.coordinator.group.scene import Who


def test_members_are_admitted_up_to_the_limit_and_again_when_others_left() -> None:
    held = [0]
    budget = MemberBytes(100, lambda: held[0])
    assert budget.admit(60, 0)
    assert budget.admit(40, 0)
    held[0] = 100
    assert not budget.admit(1, 10)
    held[0] = 30
    assert not budget.admit(1, 500), (
        "the members were counted a moment ago, so they must not be counted again"
    )
    assert budget.admit(70, 2_000)
    held[0] = 100
    assert not budget.admit(1, 2_001)


def test_not_every_refusal_recounts() -> None:
    counted = []

    def count() -> int:
        counted.append(1)
        return 100

    budget = MemberBytes(100, count)
    assert budget.admit(100, 0)
    for now_ms in range(500):
        assert not budget.admit(10, now_ms)
    assert len(counted) == 1


def test_members_that_join_again_count_once() -> None:
    budget = MemberBytes(100, lambda: 10)
    assert all(budget.admit(10, 0) for _ in range(1_000))


def test_members_that_join_again_need_no_further_room() -> None:
    """A group that fills the room must not end the members of others."""
    stored = GroupShard(GroupLimits(initial_rebalance_delay_ms=0), 100)
    stored.member_bytes.limit_bytes = 10_000
    requests = ClassicRequests(stored)
    now_ms = 1_000_000

    def join(group_id: str, member_id: str, fresh_member_id: str, size: int = 900) -> list[ErrorCode]:
        nonlocal now_ms
        now_ms += 2_000
        protocols = (("range", b"x" * size),)
        client = ("c", "/h", 600_000, 600_000, "consumer", protocols, fresh_member_id)
        effects = Effects(now_ms)
        requests.join(group_id, Join(3, member_id, None, *client), object(), effects)
        return [reply.error_code for _, reply in effects.replies if isinstance(reply, JoinReply)]

    for number in range(5):
        assert join(f"g{number}", "", f"m{number}") == []
        expire(stored.groups[f"g{number}"], stored.limits, Effects(now_ms))
    full = [ErrorCode.group_max_size_reached]
    assert join("g5", "", "m5") == full
    for number in range(5):
        assert full != join(f"g{number}", f"m{number}", "unused")
    assert join("g0", "m0", "unused", size=2_000) == full, "what it adds must fit"


def test_a_classic_member_of_a_consumer_group_counts_with_its_metadata() -> None:
    scene = MixedScene()
    scene.shard.member_bytes.limit_bytes = 5_000
    scene.beat("a")
    large = (("range", owning() + b"x" * 2_000),)
    errors = []
    for _ in range(3):
        scene.now_ms += 2_000
        errors.append(scene.error(scene.join(Who(protocols=large))))
    assert errors == [ErrorCode.none, ErrorCode.group_max_size_reached, ErrorCode.group_max_size_reached]
    known = next(member_id for member_id in scene.consumers.members if member_id != "a")
    assert scene.error(scene.join(Who(known, protocols=large))) is ErrorCode.none, "it adds nothing"


def test_a_static_member_of_a_consumer_group_returns_though_the_room_is_full() -> None:
    scene = MixedScene()
    scene.beat("a", instance_id="i")
    scene.beat("a", -2, instance_id="i")
    scene.shard.member_bytes.limit_bytes = 1_500
    scene.now_ms += 2_000
    assert scene.beat("b", instance_id="i").member_epoch > 0
