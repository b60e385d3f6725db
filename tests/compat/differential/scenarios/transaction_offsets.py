"""TxnOffsetCommit: offsets that count once their transaction commits, and the answers of OffsetFetch before
that."""

from __future__ import annotations

from tests.compat.differential.group_member import GroupMember, committed, fetch_offsets, fetched
from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.scenarios.consumer_groups import Member, assignable_topic
from tests.compat.differential.transactional import (
    ABORT,
    COMMIT,
    KEEPS_EPOCH,
    RAISES_EPOCH,
    TransactionalProducer,
)
from tests.support.wire import NO_TOPIC_ID, Plain

VERSIONS = range(7)
ADDS_ITSELF = 5


def _end_version(version: int) -> int:
    return RAISES_EPOCH if version >= ADDS_ITSELF else KEEPS_EPOCH


def _fetch_both(peer: Peer, group_id: str, *topics: Plain) -> None:
    for require_stable in (False, True):
        fetch_offsets(peer, group_id, list(topics), require_stable=require_stable)
        fetch_offsets(peer, group_id, None, require_stable=require_stable)


def _begun(peer: Peer, group_id: str, version: int) -> TransactionalProducer:
    producer = TransactionalProducer(peer)
    producer.init()
    if version < ADDS_ITSELF:
        producer.add_offsets(group_id)
    return producer


@scenario_for_each(VERSIONS)
def ends(peer: Peer, version: int) -> None:
    """Commit offsets in transactions that commit and that abort. The last offset of a transaction counts."""
    topic = peer.topic(partitions=3)
    group_id = peer.group()
    producer = _begun(peer, group_id, version)
    for base, commit in ((10, ABORT), (20, COMMIT), (30, ABORT), (40, COMMIT)):
        if version < ADDS_ITSELF and base > 10:
            producer.add_offsets(group_id)
        producer.commit_offsets(group_id, topic, {0: base, 1: base}, version)
        producer.commit_offsets(group_id, topic, {0: base + 1}, version)
        _fetch_both(peer, group_id, fetched(topic, 0, 1, 2))
        producer.end(commit, _end_version(version))
        _fetch_both(peer, group_id, fetched(topic, 0, 1, 2))
    peer.call("describe_groups", 6, groups=[group_id])


@scenario_for_each(VERSIONS)
def not_added(peer: Peer, version: int) -> None:
    """Commit offsets without AddOffsetsToTxn: from v5 on the request adds the group's partition, before v5 it
    is refused."""
    topic = peer.topic()
    group_id = peer.group()
    producer = TransactionalProducer(peer)
    producer.commit_offsets(group_id, topic, {0: 5}, version)
    producer.init()
    producer.commit_offsets(group_id, topic, {0: 5}, version)
    producer.describe()
    _fetch_both(peer, group_id, fetched(topic, 0))
    producer.end(COMMIT, _end_version(version))
    _fetch_both(peer, group_id, fetched(topic, 0))


@scenario_for_each(VERSIONS)
def by_strangers(peer: Peer, version: int) -> None:
    """Commit with wrong ids and epochs, another transactional id, and an empty group id."""
    topic = peer.topic()
    group_id = peer.group()
    zombie = TransactionalProducer(peer)
    zombie.init()
    producer = zombie.heir()
    producer.init()
    producer.add_offsets(group_id)
    zombie.commit_offsets(group_id, topic, {0: 5}, version)
    strangers: list[Plain] = [
        {"producer_epoch": 2},
        {"producer_epoch": -1},
        {"producer_id": 2**60},
        {"transactional_id": peer.name("nobody")},
        {"transactional_id": ""},
    ]
    for stranger in strangers:
        producer.commit_offsets(group_id, topic, {0: 5}, version, **stranger)
    producer.commit_offsets("", topic, {0: 5}, version)
    _fetch_both(peer, group_id, fetched(topic, 0))
    producer.end(COMMIT, _end_version(version))


@scenario_for_each(VERSIONS)
def unknown_topics(peer: Peer, version: int) -> None:
    """Commit offsets of unknown topics: each gets its own error, and the known ones are committed."""
    topic = peer.topic()
    group_id = peer.group()
    producer = _begun(peer, group_id, version)
    nowhere = Topic(peer.name("nowhere"), NO_TOPIC_ID)
    producer.commit_offsets(group_id, nowhere, {0: 5}, version)
    producer.describe()
    producer.commit_offsets(group_id, topic, {1: 5, -1: 5}, version)
    rows = [committed(nowhere, {0: 5}), committed(topic, {0: 5, 1: 5})]
    producer.commit_offsets(group_id, topic, {}, version, topics=rows)
    producer.commit_offsets(group_id, topic, {}, version)
    producer.commit_offsets(group_id, topic, {}, version, topics=[])
    producer.commit_offsets(group_id, Topic("__consumer_offsets", NO_TOPIC_ID), {0: 1}, version)
    producer.end(COMMIT, _end_version(version))
    _fetch_both(peer, group_id, fetched(topic, 0))


@scenario_for_each(VERSIONS)
def metadata(peer: Peer, version: int) -> None:
    """Commit metadata of up to 4096 bytes. An offset with larger metadata is not committed."""
    topic = peer.topic(partitions=4)
    group_id = peer.group()
    producer = _begun(peer, group_id, version)
    for index, text in enumerate(("x" * 4096, "x" * 4097, "ü" * 2049, None)):
        row = committed(topic, {index: 1}, committed_metadata=text)
        producer.commit_offsets(group_id, topic, {}, version, topics=[row])
    rows = [
        {**committed(topic, {index: 2}, committed_metadata=text)["partitions"][0]}
        for index, text in ((0, "x" * 5000), (1, "fine"))
    ]
    producer.commit_offsets(
        group_id, topic, {}, version, topics=[{**committed(topic, {}), "partitions": rows}]
    )
    producer.end(COMMIT, _end_version(version))
    _fetch_both(peer, group_id, fetched(topic, 0, 1, 2, 3))


@scenario_for_each(VERSIONS)
def offsets_and_leader_epochs(peer: Peer, version: int) -> None:
    topic = peer.topic(partitions=3)
    group_id = peer.group()
    producer = _begun(peer, group_id, version)
    for index, (offset, leader_epoch) in enumerate(((-1, 0), (2**63 - 1, 5), (0, -1))):
        row = committed(topic, {index: offset}, committed_leader_epoch=leader_epoch)
        producer.commit_offsets(group_id, topic, {}, version, topics=[row])
    producer.end(COMMIT, _end_version(version))
    _fetch_both(peer, group_id, fetched(topic, 0, 1, 2))


@scenario_for_each(VERSIONS)
def of_a_member(peer: Peer, version: int) -> None:
    """Commit with right and wrong generations, member ids and instance ids (from v3 on)."""
    topic = peer.topic()
    member = GroupMember(peer, peer.group(), "i")
    member.join()
    member.assign_itself()
    producer = _begun(peer, member.group_id, version)
    mine: Plain = {
        "generation_id": member.generation_id,
        "member_id": member.member_id,
        "group_instance_id": "i",
    }
    changes: list[Plain] = [
        {},
        {"generation_id": 0},
        {"generation_id": 2},
        {"generation_id": -1},
        {"member_id": "stranger"},
        {"member_id": ""},
        {"group_instance_id": "j"},
        {"group_instance_id": None},
        {"generation_id": -1, "member_id": "", "group_instance_id": None},
    ]
    for change in changes:
        producer.commit_offsets(member.group_id, topic, {0: 7}, version, **{**mine, **change})
    producer.end(COMMIT, _end_version(version))
    _fetch_both(peer, member.group_id, fetched(topic, 0))


@scenario_for_each((3, 4, 5))
def of_a_member_of_no_group(peer: Peer, version: int) -> None:
    topic = peer.topic()
    group_id = peer.group()
    producer = _begun(peer, group_id, version)
    for generation_id, member_id in ((1, "m"), (0, ""), (-1, "m"), (5, "")):
        producer.commit_offsets(
            group_id, topic, {0: 7}, version, generation_id=generation_id, member_id=member_id
        )
    producer.end(COMMIT, _end_version(version))
    _fetch_both(peer, group_id, fetched(topic, 0))


@scenario_for_each((3, 4, 5))
def of_a_member_by_heartbeat(peer: Peer, version: int) -> None:
    """Commit as a member of a consumer group (KIP-848): its member epoch takes the place of the generation."""
    topic = assignable_topic(peer)
    member = Member(peer, peer.group(), [topic.name])
    member.join()
    member.confirm()
    producer = _begun(peer, member.group_id, version)
    epoch = member.member_epoch
    for generation_id, member_id in (
        (epoch, "m1"),
        (epoch - 1, "m1"),
        (epoch + 1, "m1"),
        (-1, "m1"),
        (epoch, "m2"),
        (epoch, ""),
        (-1, ""),
    ):
        producer.commit_offsets(
            member.group_id, topic, {0: 7}, version, generation_id=generation_id, member_id=member_id
        )
    _fetch_both(peer, member.group_id, fetched(topic, 0))
    producer.end(COMMIT, _end_version(version))
    _fetch_both(peer, member.group_id, fetched(topic, 0))


@scenario_for_each(VERSIONS)
def of_the_same_partition_twice(peer: Peer, version: int) -> None:
    topic = peer.topic()
    group_id = peer.group()
    producer = _begun(peer, group_id, version)
    rows = [committed(topic, {0: 1}), committed(topic, {0: 2})]
    producer.commit_offsets(group_id, topic, {}, version, topics=rows)
    producer.end(COMMIT, _end_version(version))
    _fetch_both(peer, group_id, fetched(topic, 0))


@scenario
def of_several_groups(peer: Peer) -> None:
    """Commit offsets of two groups in one transaction, and of the second group in another one."""
    topic = peer.topic(partitions=2)
    first, second = peer.group("first"), peer.group("second")
    one, two = TransactionalProducer(peer, "one"), TransactionalProducer(peer, "two")
    one.init()
    two.init()
    one.commit_offsets(first, topic, {0: 1})
    one.commit_offsets(second, topic, {0: 2})
    two.commit_offsets(second, topic, {1: 3})
    one.produce(topic)
    one.describe()
    one.end(COMMIT)
    for group_id in (first, second):
        _fetch_both(peer, group_id, fetched(topic, 0, 1))
    two.end(ABORT)
    _fetch_both(peer, second, fetched(topic, 0, 1))


@scenario_for_each(VERSIONS)
def beside_plain_commits(peer: Peer, version: int) -> None:
    """Mix plain and transactional commits: a plain commit counts at once, and log order decides which is
    newer."""
    topic = peer.topic(partitions=2)
    group_id = peer.group()
    producer = _begun(peer, group_id, version)
    plain = {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
    }
    peer.call("offset_commit", 9, **plain, topics=[committed(topic, {0: 1, 1: 1})])
    producer.commit_offsets(group_id, topic, {0: 2, 1: 2}, version)
    _fetch_both(peer, group_id, fetched(topic, 0, 1))
    peer.call("offset_commit", 9, **plain, topics=[committed(topic, {0: 3})])
    _fetch_both(peer, group_id, fetched(topic, 0, 1))
    producer.end(COMMIT, _end_version(version))
    _fetch_both(peer, group_id, fetched(topic, 0, 1))


@scenario_for_each({"commit": COMMIT, "abort": ABORT})
def two_producers_of_one_group(peer: Peer, commit: bool) -> None:
    topic = peer.topic()
    group_id = peer.group()
    one, two = TransactionalProducer(peer, "one"), TransactionalProducer(peer, "two")
    for offset, producer in enumerate((one, two), 1):
        producer.init()
        producer.commit_offsets(group_id, topic, {0: offset})
    _fetch_both(peer, group_id, fetched(topic, 0))
    two.end(commit)
    _fetch_both(peer, group_id, fetched(topic, 0))
    one.end(COMMIT)
    _fetch_both(peer, group_id, fetched(topic, 0))


@scenario
def zombie_of_a_transaction(peer: Peer) -> None:
    """Fence a producer with pending offsets: the offsets are dropped, and its late commits are refused."""
    topic = peer.topic()
    group_id = peer.group()
    zombie = TransactionalProducer(peer)
    zombie.init()
    zombie.commit_offsets(group_id, topic, {0: 5})
    heir = zombie.heir()
    heir.init()
    _fetch_both(peer, group_id, fetched(topic, 0))
    for version in VERSIONS:
        zombie.commit_offsets(group_id, topic, {0: 6}, version)
    heir.commit_offsets(group_id, topic, {0: 7})
    heir.end(COMMIT)
    _fetch_both(peer, group_id, fetched(topic, 0))


@scenario_for_each((7, 8, 9, 10))
def require_stable(peer: Peer, version: int) -> None:
    """Fetch with require_stable: partitions with pending offsets answer UNSTABLE_OFFSET_COMMIT."""
    topic, other = peer.topic(partitions=2), peer.topic("other")
    group_id = peer.group()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.commit_offsets(group_id, topic, {0: 5})
    asked = [fetched(topic, 0, 1), fetched(other, 0)]
    for stable in (False, True):
        fetch_offsets(peer, group_id, asked, version, require_stable=stable)
        fetch_offsets(peer, group_id, None, version, require_stable=stable)
    producer.end(COMMIT)
    for stable in (False, True):
        fetch_offsets(peer, group_id, asked, version, require_stable=stable)
        fetch_offsets(peer, group_id, None, version, require_stable=stable)


@scenario
def group_with_pending_offsets_is_deleted(peer: Peer) -> None:
    """Delete a group while offsets are pending: it can be deleted, and the commit afterwards stores the
    offsets."""
    topic = peer.topic()
    group_id = peer.group()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.commit_offsets(group_id, topic, {0: 5})
    peer.call("list_groups", 5, only_own=True)
    peer.call("describe_groups", 6, groups=[group_id])
    deleted = {"name": topic.name, "partitions": [{"partition_index": 0}]}
    peer.call("offset_delete", 0, group_id=group_id, topics=[deleted])
    peer.call("delete_groups", 2, groups_names=[group_id])
    _fetch_both(peer, group_id, fetched(topic, 0))
    producer.end(COMMIT)
    _fetch_both(peer, group_id, fetched(topic, 0))


@scenario
def topic_with_pending_offsets_is_deleted(peer: Peer) -> None:
    topic, kept = peer.topic(), peer.topic("kept")
    group_id = peer.group()
    producer = TransactionalProducer(peer)
    producer.init()
    rows = [committed(topic, {0: 5}), committed(kept, {0: 6})]
    producer.commit_offsets(group_id, topic, {}, topics=rows)
    peer.call("delete_topics", 4, topic_names=[topic.name], timeout=5_000)
    asked: Plain = {"topics": [{"name": topic.name}], "allow_auto_topic_creation": False}
    peer.eventually("metadata", 12, lambda answer: answer["topics"][0]["error_code"] == 3, **asked)
    producer.end(COMMIT)
    fetch_offsets(peer, group_id, [fetched(kept, 0)])
