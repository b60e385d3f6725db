"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.compat.differential.group_member import GroupMember
from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.scenarios.consumer_groups import assignable_topic
from tests.compat.differential.share_member import (
    ACCEPT,
    FINAL,
    PERSISTED_AFTER_MS,
    RELEASE,
    ShareMember,
    describe,
    fill,
    member_of_its_own,
    offsets_of,
    reader,
    said,
    share_group,
)
from tests.support.wire import Plain


def all_offsets(peer: Peer, *group_ids: str, version: int = 1) -> Plain:
    groups = [{"group_id": group_id, "topics": None} for group_id in group_ids]
    return peer.call("describe_share_group_offsets", version, groups=groups)


def alter(peer: Peer, group_id: str, *wanted: tuple[str, Sequence[tuple[int, int]]]) -> Plain:
    """Send AlterShareGroupOffsets with (partition, start offset) pairs by topic name."""
    topics = [
        {
            "topic_name": name,
            "partitions": [{"partition_index": index, "start_offset": offset} for index, offset in rows],
        }
        for name, rows in wanted
    ]
    return peer.call("alter_share_group_offsets", 0, group_id=group_id, topics=topics)


def alter_when_known(peer: Peer, group_id: str, name: str, index: int, offset: int) -> Plain:
    """Alter an offset of a new topic: repeat until Kafka's coordinator has learned of it in the background."""

    def is_known(answer: Plain) -> bool:
        rows = [row for topic in answer["responses"] for row in topic["partitions"]]
        return all(row["error_code"] != UNKNOWN_TOPIC_OR_PARTITION for row in rows)

    rows = [{"partition_index": index, "start_offset": offset}]
    topics = [{"topic_name": name, "partitions": rows}]
    return peer.eventually("alter_share_group_offsets", 0, is_known, group_id=group_id, topics=topics)


def forget(peer: Peer, group_id: str, *names: str) -> Plain:
    topics = [{"topic_name": name} for name in names]
    return peer.call("delete_share_group_offsets", 0, group_id=group_id, topics=topics)


MORE = 4
UNKNOWN_TOPIC_OR_PARTITION = 3


def _empty_group(peer: Peer, *sizes: int, partitions: int = 1) -> tuple[ShareMember, Topic]:
    """Return a former member of a group that has read records and is now empty, and its topic."""
    other = peer.connect()
    if partitions == 1:
        member = reader(other, *sizes)
        member.acknowledge(said(0, sizes[0] - 1, ACCEPT), share_session_epoch=FINAL)
    else:
        member = member_of_its_own(other, partitions=partitions)
    member.leave()
    other.close()  # Kafka keeps a partition's share state in memory while a connection has a share session
    member.peer = peer
    return member, member.topics[0]


# --- describe


@scenario_for_each(range(2))
def describe_as_it_goes_on(peer: Peer, version: int) -> None:
    """Describe the offsets before anything is read, in the middle, and at the end."""
    member = member_of_its_own(peer)
    offsets_of(member, version=version)
    fill(member, 3, 3)
    offsets_of(member, version=version)
    member.open(max_wait=PERSISTED_AFTER_MS)
    offsets_of(member, version=version)
    for batch in (said(1, 1, ACCEPT), said(3, 3, RELEASE), said(0, 0, ACCEPT), said(2, 2, ACCEPT)):
        member.acknowledge(batch)
        offsets_of(member, version=version)
    member.acknowledge(said(4, 5, ACCEPT))
    all_offsets(peer, member.group_id, version=version)


@scenario_for_each(range(2))
def describe_what_is_not_there(peer: Peer, version: int) -> None:
    member = reader(peer, 2)
    member.acknowledge(said(0, 0, ACCEPT))
    name = member.topics[0].name
    other = assignable_topic(peer, "other")
    for topics in (
        [{"topic_name": name, "partitions": [-1]}],
        [{"topic_name": name, "partitions": []}],
        [{"topic_name": other.name, "partitions": [0]}],
        [{"topic_name": peer.name("missing"), "partitions": [0, 1]}],
        [{"topic_name": "", "partitions": [0]}],
        [{"topic_name": name, "partitions": [0, 0]}],
        [],
    ):
        asked = [{"group_id": member.group_id, "topics": topics}]
        peer.call("describe_share_group_offsets", version, groups=asked)


@scenario_for_each(range(2))
def describe_a_partition_that_is_not_there(peer: Peer, version: int) -> None:
    """Kafka looks for its share state for half a minute."""
    member = reader(peer, 2)
    member.acknowledge(said(0, 0, ACCEPT))
    offsets_of(member, 0, 7, version=version)


@scenario_for_each(range(2))
def describe_unknown_groups(peer: Peer, version: int) -> None:
    nobody = share_group(peer)
    all_offsets(peer, nobody, version=version)
    all_offsets(peer, "", version=version)
    topics = [{"topic_name": peer.name("t"), "partitions": [0]}]
    asked = [{"group_id": nobody, "topics": topics}]
    peer.call("describe_share_group_offsets", version, groups=asked)
    peer.call("describe_share_group_offsets", version, groups=[])


@scenario
def describe_the_same_again(peer: Peer) -> None:
    """Describe a group twice in one request, and a group that does not exist."""
    member, _ = _empty_group(peer, 2)
    all_offsets(peer, member.group_id, "nobody", member.group_id, "nobody")


@scenario
def describe_a_group_of_another_kind(peer: Peer) -> None:
    classic = GroupMember(peer, peer.group())
    classic.join()
    all_offsets(peer, classic.group_id)


@scenario
def describe_a_group_without_members(peer: Peer) -> None:
    member, topic = _empty_group(peer, 2)
    offsets_of(member)
    all_offsets(peer, member.group_id)
    wanted = [{"topic_name": topic.name, "partitions": [0]}]
    both = [{"group_id": member.group_id, "topics": wanted}, {"group_id": member.group_id, "topics": None}]
    peer.call("describe_share_group_offsets", 1, groups=both[:1])


@scenario
def describe_after_records_are_deleted(peer: Peer) -> None:
    member = reader(peer, 2, 2)
    member.acknowledge(said(0, 0, ACCEPT))
    rows = [{"name": member.topics[0].name, "partitions": [{"partition_index": 0, "offset": 2}]}]
    peer.call("delete_records", 2, topics=rows, timeout=5_000)
    offsets_of(member)


# --- alter


@scenario_for_each({"the first": 0, "between": 1, "the end": 4, "behind the end": 9, "-1": -1, "-2": -2})
def alter_to(peer: Peer, offset: int) -> None:
    member, topic = _empty_group(peer, 2, 2)
    alter(peer, member.group_id, (topic.name, [(0, offset)]))
    offsets_of(member)
    member.join()
    member.open(max_wait=PERSISTED_AFTER_MS if offset < MORE else 500)


@scenario
def alter_a_group_with_members(peer: Peer) -> None:
    member = reader(peer, 2)
    alter(peer, member.group_id, (member.topics[0].name, [(0, 0)]))
    offsets_of(member)


@scenario
def alter_what_is_not_there(peer: Peer) -> None:
    member, topic = _empty_group(peer, partitions=2)
    alter(peer, member.group_id, (topic.name, [(0, 0), (7, 0)]))
    alter(peer, member.group_id, (topic.name, [(-1, 0)]))
    alter(peer, member.group_id, (topic.name, []))
    alter(peer, member.group_id, (peer.name("missing"), [(0, 0)]))
    alter(peer, member.group_id, ("", [(0, 0)]))
    alter(peer, member.group_id)
    alter(peer, member.group_id, (topic.name, [(0, 0)]), (peer.name("missing"), [(0, 0)]))
    all_offsets(peer, member.group_id)


@scenario
def alter_another_topic(peer: Peer) -> None:
    """Alter a topic that the group never read."""
    member, _ = _empty_group(peer, 2)
    other = peer.topic("other", partitions=2)
    alter_when_known(peer, member.group_id, other.name, 1, 0)
    all_offsets(peer, member.group_id)
    describe(peer, member.group_id)


@scenario
def alter_the_same_twice(peer: Peer) -> None:
    member, topic = _empty_group(peer, 2)
    alter(peer, member.group_id, (topic.name, [(0, 0), (0, 1)]))
    alter(peer, member.group_id, (topic.name, [(0, 0)]), (topic.name, [(0, 1)]))


@scenario
def alter_unknown_groups(peer: Peer) -> None:
    topic = peer.topic()
    group_id = share_group(peer)
    alter_when_known(peer, group_id, topic.name, 0, 0)
    alter(peer, "", (topic.name, [(0, 0)]))
    alter(peer, group_id)
    all_offsets(peer, group_id)
    describe(peer, group_id)


@scenario
def alter_a_group_of_another_kind(peer: Peer) -> None:
    topic = assignable_topic(peer)
    classic = GroupMember(peer, peer.group())
    classic.join()
    alter(peer, classic.group_id, (topic.name, [(0, 0)]))
    forget(peer, classic.group_id, topic.name)


# --- delete


@scenario
def delete_what_was_read(peer: Peer) -> None:
    member, topic = _empty_group(peer, 2)
    forget(peer, member.group_id, topic.name)
    offsets_of(member)
    all_offsets(peer, member.group_id)
    describe(peer, member.group_id)
    forget(peer, member.group_id, topic.name)
    member.await_partitions(1, subscribed_topic_names=[topic.name], member_epoch=0)
    describe(peer, member.group_id)
    member.open(max_wait=PERSISTED_AFTER_MS)


@scenario
def delete_what_is_not_there(peer: Peer) -> None:
    member, topic = _empty_group(peer, 2)
    other = assignable_topic(peer, "other")
    forget(peer, member.group_id, peer.name("missing"))
    forget(peer, member.group_id, other.name)
    forget(peer, member.group_id, "")
    forget(peer, member.group_id)
    forget(peer, member.group_id, topic.name, peer.name("missing"))


@scenario
def delete_of_a_group_with_members(peer: Peer) -> None:
    member = reader(peer, 2)
    forget(peer, member.group_id, member.topics[0].name)
    offsets_of(member)


@scenario
def delete_of_unknown_groups(peer: Peer) -> None:
    topic = peer.topic()
    group_id = share_group(peer)
    forget(peer, group_id, topic.name)
    forget(peer, "", topic.name)
    forget(peer, group_id)
