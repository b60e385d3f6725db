"""ShareGroupHeartbeat and ShareGroupDescribe (KIP-932): members of share groups join, change, leave, and are
refused."""

from __future__ import annotations

from tests.compat.differential.group_member import GroupMember
from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.scenarios.consumer_groups import Member, assignable_topic
from tests.compat.differential.scenarios.consumer_groups import describe as describe_consumers
from tests.compat.differential.share_member import (
    LEAVES,
    ShareMember,
    another_member,
    describe,
    member_of_its_own,
    note_sharing,
    share_group,
)
from tests.support.wire import NO_TOPIC_ID, Plain

SHARE_COORDINATOR = 2


@scenario
def life(peer: Peer) -> None:
    member = member_of_its_own(peer, partitions=3)
    describe(peer, member.group_id)
    member.beat()
    member.beat(subscribed_topic_names=[member.topics[0].name])
    describe(peer, member.group_id, operations=True)
    member.leave()
    describe(peer, member.group_id)
    member.beat()
    member.leave()
    peer.call("list_groups", 5, only_own=True)
    peer.call("delete_groups", 2, groups_names=[member.group_id])
    describe(peer, member.group_id)


@scenario
def first_heartbeats(peer: Peer) -> None:
    """Join with a topic whose share state exists, and with a topic that does not exist."""
    first = member_of_its_own(peer)
    for number, names in ((2, [first.topics[0].name]), (3, [peer.name("missing")])):
        other = ShareMember(peer, first.group_id, first.topics, number)
        other.join(subscribed_topic_names=names)
        other.beat()
    describe(peer, first.group_id)
    first.beat()
    first.beat()


@scenario_for_each({"fewer": 2, "as many": 3, "more": 5})
def members_than_partitions(peer: Peer, members: int) -> None:
    first = member_of_its_own(peer, partitions=3)
    others = [another_member(first, number) for number in range(2, members + 1)]
    note_sharing(first, *others)
    others[0].leave()
    note_sharing(first, *others[1:])
    for other in others[1:]:
        other.leave()
    note_sharing(first)


@scenario_for_each(
    {
        "no group id": {"group_id": ""},
        "blank group id": {"group_id": "  "},
        "no member id": {"member_id": ""},
        "blank member id": {"member_id": " "},
        "member id that is no UUID": {"member_id": "me"},
        "member id of 36 characters": {"member_id": "0f0e0d0c-0b0a-0908-0706-050403020100"},
        "member id of 37 characters": {"member_id": "0f0e0d0c-0b0a-0908-0706-0504030201001"},
        "no rack id": {"rack_id": ""},
        "blank rack id": {"rack_id": " "},
        "rack id": {"rack_id": "r"},
        "epoch -2": {"member_epoch": -2},
        "epoch -3": {"member_epoch": -3},
        "no subscription": {"subscribed_topic_names": None},
        "empty subscription": {"subscribed_topic_names": []},
        "topic twice": {"subscribed_topic_names": ["t", "t"]},
        "topic that is none": {"subscribed_topic_names": ["", "?"]},
    }
)
def join_with(peer: Peer, more: Plain) -> None:
    member = ShareMember(peer, share_group(peer))
    member.join(**{"subscribed_topic_names": ["t"], **more})
    describe(peer, member.group_id)


@scenario
def unknown_group(peer: Peer) -> None:
    member = ShareMember(peer, share_group(peer))
    for member_epoch in (1, LEAVES, -2):
        member.beat(member_epoch=member_epoch)
    describe(peer, member.group_id, operations=True)
    describe(peer, "")


@scenario
def unknown_member(peer: Peer) -> None:
    first = member_of_its_own(peer)
    other = ShareMember(peer, first.group_id, first.topics, 2)
    for member_epoch in (1, LEAVES, -2):
        other.beat(member_epoch=member_epoch)
    describe(peer, first.group_id)


@scenario_for_each({"-1": -1, "1": 1, "-2": -2, "5": 5})
def another_epoch(peer: Peer, step: int) -> None:
    member = member_of_its_own(peer)
    other = another_member(member)
    other.leave()
    member.beat()
    known = member.member_epoch
    member.beat(member_epoch=known + step)
    member.member_epoch = known
    member.beat(member_epoch=known + step, subscribed_topic_names=[member.topics[0].name])
    member.member_epoch = known
    member.beat()


@scenario
def lost_answer_to_a_join(peer: Peer) -> None:
    member = member_of_its_own(peer, partitions=2)
    member.join()
    member.join(rack_id="r")
    member.beat()
    describe(peer, member.group_id)


@scenario
def lost_answer_to_a_change(peer: Peer) -> None:
    member = member_of_its_own(peer)
    before = member.member_epoch
    another_member(member)
    member.beat()
    member.beat(member_epoch=before)
    member.beat(member_epoch=before, subscribed_topic_names=[member.topics[0].name])
    member.beat()


@scenario
def subscription_changes(peer: Peer) -> None:
    member = member_of_its_own(peer, partitions=2)
    other = assignable_topic(peer, "other", partitions=2)
    names = [member.topics[0].name, other.name]
    member.await_partitions(4, subscribed_topic_names=names)
    member.beat(subscribed_topic_names=names)
    member.beat(subscribed_topic_names=names[1:])
    member.beat()
    member.beat(subscribed_topic_names=[])
    member.beat()
    describe(peer, member.group_id)
    member.beat(subscribed_topic_names=names)
    member.beat(rack_id="r")
    member.beat(rack_id="s")
    describe(peer, member.group_id)


@scenario
def topic_that_does_not_exist_yet(peer: Peer) -> None:
    member = ShareMember(peer, share_group(peer))
    member.join(subscribed_topic_names=[peer.name()])
    member.beat()
    describe(peer, member.group_id)
    peer.topic(partitions=2)
    member.await_partitions(2)
    peer.note("assigned", partitions=[sorted(topic["partitions"]) for topic in member.assigned])


@scenario
def topic_that_grows(peer: Peer) -> None:
    member = member_of_its_own(peer)
    wanted = [{"name": member.topics[0].name, "count": 3, "assignments": None}]
    peer.call("create_partitions", 3, topics=wanted, timeout=5_000, validate_only=False)
    member.await_partitions(3)
    peer.note("assigned", partitions=[sorted(topic["partitions"]) for topic in member.assigned])


@scenario
def topic_that_is_deleted(peer: Peer) -> None:
    member = member_of_its_own(peer, partitions=2)
    name = member.topics[0].name
    peer.call("delete_topics", 6, topics=[{"name": name, "topic_id": NO_TOPIC_ID}], timeout=5_000)
    member.await_partitions(0)
    peer.note("assigned", partitions=member.assigned)
    describe(peer, member.group_id)


# --- groups of another type


@scenario
def heartbeat_to_another_kind_of_group(peer: Peer) -> None:
    topic = assignable_topic(peer)
    consumer = Member(peer, peer.group(), [topic.name])
    consumer.join()
    classic = GroupMember(peer, peer.group("classic"))
    classic.join()
    for group_id in (consumer.group_id, classic.group_id):
        member = ShareMember(peer, group_id, [topic])
        member.join()
        member.beat(member_epoch=1)
        member.leave()
        describe(peer, group_id)


@scenario
def other_requests_to_a_share_group(peer: Peer) -> None:
    member = member_of_its_own(peer)
    group_id, topic = member.group_id, member.topics[0]
    consumer = Member(peer, group_id, [topic.name])
    consumer.join()
    consumer.leave()
    describe_consumers(peer, group_id)
    classic = GroupMember(peer, group_id)
    classic.join()
    classic.heartbeat()
    classic.leave()
    for version in (5, 6):
        peer.call("describe_groups", version, groups=[group_id])


@scenario
def offsets_of_a_share_group(peer: Peer) -> None:
    member = member_of_its_own(peer)
    group_id, name = member.group_id, member.topics[0].name
    commit = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
    asked = {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": name, "partitions": [commit]}],
    }
    peer.call("offset_commit", 9, **asked)
    wanted = {"group_id": group_id, "topics": [{"name": name, "partition_indexes": [0]}], "member_epoch": -1}
    peer.call("offset_fetch", 9, groups=[wanted], require_stable=False)
    rows = [{"name": name, "partitions": [{"partition_index": 0}]}]
    peer.call("offset_delete", 0, group_id=group_id, topics=rows)


@scenario
def list_and_delete(peer: Peer) -> None:
    member = member_of_its_own(peer)
    asked = {"only_own": True}
    for states in ([], ["Stable"], ["Empty"], ["Dead"]):
        for types in ([], ["share"], ["SHARE"], ["consumer"]):
            peer.call("list_groups", 5, states_filter=states, types_filter=types, **asked)
    for version in range(5):
        peer.call("list_groups", version, **asked)
    peer.call("delete_groups", 2, groups_names=[member.group_id])
    member.leave()
    peer.call("list_groups", 5, states_filter=["Empty"], types_filter=["share"], **asked)
    peer.call("delete_groups", 2, groups_names=[member.group_id])
    peer.call("delete_groups", 2, groups_names=[member.group_id])
    peer.call("list_groups", 5, **asked)


@scenario_for_each(
    {
        "one": ["{group}:{topic}:0"],
        "partition that is none": ["{group}:{topic}:7"],
        "no topic id": ["{group}:t:0"],
        "no partition": ["{group}:{topic}"],
        "partition that is no number": ["{group}:{topic}:x"],
        "no group": [":{topic}:0"],
        "nothing": [""],
        "several": ["{group}:{topic}:0", "nothing", "a:b:{topic}:1"],
    }
)
def find_share_coordinator(peer: Peer, keys: list[str]) -> None:
    """Look up the coordinator of a group's partition, as brokers do. An administrator's client can ask, too."""
    member = member_of_its_own(peer)
    named = [key.format(group=member.group_id, topic=member.topics[0].topic_id) for key in keys]
    peer.call("find_coordinator", 6, key_type=SHARE_COORDINATOR, coordinator_keys=named)
