"""Offset commits with an older member epoch, allowed for partitions that the member has held since that epoch
(KIP-1251).
"""

from __future__ import annotations

from tests.compat.differential.group_member import GroupMember, committed, owning
from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.scenarios.consumer_groups import Member, alone, assignable_topic, two
from tests.compat.differential.settling import await_applied
from tests.compat.differential.transactional import COMMIT, TransactionalProducer
from tests.support.wire import NO_TOPIC_ID, Plain

COMMIT_VERSIONS = range(2, 11)
FIRST_WITH_INSTANCE_ID = 7
EPOCHS = (-2, -1, 0, 1, 2, 3, 4)


def _commit(
    peer: Peer, member: Member, topic: Topic, epoch: int, *partitions: int, version: int = 9, **more: Plain
) -> None:
    peer.call("offset_commit", version, **_request(member, topic, epoch, partitions, version, **more))


def _request(
    member: Member, topic: Topic, epoch: int, partitions: tuple[int, ...], version: int, **more: Plain
) -> Plain:
    instance: Plain = {"group_instance_id": None} if version >= FIRST_WITH_INSTANCE_ID else {}
    return {
        "group_id": member.group_id,
        "generation_id_or_member_epoch": epoch,
        "member_id": member.member_id,
        "retention_time": -1,
        "topics": [committed(topic, dict.fromkeys(partitions, epoch + 10))],
        **instance,
        **more,
    }


def _fetch(peer: Peer, member: Member, topic: Topic) -> None:
    asked = {"group_id": member.group_id, "member_id": None, "member_epoch": -1}
    topics = [{"name": topic.name, "partition_indexes": [0, 1, 2, 3]}]
    peer.call("offset_fetch", 9, groups=[{**asked, "topics": topics}], require_stable=False)


def _owned(member: Member) -> tuple[int, ...]:
    return tuple(sorted(index for topic in member.owned for index in topic["partitions"]))


@scenario_for_each(COMMIT_VERSIONS)
def kept_and_given(peer: Peer, version: int) -> None:
    """Commits of a member that has held half of the partitions since epoch 2, and of another that got the
    rest at 3.
    """
    topic, first, second = two(peer)
    for epoch in EPOCHS:
        for member in (first, second):
            _commit(peer, member, topic, epoch, *_owned(first), version=version)
            _commit(peer, member, topic, epoch, *_owned(second), version=version)
            _commit(peer, member, topic, epoch, 0, 1, 2, 3, version=version)
        _fetch(peer, first, topic)


@scenario
def no_partition_and_unknown_ones(peer: Peer) -> None:
    topic, first, _ = two(peer)
    for epoch in (1, 2):
        _commit(peer, first, topic, epoch)
        _commit(peer, first, topic, epoch, 9)
        _commit(peer, first, topic, epoch, *_owned(first), 9)
        _commit(peer, first, Topic(peer.name("nowhere"), NO_TOPIC_ID), epoch, 0)
    _fetch(peer, first, topic)


@scenario
def too_large_metadata(peer: Peer) -> None:
    """An offset that is refused because its metadata is too large does not make the commit's epoch stale."""
    topic, first, second = two(peer)
    for epoch in (1, 2):
        for own, other in ((4_096, 4_097), (4_097, 4_096)):
            rows = committed(topic, {})
            rows["partitions"] = [
                {
                    "partition_index": index,
                    "committed_offset": 7,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "m" * size,
                }
                for index, size in ((_owned(first)[0], own), (_owned(second)[0], other))
            ]
            peer.call("offset_commit", 9, **{**_request(first, topic, epoch, (), 9), "topics": [rows]})
    _fetch(peer, first, topic)


@scenario
def while_it_revokes(peer: Peer) -> None:
    topic, first = alone(peer)
    all_of_it = _owned(first)
    second = Member(peer, first.group_id, first.topics, "m2")
    second.join()
    _commit(peer, first, topic, 2, *all_of_it)
    first.beat()
    for epoch in (1, 2, 3):
        _commit(peer, first, topic, epoch, *all_of_it)
    first.confirm()
    kept = _owned(first)
    for epoch in (1, 2, 3):
        _commit(peer, first, topic, epoch, *all_of_it)
        _commit(peer, first, topic, epoch, *kept)
        _commit(peer, second, topic, epoch, *all_of_it)
    _fetch(peer, first, topic)


@scenario
def assigned_again(peer: Peer) -> None:
    topic, first, second = two(peer)
    kept, given = _owned(first), _owned(second)
    second.leave()
    first.beat()
    for epoch in (2, 3, 4, 5):
        _commit(peer, first, topic, epoch, *kept)
        _commit(peer, first, topic, epoch, *given)
    _fetch(peer, first, topic)


@scenario
def joins_again(peer: Peer) -> None:
    """A member joins again without having left, and then commits with older epochs."""
    topic, first, second = two(peer)
    kept = _owned(first)
    first.join()
    second.beat()
    for epoch in EPOCHS:
        _commit(peer, first, topic, epoch, *kept)
        _commit(peer, first, topic, epoch, *_owned(first))


@scenario
def static_member_comes_back(peer: Peer) -> None:
    topic, member = alone(peer, instance_id="i")
    held = _owned(member)
    member.leave(member_epoch=-2)
    again = Member(peer, member.group_id, [topic.name], "m2", "i")
    for epoch in (-2, 0, 1, 2):
        _commit(peer, member, topic, epoch, *held)
    again.join()
    for epoch in EPOCHS:
        _commit(peer, member, topic, epoch, *held)
        _commit(peer, again, topic, epoch, *held)


@scenario
def topic_that_is_made_again(peer: Peer) -> None:
    topic, first, _ = two(peer)
    kept = _owned(first)
    peer.call("delete_topics", 6, topics=[{"name": topic.name, "topic_id": NO_TOPIC_ID}], timeout=5_000)
    await_applied(peer)
    again = assignable_topic(peer, partitions=4)
    _commit(peer, first, again, 2, *kept)
    _commit(peer, first, again, 2, *kept, version=10)
    _commit(peer, first, topic, 2, *kept, version=10)


@scenario
def classic_member_of_a_consumer_group(peer: Peer) -> None:
    """A classic member commits with older generations, which are its member epochs in a consumer group."""
    topic = assignable_topic(peer, partitions=4)
    group_id = peer.group()
    classic = GroupMember(peer, group_id, protocols={"range": owning({topic.name: []})})
    classic.join()
    classic.sync({classic.member_id: _four_of(topic)})
    member = Member(peer, group_id, [topic.name])
    member.join()
    for generation in (0, 1, 2):
        _commit_classic(peer, classic, topic, generation, 0, 1, 2, 3)
    classic.protocols = {"range": owning({topic.name: [0, 1, 2, 3]})}
    classic.join()
    classic.sync()
    classic.heartbeat()
    classic.protocols = {"range": owning({topic.name: [0, 1]})}
    classic.join()
    classic.sync()
    for generation in (0, 1, 2, 3, 4):
        _commit_classic(peer, classic, topic, generation, 0, 1)
        _commit_classic(peer, classic, topic, generation, 2, 3)
        _commit_classic(peer, classic, topic, generation, 0, 1, version=8)


def _four_of(topic: Topic) -> bytes:
    name = topic.name.encode()
    head = b"\0\1\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\0\0\0\4"
    return head + b"".join(index.to_bytes(4, "big") for index in range(4)) + b"\xff\xff\xff\xff"


def _commit_classic(
    peer: Peer, member: GroupMember, topic: Topic, generation: int, *partitions: int, version: int = 9
) -> None:
    peer.call(
        "offset_commit",
        version,
        group_id=member.group_id,
        generation_id_or_member_epoch=generation,
        member_id=member.member_id,
        group_instance_id=None,
        retention_time=-1,
        topics=[committed(topic, dict.fromkeys(partitions, generation + 10))],
    )


@scenario_for_each([3, 4, 5])
def in_a_transaction(peer: Peer, version: int) -> None:
    topic, first, second = two(peer)
    producer = TransactionalProducer(peer)
    producer.init()
    if version < 5:
        producer.add_offsets(first.group_id)
    for epoch in EPOCHS:
        for member, indexes in ((first, _owned(first)), (first, _owned(second)), (second, _owned(second))):
            offsets = dict.fromkeys(indexes, epoch + 10)
            producer.commit_offsets(
                first.group_id, topic, offsets, version, member_id=member.member_id, generation_id=epoch
            )
    producer.end(COMMIT, 5 if version == 5 else 4)
    _fetch(peer, first, topic)


@scenario
def offsets_fetched_from_an_emptied_group(peer: Peer) -> None:
    """Only a client that names no member at all may read the offsets."""
    topic, member = alone(peer, partitions=1)
    member.leave()
    rows = [{"name": topic.name, "partition_indexes": [0]}]
    for member_id, epochs in ((None, (-2, -1)), ("", EPOCHS), ("m1", EPOCHS)):
        for epoch in epochs:
            asked = {
                "group_id": member.group_id,
                "member_id": member_id,
                "member_epoch": epoch,
                "topics": rows,
            }
            peer.call("offset_fetch", 9, groups=[asked], require_stable=False)
