"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the life of one member, and requests that are refused."""

from __future__ import annotations

from typing import Any

from tests.compat.differential.group_member import GroupMember, assignment, await_state, subscription
from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.wire import Plain

NOBODY = "nobody-00000000-0000-0000-0000-00000000beef"


def _alone(peer: Peer, **more: Any) -> GroupMember:
    """Return the only member of a stable group."""
    member = GroupMember(peer, peer.group(), **more)
    member.join()
    member.assign_itself()
    return member


# --- the life of a group


@scenario_for_each(range(10))
def life(peer: Peer, version: int) -> None:
    """Use versions of all APIs that were released at about the same time."""
    topic = peer.topic()
    member = GroupMember(peer, peer.group(), protocols={"range": subscription(topic.name)})
    member.join(version)
    member.assign_itself(min(version, 5))
    member.heartbeat(min(version, 4))
    member.commit(topic, version=max(2, version))
    await_state(peer, member.group_id, "Stable")
    member.leave(min(version, 5))
    await_state(peer, member.group_id, "Empty")
    member.heartbeat(min(version, 4))


@scenario_for_each(range(10))
def joins_again(peer: Peer, version: int) -> None:
    """Join again: the leader of a stable group begins a new generation; an unchanged member of a rebalance
    does not."""
    member = GroupMember(peer, peer.group())
    member.join(version)
    member.join(version)
    member.assign_itself(min(version, 5))
    member.join(version)
    member.protocols = {"range": subscription("t", "u")}
    member.join(version)
    member.assign_itself(min(version, 5))


@scenario_for_each(range(4, 10))
def member_id_required(peer: Peer, version: int) -> None:
    """Use a member id that was handed out: it is valid for one join."""
    member = GroupMember(peer, peer.group())
    member.ask_for_id(version)
    await_state(peer, member.group_id, "Empty")
    peer.call("list_groups", 4, only_own=True)
    member.heartbeat(generation_id=0)
    member.heartbeat(generation_id=-1)
    member.sync(generation_id=0)
    member.join(version)
    GroupMember(peer, member.group_id).ask_for_id(version)
    member.leave()


@scenario
def pending_member_leaves(peer: Peer) -> None:
    member = GroupMember(peer, peer.group())
    member.ask_for_id()
    member.leave()
    member.leave()
    member.join()


@scenario
def pending_member_with_an_instance_id(peer: Peer) -> None:
    member = GroupMember(peer, peer.group())
    member.ask_for_id()
    member.instance_id = "i"
    member.join()


# --- joining a group


@scenario_for_each(range(10))
def unknown_member(peer: Peer, version: int) -> None:
    """Send requests with an unknown member id, to a group that does not exist and to one that does."""
    member = GroupMember(peer, peer.group(), member_id=NOBODY, generation_id=1)
    peer.call("join_group", version, **member.join_request())
    member.sync(version=min(version, 5))
    member.heartbeat(min(version, 4))
    member.leave(min(version, 5))
    _alone(peer)
    peer.call("join_group", version, **member.join_request())
    member.sync(version=min(version, 5))
    member.heartbeat(min(version, 4))
    member.leave(min(version, 5))


@scenario_for_each(range(10))
def empty_group_id(peer: Peer, version: int) -> None:
    peer.group()
    for member_id in ("", NOBODY):
        member = GroupMember(peer, "", member_id=member_id, generation_id=1)
        peer.call("join_group", version, **member.join_request())
        member.sync(version=min(version, 5))
        member.heartbeat(min(version, 4))
        member.leave(min(version, 5))


@scenario_for_each({str(timeout): timeout for timeout in (-1, 0, 499, 500, 1_800_000, 1_800_001, 2**31 - 1)})
def session_timeouts(peer: Peer, timeout: int) -> None:
    for version in (0, 5, 9):
        member = GroupMember(peer, peer.group(str(version)), session_timeout=timeout)
        member.join(version)


@scenario_for_each({str(timeout): timeout for timeout in (-1, 0, 2**31 - 1)})
def rebalance_timeouts(peer: Peer, timeout: int) -> None:
    member = GroupMember(peer, peer.group(), rebalance_timeout=timeout)
    peer.call("join_group", 3, **member.join_request())


PROTOCOLS: dict[str, tuple[str, dict[str, bytes]]] = {
    "no protocols": ("consumer", {}),
    "no type": ("", {"range": b""}),
    "neither": ("", {}),
    "empty name": ("connect", {"": b"x"}),
    "empty metadata": ("connect", {"default": b""}),
    "other type": ("connect", {"default": b"\x00\xff\x01"}),
    "two": ("consumer", {"roundrobin": subscription("t"), "range": subscription("t", "u")}),
    "newer subscription": ("consumer", {"range": subscription("t", version=3) + b"\0\0\0\0\0\0\0\0"}),
    "no topics": ("consumer", {"range": subscription()}),
}


@scenario_for_each(PROTOCOLS)
def protocols(peer: Peer, case: tuple[str, dict[str, bytes]]) -> None:
    protocol_type, offered = case
    for version in (3, 9):
        group_id = peer.group(str(version))
        member = GroupMember(peer, group_id, protocol_type=protocol_type, protocols=offered)
        member.join(version)
        member.assign_itself()
        peer.call("describe_groups", 5, groups=[group_id])


UNREADABLE = {
    "empty": b"",
    "cut": subscription("topic")[:-8],
    "negative version": subscription("t", version=-1),
    "count too large": b"\0\0\x7f\xff\xff\xff",
}


@scenario_for_each(UNREADABLE)
def unreadable_subscription(peer: Peer, metadata: bytes) -> None:
    member = GroupMember(peer, peer.group(), protocols={"range": metadata})
    peer.call_briefly("join_group", 3, **member.join_request())


@scenario_for_each((0, 3, 4, 6, 7, 9))
def inconsistent_protocol(peer: Peer, version: int) -> None:
    """Join with another protocol type, and without a protocol that both members support."""
    first = _alone(peer)
    for protocol_type, name in (("connect", "range"), ("consumer", "sticky"), ("consumer", "")):
        asked = GroupMember(peer, first.group_id, protocol_type=protocol_type, protocols={name: b""})
        asked.join(version)
    peer.call("join_group", version, **first.join_request(protocol_type="connect"))
    peer.call("join_group", version, **first.join_request(protocols=[]))
    first.heartbeat()


@scenario
def protocol_twice(peer: Peer) -> None:
    rows = [{"name": "a", "metadata": b"1"}, {"name": "a", "metadata": b"2"}, {"name": "b", "metadata": b"3"}]
    member = GroupMember(peer, peer.group(), protocol_type="connect", protocols={"a": b""})
    peer.call("join_group", 3, **member.join_request(protocols=rows))


# --- assignments


@scenario_for_each(range(6))
def sync_refused(peer: Peer, version: int) -> None:
    member = GroupMember(peer, peer.group())
    member.join()
    for generation_id in (0, 2, -1):
        member.sync(version=version, generation_id=generation_id)
    member.sync(version=version, member_id=NOBODY)
    member.sync(version=version, member_id="")
    if version >= 5:
        member.sync(version=version, protocol_type="connect")
        member.sync(version=version, protocol_name="sticky")
        member.sync(version=version, protocol_type=None)
        member.sync(version=version, protocol_name=None)
    member.assign_itself(version)
    member.sync(version=version)
    member.sync(version=version, generation_id=0)


ASSIGNMENTS: dict[str, Any] = {"none": {}, "of a stranger": {NOBODY: b"x"}, "garbage": {"": b"x"}}


@scenario_for_each(ASSIGNMENTS)
def assignments(peer: Peer, given: dict[str, bytes]) -> None:
    """Assign nothing to a member, or something to strangers, whose assignment is dropped."""
    member = GroupMember(peer, peer.group())
    member.join()
    member.sync(given)
    member.sync()
    peer.call("describe_groups", 5, groups=[member.group_id])


@scenario
def assignment_twice(peer: Peer) -> None:
    member = GroupMember(peer, peer.group())
    member.join()
    rows = [{"member_id": member.member_id, "assignment": data} for data in (b"1", b"2")]
    member.sync(assignments=rows)
    member.sync({member.member_id: assignment("t", 3)})
    peer.call("describe_groups", 5, groups=[member.group_id])


# --- heartbeats and leaving


@scenario_for_each(range(5))
def heartbeats(peer: Peer, version: int) -> None:
    member = GroupMember(peer, peer.group())
    member.join()
    member.heartbeat(version)
    member.assign_itself()
    member.heartbeat(version)
    for generation_id in (0, 2, -1):
        member.heartbeat(version, generation_id=generation_id)
    member.heartbeat(version, member_id=NOBODY)
    member.heartbeat(version, member_id="")
    member.heartbeat(version, member_id=NOBODY, generation_id=7)


@scenario_for_each(range(6))
def leaves(peer: Peer, version: int) -> None:
    member = _alone(peer)
    member.leave(version)
    member.leave(version)
    member.heartbeat()
    member.join()


def _rows(*identities: tuple[str, str | None]) -> list[Plain]:
    return [{"member_id": member, "group_instance_id": instance} for member, instance in identities]


@scenario_for_each((3, 4, 5))
def leaving_of_what(peer: Peer, version: int) -> None:
    """Send LeaveGroup for no member, for unknown members, and for one member twice."""
    member = _alone(peer)
    member.leave(version, members=[])
    member.leave(version, members=_rows((NOBODY, None), ("", None), ("", "i"), (NOBODY, "i")))
    member.leave(version, members=_rows((member.member_id, "i")))
    member.heartbeat()
    member.leave(version, members=_rows((member.member_id, None), (NOBODY, None), (member.member_id, None)))
    member.leave(version, members=[])
    GroupMember(peer, peer.group("other")).leave(version, members=[])


@scenario
def session_ends(peer: Peer) -> None:
    member = _alone(peer, session_timeout=1_000)
    await_state(peer, member.group_id, "Empty")
    member.heartbeat()
    member.join()


@scenario
def leader_never_assigns(peer: Peer) -> None:
    """Never send the leader's assignment. Its heartbeats keep the session alive until the rebalance timeout
    removes it."""
    member = GroupMember(peer, peer.group(), rebalance_timeout=500)
    member.join()
    peer.eventually("heartbeat", 4, lambda answer: bool(answer["error_code"]), **member.identity())
    peer.call("describe_groups", 5, groups=[member.group_id])


@scenario
def handed_out_id_ends(peer: Peer) -> None:
    """Ask for a member id and never join: a rebalance waits for such a member no longer than its session."""
    first = _alone(peer)
    late = GroupMember(peer, first.group_id, session_timeout=500)
    late.ask_for_id()
    first.join()
    late.join()
