"""What groups report to the log: joining, leaving, timing out, rebalancing, and rising epochs."""

from __future__ import annotations

from seqgate.gateway.coordinator.group.consumer_heartbeat import ConsumerLimits, Heartbeat
from seqgate.gateway.coordinator.group.events import (
    Effects,
    Emptied,
    EpochRaised,
    Event,
    MemberJoined,
    MemberLeft,
    MemberRemoved,
    MemberReplaced,
    RebalanceBegan,
    Stabilized,
    Who,
)
from seqgate.gateway.coordinator.group.share_heartbeat import ShareGroupLimits, ShareHeartbeat
from seqgate.gateway.coordinator.group.stored_groups import CONSUMER, SHARE, GroupsOfKind
from tests.gateway.coordinator.group import scene as classic
from tests.gateway.coordinator.group.consumer_scene import SESSION_MS as CONSUMER_SESSION_MS
from tests.gateway.coordinator.group.consumer_scene import Cluster, joining, request
from tests.gateway.coordinator.group.scene import DELAY_MS, GROUP, SESSION_MS, Scene

ANYONE = classic.Who()


class Watched(Scene):
    """A scene that keeps the events of its operations."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def take(self, effects: Effects) -> None:
        super().take(effects)
        self.events += effects.events

    def told(self) -> list[Event]:
        """Return the events since the last call."""
        events, self.events = self.events, []
        return events


def client(member_id: str, instance_id: str | None = None) -> Who:
    return Who(member_id, instance_id, "client", "/127.0.0.1")


def stable(scene: Watched, who: classic.Who = ANYONE) -> str:
    """Let one member join and send its assignment; return its member id."""
    scene.join(who)
    scene.advance(DELAY_MS)
    member_id = next(iter(scene.group.members))
    scene.sync(member_id, {member_id: b"a"})
    return member_id


def test_the_first_member_of_a_classic_group() -> None:
    scene = Watched()
    member_id = stable(scene)
    assert scene.told() == [
        MemberJoined(GROUP, client(member_id)),
        RebalanceBegan(GROUP, "Empty", 0, f"member {member_id} joined"),
        Stabilized(GROUP, 1, 1),
    ]


def test_a_retry_a_heartbeat_and_a_refused_request_are_no_events() -> None:
    scene = Watched()
    member_id = stable(scene)
    scene.told()
    scene.heartbeat(member_id)
    scene.sync(member_id)
    scene.join(classic.Who(member_id="stranger"))
    assert scene.told() == []


def test_a_classic_member_leaves() -> None:
    scene = Watched()
    member_id = stable(scene)
    scene.told()
    scene.leave((member_id, None))
    assert scene.told() == [
        MemberLeft(GROUP, client(member_id)),
        RebalanceBegan(GROUP, "Stable", 1, f"member {member_id} left"),
        Emptied(GROUP, 2),
    ]


def test_a_client_says_why_it_joins_and_leaves() -> None:
    scene = Watched()
    scene.join(classic.Who(reason="first\nline \x1b[31m"))
    scene.advance(DELAY_MS)
    member_id = next(iter(scene.group.members))
    scene.sync(member_id, {member_id: b"a"})
    says = r"; its client says: first\nline \x1b[31m"
    assert RebalanceBegan(GROUP, "Empty", 0, f"member {member_id} joined{says}") in scene.told()
    scene.leave((member_id, None), reason="r" * 300)
    says = f"; its client says: {'r' * 255}…"
    assert RebalanceBegan(GROUP, "Stable", 1, f"member {member_id} left{says}") in scene.told()


def test_a_classic_member_times_out() -> None:
    scene = Watched()
    member_id = stable(scene)
    scene.told()
    scene.advance(SESSION_MS)
    assert scene.told() == [
        MemberRemoved(GROUP, client(member_id), "its session timed out"),
        RebalanceBegan(GROUP, "Stable", 1, f"the session of member {member_id} timed out"),
        Emptied(GROUP, 2),
    ]


def test_a_static_member_returns() -> None:
    scene = Watched()
    old = stable(scene, classic.Who(group_instance_id="i"))
    scene.told()
    scene.join(classic.Who(group_instance_id="i"))
    (new,) = scene.group.members
    assert scene.told() == [MemberReplaced(GROUP, old, client(new, "i"))]


class Epochs:
    """A consumer group and its events."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.cluster = Cluster()
        self.cluster.create("one", 2)
        self.groups = GroupsOfKind(CONSUMER, lambda _: ConsumerLimits(session_timeout_ms=CONSUMER_SESSION_MS))

    def beat(self, heartbeat: Heartbeat) -> list[Event]:
        effects = Effects(self.now_ms)
        self.groups.leave_or_heartbeat(heartbeat, self.cluster, effects)
        return effects.events


def test_a_consumer_joins_changes_its_subscription_and_leaves() -> None:
    epochs = Epochs()
    joined = EpochRaised(GROUP, "consumer", 2, "member a joined")
    assert epochs.beat(joining("a", "one")) == [MemberJoined(GROUP, client("a")), joined]
    assert epochs.beat(request("a", 2)) == []
    changed = EpochRaised(GROUP, "consumer", 3, "member a changed its subscription")
    assert epochs.beat(request("a", 2, subscribed_names=("one", "two"))) == [changed]
    epochs.cluster.create("two", 1)
    epochs.groups.groups[GROUP].topics_changed = True
    assert epochs.beat(request("a", 3)) == [EpochRaised(GROUP, "consumer", 4, "subscribed topics changed")]
    left = EpochRaised(GROUP, "consumer", 5, "member a left")
    assert epochs.beat(request("a", -1)) == [MemberLeft(GROUP, client("a")), left]


def test_consumers_time_out_together() -> None:
    epochs = Epochs()
    for name in "ab":
        epochs.beat(joining(name, "one"))
    epochs.now_ms = CONSUMER_SESSION_MS
    effects = Effects(epochs.now_ms)
    epochs.groups.expire(GROUP, effects)
    assert effects.events == [
        MemberRemoved(GROUP, client("a"), "its session timed out"),
        MemberRemoved(GROUP, client("b"), "its session timed out"),
        EpochRaised(GROUP, "consumer", 4, "2 members timed out"),
    ]


def test_a_sharer_joins_and_times_out() -> None:
    groups = GroupsOfKind(SHARE, lambda _: ShareGroupLimits())
    cluster = Cluster()
    cluster.create("one", 2)
    effects = Effects(0)
    groups.leave_or_heartbeat(
        ShareHeartbeat(GROUP, "a", 0, None, "client", "/127.0.0.1", ("one",)), cluster, effects
    )
    epoch = groups.groups[GROUP].group_epoch
    assert effects.events == [
        MemberJoined(GROUP, client("a")),
        EpochRaised(GROUP, "share", epoch, "member a joined"),
    ]
    effects = Effects(ShareGroupLimits().session_timeout_ms)
    groups.expire(GROUP, effects)
    assert effects.events == [
        MemberRemoved(GROUP, client("a"), "its session timed out"),
        EpochRaised(GROUP, "share", epoch + 1, "member a timed out"),
    ]
