from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway.coordinator.deadlines import NEVER, moved
from seqgate.gateway.coordinator.group.classic_group import ClassicGroup
from seqgate.gateway.coordinator.group.classic_protocol import GroupLimits
from seqgate.gateway.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.group.share_group import ShareGroup, ShareMember
from seqgate.gateway.coordinator.share.share_partition import ShareLimits, SharePartition
from seqgate.gateway.runtime.loop.clock import TOLERATED_MS, ClockChanges
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, FixedClock, Node, open_node
from tests.gateway.runtime.coordinators.test_group_coordinator import ONE_PARTITION, TOPIC, form_group

HOUR_MS = 3_600_000


class Times:
    """A wall clock, and a monotonic clock that is never set."""

    def __init__(self) -> None:
        self.wall = FixedClock()
        self.steady_s = 5.0

    def pass_ms(self, duration_ms: int, set_by_ms: int = 0) -> None:
        self.wall.time_ms += duration_ms + set_by_ms
        self.steady_s += duration_ms / 1000


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS, TOLERATED_MS + 1, -400 * 24 * HOUR_MS])
def test_listeners_hear_once_by_how_much_the_clock_was_set(by_ms: int) -> None:
    times, told = Times(), list[int]()
    clock = ClockChanges(times.wall, lambda: times.steady_s)
    clock.listeners.append(told.append)
    times.pass_ms(HOUR_MS)
    assert (clock.now_ms(), told) == (NOW_MS + HOUR_MS, [])
    times.pass_ms(7, by_ms)
    assert clock.now_ms() == times.wall.time_ms
    times.pass_ms(HOUR_MS)
    clock.now_ms()
    assert told == [by_ms]


def test_a_clock_that_is_slowly_corrected_was_not_set() -> None:
    times, told = Times(), list[int]()
    clock = ClockChanges(times.wall, lambda: times.steady_s)
    clock.listeners.append(told.append)
    for _ in range(100):
        times.pass_ms(60_000, TOLERATED_MS // 2)
        clock.now_ms()
    assert not told


def test_never_stays_never() -> None:
    assert (moved(5, -3), moved(NEVER, -3), moved(NEVER, 3)) == (2, NEVER, NEVER)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path, *ONE_PARTITION) as opened:
        await opened.services.coordinators.groups.ensure_topic()
        await create(opened, TOPIC)
        yield opened


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
async def test_a_session_of_a_member_lasts_as_long_as_before(node: Node, by_ms: int) -> None:
    groups = node.services.coordinators.groups
    await form_group(groups, "g", "member")
    (loaded,) = groups.shards
    left_ms = loaded.shard.next_deadline_ms("g") - node.clock.time_ms
    node.clock.time_ms += by_ms
    groups.clock_was_set(by_ms)
    assert loaded.shard.next_deadline_ms("g") - node.clock.time_ms == left_ms
    assert groups._deadlines._deadlines_ms[0, "g"] == node.clock.time_ms + left_ms


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_members_of_every_kind_have_as_much_time_as_before(by_ms: int) -> None:
    stored = GroupShard(GroupLimits(), 10)
    member = ConsumerMember("m", session_deadline_ms=1, revocation_deadline_ms=2, join_deadline_ms=3)
    sharer = ShareMember("s", session_deadline_ms=4)
    joining = ClassicGroup("j", NOW_MS)
    joining.pending_members["p"] = 5
    joining.join_deadline_ms, joining.sync_deadline_ms = 6, NEVER
    stored.groups["j"] = joining
    stored.consumers.groups["c"] = ConsumerGroup("c", members={"m": member})
    stored.shares.groups["s"] = ShareGroup("s", members={"s": sharer})
    stored.clock_was_set(by_ms)
    deadlines = [member.session_deadline_ms, member.revocation_deadline_ms, member.join_deadline_ms]
    deadlines += [sharer.session_deadline_ms, joining.pending_members["p"], joining.join_deadline_ms]
    assert [deadline_ms - by_ms for deadline_ms in deadlines] == [1, 2, 3, 4, 5, 6]
    assert member.sync_deadline_ms == joining.sync_deadline_ms == NEVER


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_a_lock_of_a_share_group_lasts_as_long_as_before(by_ms: int) -> None:
    found, limits = SharePartition(0), ShareLimits()
    assert found.acquire("m", [(0, 4)], 10, limits, NOW_MS)
    found.clock_was_set(by_ms)
    assert found.next_deadline_ms() == NOW_MS + limits.lock_duration_ms + by_ms
