"""OffsetDelete: which committed offsets of a group can be deleted, and which requests are refused."""

from __future__ import annotations

from tests.compat.differential.group_member import GroupMember, committed, fetch_offsets, subscription
from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.wire import Plain


def _delete(peer: Peer, group_id: str, *rows: Plain) -> Plain:
    return peer.call("offset_delete", 0, group_id=group_id, topics=list(rows))


def _of(topic: Topic, *partitions: int) -> Plain:
    return {"name": topic.name, "partitions": [{"partition_index": index} for index in partitions]}


def _simple_group(peer: Peer, topic: Topic, *partitions: int) -> str:
    group_id = peer.group()
    rows = [committed(topic, dict.fromkeys(partitions, 5))]
    peer.call(
        "offset_commit",
        9,
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=rows,
    )
    return group_id


@scenario
def of_a_simple_group(peer: Peer) -> None:
    topic = peer.topic(partitions=3)
    group_id = _simple_group(peer, topic, 0, 1)
    nowhere = Topic(peer.name("nowhere"), "")
    _delete(peer, group_id, _of(topic, 0, 2, 7), _of(nowhere, 0, 1))
    fetch_offsets(peer, group_id, None)
    _delete(peer, group_id, _of(nowhere, 0))
    _delete(peer, group_id)
    _delete(peer, group_id, _of(topic), _of(nowhere))
    _delete(peer, group_id, _of(topic), _of(topic, 2), _of(nowhere, 1), _of(nowhere, 1, 2))
    _delete(peer, group_id, _of(topic, 1), _of(topic, 1, 1))
    fetch_offsets(peer, group_id, None)
    peer.call("describe_groups", 6, groups=[group_id])


@scenario
def of_unknown_groups(peer: Peer) -> None:
    topic = peer.topic()
    peer.group()
    for group_id in (peer.name("nobody"), ""):
        _delete(peer, group_id, _of(topic, 0))
        _delete(peer, group_id, _of(topic, 9))
        _delete(peer, group_id)


@scenario
def with_subscriptions(peer: Peer) -> None:
    """Delete offsets: a topic that members subscribe to is refused in every state. Without members everything
    is deleted."""
    read, other = peer.topic("read"), peer.topic("other", partitions=2)
    member = GroupMember(peer, peer.group(), protocols={"range": subscription(read.name)})
    member.join()
    _delete(peer, member.group_id, _of(read, 0), _of(other, 0))
    member.assign_itself()
    member.commit(read, topics=[committed(read, {0: 1}), committed(other, {0: 2, 1: 3})])
    _delete(peer, member.group_id, _of(read, 0, 5), _of(other, 0))
    fetch_offsets(peer, member.group_id, None)
    member.leave()
    _delete(peer, member.group_id, _of(read, 0), _of(other, 0))
    fetch_offsets(peer, member.group_id, None)


@scenario_for_each({"other type": "connect", "consumer": "consumer"})
def of_members_without_a_subscription(peer: Peer, protocol_type: str) -> None:
    """Delete offsets of members without a known subscription: another protocol type, or an empty
    subscription."""
    topic = peer.topic()
    member = GroupMember(
        peer, peer.group(), protocol_type=protocol_type, protocols={"default": subscription()}
    )
    member.join()
    member.assign_itself()
    member.commit(topic)
    _delete(peer, member.group_id, _of(topic, 0))
    _delete(peer, member.group_id, _of(topic, 8))
    fetch_offsets(peer, member.group_id, None)


@scenario
def while_a_rebalance_prepares(peer: Peer) -> None:
    """Delete offsets during a rebalance: the subscriptions of the previous generation count until the next
    begins."""
    read, wanted = peer.topic("read"), peer.topic("wanted")
    member = GroupMember(peer, peer.group(), protocols={"range": subscription(read.name)})
    member.join()
    member.assign_itself()
    member.commit(read, topics=[committed(read, {0: 1}), committed(wanted, {0: 2})])
    other = GroupMember(peer.connect(), member.group_id, protocols={"range": subscription(wanted.name)})
    pending = other.begin_join()
    member.await_rebalance()
    _delete(peer, member.group_id, _of(read, 0), _of(wanted, 0))
    fetch_offsets(peer, member.group_id, None)
    member.join()
    other.joined(pending.answer())
    _delete(peer, member.group_id, _of(read, 0), _of(wanted, 0))


@scenario
def of_a_pending_group(peer: Peer) -> None:
    topic = peer.topic()
    member = GroupMember(peer, peer.group())
    member.ask_for_id()
    _delete(peer, member.group_id, _of(topic, 0))
