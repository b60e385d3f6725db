"""Rebalances of two members over two connections, and static members."""

from __future__ import annotations

from tests.compat.differential.group_member import (
    GroupMember,
    assignment,
    await_state,
    fetch_offsets,
    fetched,
    subscription,
)
from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each


def _member(peer: Peer, group_id: str, name: str = "", **more: object) -> GroupMember:
    """Return a member whose subscription contains its name."""
    return GroupMember(peer, group_id, protocols={"range": subscription("t", name)}, **more)  # type: ignore[arg-type]


def _two_joined(peer: Peer, version: int = 9) -> tuple[GroupMember, GroupMember]:
    """Return leader and follower of a generation that waits for the leader's assignment."""
    leader = _member(peer, peer.group(), "leader")
    leader.join(version)
    leader.assign_itself(min(version, 5))
    other = _member(peer.connect(), leader.group_id, "other")
    pending = other.begin_join(version)
    leader.await_rebalance()
    leader.join(version)
    other.joined(pending.answer())
    return leader, other


def _share(leader: GroupMember, other: GroupMember, version: int = 5) -> None:
    """Let the leader assign one partition each while the follower waits."""
    waiting = other.peer.begin("sync_group", version, **other.sync_request())
    leader.sync({leader.member_id: assignment("t", 0), other.member_id: assignment("t", 1)}, min(version, 5))
    waiting.answer()


def _two(peer: Peer) -> tuple[GroupMember, GroupMember]:
    leader, other = _two_joined(peer)
    _share(leader, other)
    return leader, other


@scenario_for_each(range(10))
def two_members(peer: Peer, version: int) -> None:
    leader, other = _two_joined(peer, version)
    _share(leader, other, min(version, 5))
    peer.call("describe_groups", min(version, 6), groups=[leader.group_id])
    leader.heartbeat(min(version, 4))
    other.heartbeat(min(version, 4))
    leader.leave(min(version, 5))
    other.await_rebalance()
    other.join(version)
    other.assign_itself(min(version, 5))


@scenario_for_each(range(2, 11))
def rebalance_in_progress(peer: Peer, version: int) -> None:
    """Send each request of the old member while a new one waits to join: only its commit is accepted."""
    topic = peer.topic()
    leader = _member(peer, peer.group(), "leader")
    leader.join()
    leader.assign_itself()
    other = _member(peer.connect(), leader.group_id, "other")
    pending = other.begin_join()
    leader.await_rebalance()
    peer.call("describe_groups", min(version, 6), groups=[leader.group_id])
    leader.heartbeat(min(version, 4))
    leader.sync(version=min(version, 5))
    leader.commit(topic, version=version)
    leader.commit(topic, 7, version=version, generation_id_or_member_epoch=7)
    fetch_offsets(peer, leader.group_id, [fetched(topic, 0)])
    leader.join()
    other.joined(pending.answer())
    leader.commit(topic, 8, version=version)
    other.commit(topic, 9, version=version)
    other.heartbeat(min(version, 4))
    _share(leader, other)
    leader.commit(topic, 10, version=version)
    fetch_offsets(peer, leader.group_id, [fetched(topic, 0)])


@scenario
def member_leaves_while_it_waits_to_join(peer: Peer) -> None:
    leader = _member(peer, peer.group(), "leader")
    leader.join()
    leader.assign_itself()
    other = _member(peer.connect(), leader.group_id, "other")
    pending = other.begin_join()
    leader.await_rebalance()
    peer.call("leave_group", 5, group_id=leader.group_id, members=[{"member_id": other.member_id}])
    pending.answer()
    leader.join()


@scenario
def member_leaves_while_others_wait_to_sync(peer: Peer) -> None:
    leader, other = _two_joined(peer)
    waiting = other.peer.begin("sync_group", 5, **other.sync_request())
    leader.leave()
    waiting.answer()
    other.join()
    other.assign_itself()


@scenario
def last_but_one_leaves_the_join(peer: Peer) -> None:
    """Let the only member that a rebalance waits for leave: the rebalance completes at once."""
    leader, other = _two(peer)
    pending = other.peer.begin(
        "join_group", 9, **other.join_request(protocols=[_row("range", b"\0\0\0\0\0\0")])
    )
    leader.await_rebalance()
    leader.leave()
    other.joined(pending.answer())
    other.assign_itself()


def _row(name: str, metadata: bytes) -> dict[str, object]:
    return {"name": name, "metadata": metadata}


@scenario
def member_never_joins_again(peer: Peer) -> None:
    """Let the leader miss the rebalance timeout: it is removed, and the other member leads."""
    leader = _member(peer, peer.group(), "leader", rebalance_timeout=1_000)
    leader.join()
    leader.assign_itself()
    other = _member(peer.connect(), leader.group_id, "other", rebalance_timeout=1_000)
    other.joined(other.begin_join().answer())
    leader.heartbeat()
    leader.join()
    other.heartbeat()


@scenario
def member_never_syncs(peer: Peer) -> None:
    """Remove the members that did not send SyncGroup in time."""
    leader = _member(peer, peer.group(), "leader", rebalance_timeout=1_000)
    leader.join()
    leader.assign_itself()
    other = _member(peer.connect(), leader.group_id, "other", rebalance_timeout=1_000)
    pending = other.begin_join()
    leader.await_rebalance()
    leader.join()
    other.joined(pending.answer())
    leader.sync({leader.member_id: b"l", other.member_id: b"o"})
    leader.await_rebalance()
    other.heartbeat()
    leader.join()


@scenario
def follower_joins_again(peer: Peer) -> None:
    """Join again as a follower. Unchanged, it gets the current generation; with another subscription, all
    members must rejoin."""
    leader, other = _two(peer)
    other.join()
    leader.heartbeat()
    other.protocols = {"range": subscription("t", "third")}
    pending = other.begin_join()
    leader.await_rebalance()
    leader.join()
    other.joined(pending.answer())
    _share(leader, other)


@scenario
def protocol_of_the_majority(peer: Peer) -> None:
    """Choose the protocol by votes: a member votes for the first in its list that all members support."""
    first = GroupMember(peer, peer.group(), protocols={"a": subscription("1"), "b": subscription("1")})
    first.join()
    first.sync()
    second = GroupMember(
        peer.connect(),
        first.group_id,
        protocols={"c": subscription("2"), "b": subscription("2"), "a": subscription("2")},
    )
    pending = second.begin_join()
    first.await_rebalance()
    first.protocols = {"b": subscription("1"), "a": subscription("1")}
    first.join()
    second.joined(pending.answer())
    GroupMember(peer, first.group_id, protocols={"c": b"", "d": b""}).join()


@scenario
def new_member_while_the_assignment_is_awaited(peer: Peer) -> None:
    leader, other = _two_joined(peer)
    waiting = other.peer.begin("sync_group", 5, **other.sync_request())
    third = _member(peer.connect(), leader.group_id, "third")
    pending = third.begin_join()
    waiting.answer()
    leader.sync()
    joining = other.begin_join()
    leader.join()
    other.joined(joining.answer())
    third.joined(pending.answer())


# --- static members


@scenario_for_each(range(5, 10))
def static_member_restarts(peer: Peer, version: int) -> None:
    """Restart a static member: it continues under a new member id without a rebalance, and the old member id
    is fenced."""
    topic = peer.topic()
    member = GroupMember(peer, peer.group(), "i")
    member.join(version)
    member.assign_itself()
    again = GroupMember(peer.connect(), member.group_id, "i")
    again.join(version)
    again.sync()
    peer.call("describe_groups", min(version, 6), groups=[member.group_id])
    member.heartbeat()
    member.sync()
    member.commit(topic)
    member.leave()
    peer.call("join_group", version, **member.join_request())
    again.heartbeat()
    again.commit(topic)
    again.leave()
    await_state(peer, member.group_id, "Empty")


@scenario
def static_member_restarts_with_another_subscription(peer: Peer) -> None:
    member = GroupMember(peer, peer.group(), "i")
    member.join()
    member.assign_itself()
    again = GroupMember(peer, member.group_id, "i", protocols={"range": subscription("other")})
    again.join()
    again.protocols = {"sticky": subscription("other"), "range": subscription("other")}
    again.member_id = ""
    again.join()
    again.sync()


@scenario_for_each(range(5, 10))
def static_members(peer: Peer, version: int) -> None:
    """Join two static members; restart the follower, and then the leader."""
    leader = _member(peer, peer.group(), "leader", instance_id="one")
    leader.join(version)
    leader.assign_itself()
    other = _member(peer.connect(), leader.group_id, "other", instance_id="two")
    pending = other.begin_join(version)
    leader.await_rebalance()
    leader.join(version)
    other.joined(pending.answer())
    _share(leader, other)
    other.member_id = ""
    other.join(version)
    other.sync()
    leader.member_id = ""
    leader.join(version)
    leader.sync()
    other.heartbeat()
    leader.heartbeat()
    peer.call("describe_groups", min(version, 6), groups=[leader.group_id])


@scenario
def static_member_is_replaced_while_it_waits(peer: Peer) -> None:
    """Replace a static member while it waits: its JoinGroup and its SyncGroup are answered with
    FENCED_INSTANCE_ID."""
    leader = _member(peer, peer.group(), "leader")
    leader.join()
    leader.assign_itself()
    static = _member(peer.connect(), leader.group_id, "static", instance_id="i")
    pending = static.begin_join()
    leader.await_rebalance()
    again = _member(peer.connect(), leader.group_id, "static", instance_id="i")
    second = again.begin_join()
    pending.answer()
    leader.join()
    again.joined(second.answer())
    waiting = again.peer.begin("sync_group", 5, **again.sync_request())
    third = _member(peer.connect(), leader.group_id, "static", instance_id="i")
    joining = third.begin_join()
    waiting.answer()
    leader.await_rebalance()
    leader.join()
    third.joined(joining.answer())


@scenario
def unknown_instance(peer: Peer) -> None:
    """Send a member id with an instance id that does not exist, or that belongs to another member."""
    member = GroupMember(peer, peer.group(), "i")
    member.join()
    member.assign_itself()
    for instance_id in ("j", None, ""):
        member.heartbeat(group_instance_id=instance_id)
        member.sync(group_instance_id=instance_id)
        peer.call("join_group", 9, **member.join_request(group_instance_id=instance_id))
    member.heartbeat(member_id="unknown")
    member.heartbeat(member_id="unknown", generation_id=9)
    member.sync(member_id="unknown")
    peer.call("join_group", 9, **member.join_request(member_id="unknown"))


@scenario
def static_member_leaves_by_its_instance_id(peer: Peer) -> None:
    member = GroupMember(peer, peer.group(), "i")
    member.join()
    member.assign_itself()
    member.leave(members=[{"member_id": "", "group_instance_id": "j"}])
    member.leave(members=[{"member_id": "unknown", "group_instance_id": "i"}])
    member.leave(members=[{"member_id": "", "group_instance_id": "i"}])
    member.heartbeat()
    member.join()


@scenario
def static_member_stays_through_a_rebalance(peer: Peer) -> None:
    """Let a static member miss a rebalance: it stays in the group until its session ends."""
    static = _member(peer, peer.group(), "static", instance_id="i", rebalance_timeout=1_000)
    static.join()
    static.assign_itself()
    other = _member(peer.connect(), static.group_id, "other", rebalance_timeout=1_000)
    other.joined(other.begin_join().answer())
    static.heartbeat()
    static.sync()
    other.assign_itself()
    static.heartbeat()
