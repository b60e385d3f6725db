"""Offset commits and fetches of streams groups, and requests for one kind of group that name a group of
another kind.
"""

from __future__ import annotations

from tests.compat.differential.group_member import GroupMember, committed, fetch_offsets, fetched, owning
from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.scenarios.consumer_groups import Member, assignable_topic
from tests.compat.differential.scenarios.consumer_groups import describe as describe_consumers
from tests.compat.differential.share_member import ShareMember, share_group
from tests.compat.differential.streams_member import (
    StreamsMember,
    alone,
    describe,
    subtopology,
    topology,
    two,
)
from tests.compat.differential.transactional import COMMIT, TransactionalProducer
from tests.support.wire import Plain

GROUP_RESOURCE = 32
OF_THE_GROUP = 8
"""The source of a config that was set for the group, and not for the broker, whose value may be the same."""


def commit(member: StreamsMember, topic: Topic, *partitions: int, version: int = 9, **more: object) -> Plain:
    """Commit offset 5 of partitions, by default of partition 0."""
    request = {
        "group_id": member.group_id,
        "generation_id_or_member_epoch": member.member_epoch,
        "member_id": member.member_id,
        "group_instance_id": None,
        "retention_time": -1,
        "topics": [committed(topic, dict.fromkeys(partitions or (0,), 5))],
    }
    return member.peer.call("offset_commit", version, **{**request, **more})


@scenario_for_each((2, 8, 9, 10))
def commits(peer: Peer, version: int) -> None:
    topic, member = alone(peer, partitions=2)
    commit(member, topic, version=version)
    for epoch in (member.member_epoch - 1, member.member_epoch + 1, -1, 0):
        commit(member, topic, version=version, generation_id_or_member_epoch=epoch)
    commit(member, topic, version=version, member_id="nobody")
    commit(member, topic, version=version, member_id="", generation_id_or_member_epoch=-1)
    commit(member, topic, version=version, group_instance_id="i")
    fetch_offsets(peer, member.group_id, [fetched(topic, 0, 1)])


@scenario
def commit_with_an_older_epoch(peer: Peer) -> None:
    """A member commits with the epoch before a rebalance: for a task that it keeps, a task that it lost, and
    a task of another member.
    """
    topic, first = alone(peer)
    before = first.member_epoch
    second = StreamsMember(peer, first.group_id, first.topology, "m2", "p2")
    second.join()
    commit(first, topic, 0, 1, 2, 3)
    first.beat()
    commit(first, topic, 0, 1, 2, 3)
    first.confirm()
    commit(first, topic, 0, 1, 2, 3, generation_id_or_member_epoch=before)
    commit(first, topic, 0, 1, 2, 3)
    second.beat()
    commit(second, topic, 0, 1, 2, 3)
    commit(second, topic, 0, 1, 2, 3, generation_id_or_member_epoch=before)
    second.confirm()
    commit(second, topic, 2, 3, generation_id_or_member_epoch=before)
    fetch_offsets(peer, first.group_id, [fetched(topic, 0, 1, 2, 3)])


@scenario
def commit_of_a_group_without_members(peer: Peer) -> None:
    topic, member = alone(peer, partitions=1)
    member.leave()
    commit(member, topic)
    commit(member, topic, member_id="", generation_id_or_member_epoch=-1)
    fetch_offsets(peer, member.group_id, None)
    describe(peer, member.group_id)


@scenario
def transactional_commit(peer: Peer) -> None:
    topic, member = alone(peer, partitions=1)
    producer = TransactionalProducer(peer)
    producer.init()
    for epoch in (member.member_epoch, member.member_epoch - 1, member.member_epoch + 1, -1):
        for member_id in ("m1", "nobody", ""):
            named = {"generation_id": epoch, "member_id": member_id}
            producer.commit_offsets(member.group_id, topic, {0: 7}, **named)
    producer.end(COMMIT)
    fetch_offsets(peer, member.group_id, None)


@scenario
def fetch(peer: Peer) -> None:
    """Fetch offsets as members do, with right and wrong names and epochs."""
    topic, member = alone(peer, partitions=1)
    commit(member, topic)
    for member_id, epoch in (
        (None, -1),
        ("m1", member.member_epoch),
        ("m1", member.member_epoch - 1),
        ("m1", member.member_epoch + 1),
        ("nobody", member.member_epoch),
        ("", -1),
    ):
        named = {"group_id": member.group_id, "member_id": member_id, "member_epoch": epoch}
        peer.call("offset_fetch", 9, groups=[{**named, "topics": [fetched(topic, 0)]}])
    peer.call("offset_fetch", 5, group_id=member.group_id, topics=[fetched(topic, 0)])


@scenario
def delete_offsets(peer: Peer) -> None:
    topic, member = alone(peer, partitions=2)
    other = assignable_topic(peer, "other")
    commit(member, topic, 0, 1)
    commit(member, other)
    for _ in range(2):
        for name in (topic.name, other.name):
            rows = [{"name": name, "partitions": [{"partition_index": 0}]}]
            peer.call("offset_delete", 0, group_id=member.group_id, topics=rows)
        fetch_offsets(peer, member.group_id, None)
        member.leave()


@scenario
def list_and_delete(peer: Peer) -> None:
    _, member = alone(peer)
    for states in ([], ["Stable"], ["Empty"], ["NotReady"], ["not_ready"], ["Reconciling"]):
        for types in ([], ["streams"], ["STREAMS"], ["consumer"]):
            peer.call("list_groups", 5, states_filter=states, types_filter=types, only_own=True)
    for version in range(5):
        peer.call("list_groups", version, only_own=True)
    peer.call("delete_groups", 2, groups_names=[member.group_id])
    member.leave()
    peer.call("list_groups", 5, states_filter=["Empty"], types_filter=["streams"], only_own=True)
    peer.call("delete_groups", 2, groups_names=[member.group_id, member.group_id])
    peer.call("delete_groups", 2, groups_names=[member.group_id])
    peer.call("list_groups", 5, only_own=True)


# --- groups of another kind


@scenario
def other_requests_to_a_streams_group(peer: Peer) -> None:
    topic, member = alone(peer)
    group_id = member.group_id
    consumer = Member(peer, group_id, [topic.name], "c1")
    consumer.join()
    consumer.beat(member_epoch=1)
    consumer.leave()
    describe_consumers(peer, group_id)
    classic = GroupMember(peer, group_id, protocols={"range": owning({topic.name: []})})
    classic.join()
    classic.member_id, classic.generation_id = "given", 1
    classic.join()
    classic.sync()
    classic.heartbeat()
    classic.leave()
    sharing = ShareMember(peer, group_id, [topic])
    sharing.join()
    sharing.leave()
    peer.call("share_group_describe", 1, group_ids=[group_id])
    for version in (5, 6):
        peer.call("describe_groups", version, groups=[group_id])


@scenario
def other_requests_to_an_empty_streams_group(peer: Peer) -> None:
    """A group without members changes its kind with the first member of another protocol."""
    topic, member = alone(peer, partitions=1)
    commit(member, topic)
    member.leave()
    group_id = member.group_id
    classic = GroupMember(peer, group_id, protocols={"range": owning({topic.name: []})})
    classic.join()
    describe(peer, group_id)
    peer.call("list_groups", 5, only_own=True)
    fetch_offsets(peer, group_id, None)


@scenario
def a_consumer_takes_over_an_empty_streams_group(peer: Peer) -> None:
    topic, member = alone(peer, partitions=1)
    member.leave()
    consumer = Member(peer, member.group_id, [topic.name], "c1")
    consumer.join()
    describe(peer, member.group_id)
    describe_consumers(peer, member.group_id)


@scenario
def heartbeat_to_another_kind_of_group(peer: Peer) -> None:
    topic = assignable_topic(peer)
    consumer = Member(peer, peer.group(), [topic.name])
    consumer.join()
    classic = GroupMember(peer, peer.group("classic"))
    classic.join()
    sharing = ShareMember(peer, share_group(peer, "share"), [topic])
    sharing.await_partitions(1, subscribed_topic_names=[topic.name])
    for group_id in (consumer.group_id, classic.group_id, sharing.group_id):
        member = StreamsMember(peer, group_id, topology(subtopology("0", topic.name)))
        member.join()
        member.beat(member_epoch=1)
        member.leave()
        describe(peer, group_id)


@scenario_for_each({"classic": False, "consumer": True})
def joins_an_empty_group_of_another_kind(peer: Peer, is_consumer: bool) -> None:
    topic = assignable_topic(peer)
    group_id = peer.group()
    if is_consumer:
        consumer = Member(peer, group_id, [topic.name])
        consumer.join()
        consumer.leave()
    else:
        classic = GroupMember(peer, group_id)
        classic.join()
        classic.assign_itself()
        classic.leave()
    member = StreamsMember(peer, group_id, topology(subtopology("0", topic.name)))
    member.join()
    describe(peer, group_id)
    peer.call("list_groups", 5, only_own=True)


@scenario
def joins_a_group_that_has_offsets_only(peer: Peer) -> None:
    topic = assignable_topic(peer)
    member = StreamsMember(peer, peer.group(), topology(subtopology("0", topic.name)))
    commit(member, topic, member_id="", generation_id_or_member_epoch=-1)
    member.join()
    member.confirm()
    fetch_offsets(peer, member.group_id, None)
    describe(peer, member.group_id)


# --- configs


@scenario_for_each(
    {
        "session timeout": ("streams.session.timeout.ms", ("50000", "1", "x", "")),
        "heartbeat interval": ("streams.heartbeat.interval.ms", ("6000", "1", "-1")),
        "standby replicas": ("streams.num.standby.replicas", ("1", "2", "3", "-1")),
        "initial delay": ("streams.initial.rebalance.delay.ms", ("0", "5", "-1")),
        "assignment interval": ("streams.assignment.interval.ms", ("0", "5", "-1")),
        "none": ("streams.no.such.config", ("1",)),
    }
)
def configs(peer: Peer, case: tuple[str, tuple[str, ...]]) -> None:
    """Set values, and wait until the accepted one is in effect: Kafka's broker learns of it in the
    background.
    """
    name, values = case
    group_id = peer.group()
    named = {"resource_type": GROUP_RESOURCE, "resource_name": group_id}
    accepted: list[str] = []

    def shows(answer: Plain) -> bool:
        rows = answer["results"][0]["configs"]
        set_here = [row["value"] for row in rows if row["config_source"] == OF_THE_GROUP]
        return not accepted or set_here == accepted[-1:]

    for value in values:
        change = {"name": name, "config_operation": 0, "value": value}
        resources = [{**named, "configs": [change]}]
        altered = peer.call("incremental_alter_configs", 1, resources=resources, validate_only=False)
        if altered["responses"][0]["error_code"] == 0:
            accepted.append(value)
        asked = [{**named, "configuration_keys": [name]}]
        peer.eventually("describe_configs", 4, shows, resources=asked, include_synonyms=True)


@scenario
def a_member_learns_the_heartbeat_interval_of_its_group(peer: Peer) -> None:
    _, member, _ = two(peer, partitions=2)
    change = {"name": "streams.heartbeat.interval.ms", "config_operation": 0, "value": "7000"}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": member.group_id, "configs": [change]}
    peer.wire.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    peer.eventually(
        "streams_group_heartbeat", 0, lambda answer: answer["heartbeat_interval"] == 7000, **member.request()
    )
