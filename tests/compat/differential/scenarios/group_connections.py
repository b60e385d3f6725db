"""Group members whose connections are lost or pipeline requests, requests for another member, and unusual
names."""

from __future__ import annotations

from tests.compat.differential.group_member import (
    GroupMember,
    assignment,
    await_state,
    fetch_offsets,
    subscription,
)
from tests.compat.differential.peer import SILENCE_S, Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.wire import API_KEYS, CLIENT_ID, encode_body, encode_header


def _stable(peer: Peer, **more: object) -> GroupMember:
    leader = GroupMember(peer, peer.group(), protocols={"range": subscription("leader")}, **more)  # type: ignore[arg-type]
    leader.join()
    leader.assign_itself()
    return leader


def _other(peer: Peer, leader: GroupMember, **more: object) -> GroupMember:
    """Return another member, with its own connection, that has not joined the group yet."""
    protocols = {"range": subscription("other")}
    return GroupMember(peer.connect(), leader.group_id, protocols=protocols, **more)  # type: ignore[arg-type]


def _two(peer: Peer) -> tuple[GroupMember, GroupMember]:
    """Return two members of a group that waits for the leader's assignment."""
    leader = _stable(peer)
    other = _other(peer, leader)
    pending = other.begin_join()
    leader.await_rebalance()
    leader.join()
    other.joined(pending.answer())
    return leader, other


# --- connections


@scenario
def connection_is_lost_while_it_waits_to_join(peer: Peer) -> None:
    """Lose the connection of a member that waits to join. The member stays and can get its answer over
    another connection."""
    leader = _stable(peer)
    other = _other(peer, leader)
    other.begin_join()
    leader.await_rebalance()
    other.peer.close()
    leader.join()
    other.joined(other.peer.call("join_group", 9, **other.join_request()))
    leader.heartbeat()


@scenario
def connection_is_lost_while_it_waits_for_the_assignment(peer: Peer) -> None:
    leader, other = _two(peer)
    other.peer.begin("sync_group", 5, **other.sync_request())
    other.peer.close()
    leader.sync({leader.member_id: b"l", other.member_id: b"o"})
    other.sync()
    other.heartbeat()


@scenario
def one_member_joins_over_two_connections(peer: Peer) -> None:
    """Join twice as one member over two connections. The later request replaces the earlier one, which Kafka
    never answers."""
    leader = _stable(peer)
    other = _other(peer, leader)
    other.ask_for_id()
    first = peer.connect(timeout_s=SILENCE_S).begin("join_group", 9, **other.join_request())
    leader.await_rebalance()
    second = peer.connect().begin("join_group", 9, **other.join_request())
    first.answer()
    leader.join()
    other.joined(second.answer())
    other.heartbeat()


@scenario
def one_connection_for_two_groups(peer: Peer) -> None:
    one = GroupMember(peer, peer.group("one"))
    two = GroupMember(peer, peer.group("two"))
    one.join()
    two.join()
    one.assign_itself()
    two.assign_itself()
    one.heartbeat(group_id=two.group_id)
    two.heartbeat(group_id=one.group_id)
    one.heartbeat()
    two.heartbeat()


@scenario
def asks_ahead(peer: Peer) -> None:
    """Pipeline requests over one connection: the answers come one after the other."""
    leader = _stable(peer)
    peer.pipelined(
        [
            ("heartbeat", 4, leader.identity()),
            ("join_group", 9, leader.join_request()),
            ("sync_group", 5, leader.sync_request({leader.member_id: b"x"}, generation_id=2)),
            ("heartbeat", 4, leader.identity(generation_id=2)),
            ("leave_group", 5, {"group_id": leader.group_id, "members": [{"member_id": leader.member_id}]}),
            ("heartbeat", 4, leader.identity(generation_id=2)),
        ]
    )


# --- two members


@scenario
def followers_assignment_is_not_taken(peer: Peer) -> None:
    leader, other = _two(peer)
    waiting = other.peer.begin("sync_group", 5, **other.sync_request({other.member_id: b"mine"}))
    leader.sync({leader.member_id: b"l", other.member_id: b"theirs"})
    waiting.answer()
    other.sync({other.member_id: b"mine"})
    leader.sync({leader.member_id: b"again"})
    leader.sync()


@scenario
def follower_joins_again_while_the_assignment_is_awaited(peer: Peer) -> None:
    """Join again as a follower before the assignment. Unchanged, it gets the same generation; with another
    subscription, all members must rejoin."""
    leader, other = _two(peer)
    other.join()
    other.protocols = {"range": subscription("changed")}
    pending = other.begin_join()
    leader.await_rebalance()
    leader.sync({leader.member_id: b"l"})
    leader.join()
    other.joined(pending.answer())


@scenario
def session_of_one_ends(peer: Peer) -> None:
    leader = _stable(peer)
    other = _other(peer, leader, session_timeout=1_500)
    pending = other.begin_join()
    leader.await_rebalance()
    leader.join()
    other.joined(pending.answer())
    leader.sync({leader.member_id: assignment("t", 0), other.member_id: assignment("t", 1)})
    other.sync()
    leader.await_rebalance()
    other.heartbeat()
    leader.join()


@scenario
def session_of_a_static_member_ends(peer: Peer) -> None:
    """End the session of a static member: it leaves as any member does, and its instance id is free again."""
    member = _stable(peer, instance_id="i", session_timeout=1_000)
    await_state(peer, member.group_id, "Empty")
    member.heartbeat()
    peer.call("join_group", 9, **member.join_request())
    member.member_id = ""
    member.join()


@scenario
def everyone_leaves_at_once(peer: Peer) -> None:
    leader, other = _two(peer)
    gone = [{"member_id": member.member_id, "group_instance_id": None} for member in (other, leader)]
    peer.call("leave_group", 5, group_id=leader.group_id, members=gone)
    await_state(peer, leader.group_id, "Empty")
    peer.call("list_groups", 5, only_own=True)
    leader.member_id = ""
    leader.join()


# --- names


@scenario_for_each(
    {"space": "a b", "umlaut": "grün", "slash": "/a/..", "zero": "a\0b", "emoji": "🦀", "long": "x" * 2_000}
)
def group_names(peer: Peer, suffix: str) -> None:
    topic = peer.topic()
    member = GroupMember(peer, peer.group(suffix))
    member.join()
    member.assign_itself()
    member.commit(topic)
    fetch_offsets(peer, member.group_id, None)
    peer.call("describe_groups", 6, groups=[member.group_id])
    peer.call("list_groups", 5, only_own=True)
    member.leave()
    peer.call("delete_groups", 2, groups_names=[member.group_id])


@scenario_for_each({"empty": "", "dot": ".", "space": "a b", "umlaut": "grün", "long": "x" * 2_000})
def instance_names(peer: Peer, instance_id: str) -> None:
    member = GroupMember(peer, peer.group(), instance_id)
    member.join()
    member.assign_itself()
    member.heartbeat()
    again = GroupMember(peer, member.group_id, instance_id)
    again.join()
    member.heartbeat()
    again.leave()


@scenario_for_each({"null": None, "empty": "", "own": CLIENT_ID, "odd": "a b:/ü"})
def client_ids(peer: Peer, client_id: str | None) -> None:
    """Join with different client ids: a member id begins with the client id."""
    member = GroupMember(peer, peer.group())
    for version in (3, 9):
        body = encode_body("join_group", version, member.join_request())
        named = "" if client_id is None else client_id
        header = encode_header(
            API_KEYS["join_group"], version, 1, flexible=version >= 6, client_id=client_id and named
        )
        peer.frame("join", header + body, api="join_group", version=version)
    await_state(peer, member.group_id, "CompletingRebalance")
