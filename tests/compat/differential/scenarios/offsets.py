"""OffsetCommit and OffsetFetch: who may commit, what is stored, and which requests are refused."""

from __future__ import annotations

from typing import Any

from tests.compat.differential.group_member import GroupMember, committed, fetch_offsets, fetched
from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.wire import NO_TOPIC_ID, Plain

OTHER_ID = "00000000-0000-0000-0000-00000000beef"
COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)
BY_ID = 10


def _commit(peer: Peer, group_id: str, topics: list[Plain], version: int = 9, **more: Any) -> Plain:
    """Commit as a consumer that belongs to no generation."""
    request = {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": -1,
        "topics": topics,
    }
    return peer.call("offset_commit", version, **{**request, **more})


def _nowhere(peer: Peer) -> Topic:
    return Topic(peer.name("nowhere"), OTHER_ID)


# --- OffsetCommit


@scenario_for_each(COMMIT_VERSIONS)
def commit(peer: Peer, version: int) -> None:
    """Commit as a consumer that assigns its partitions itself: the group exists without members."""
    one, two = peer.topic("one", partitions=3), peer.topic("two")
    group_id = peer.group()
    _commit(peer, group_id, [committed(one, {0: 5, 2: 0}), committed(two, {0: 2**63 - 1})], version)
    _commit(peer, group_id, [committed(one, {0: 3})], version)
    fetch_offsets(peer, group_id, [fetched(one, 0, 1, 2), fetched(two, 0)])
    peer.call("describe_groups", 5, groups=[group_id])
    peer.call("list_groups", 5, only_own=True)


@scenario_for_each(COMMIT_VERSIONS)
def commit_to_unknown(peer: Peer, version: int) -> None:
    """Commit to topics and partitions that do not exist, alone and together with one that exists."""
    topic = peer.topic()
    group_id = peer.group()
    _commit(peer, group_id, [committed(topic, {1: 5, -1: 5})], version)
    _commit(peer, group_id, [committed(_nowhere(peer), {0: 5})], version)
    _commit(peer, group_id, [committed(Topic("", NO_TOPIC_ID), {0: 5})], version)
    peer.call("describe_groups", 6, groups=[group_id])
    rows = [committed(_nowhere(peer), {0: 1, 1: 2}), committed(topic, {0: 7, 1: 8})]
    _commit(peer, group_id, rows, version)
    fetch_offsets(peer, group_id, None)


@scenario_for_each(COMMIT_VERSIONS)
def commit_of_a_member(peer: Peer, version: int) -> None:
    """Commit with right and wrong generations, member ids and instance ids. Unknown topics keep their own
    error."""
    topic = peer.topic()
    member = GroupMember(peer, peer.group())
    member.commit(topic, version=version, generation_id_or_member_epoch=1)
    member.commit(topic, version=version, generation_id_or_member_epoch=0, member_id="stranger")
    member.join()
    member.commit(topic, version=version)
    member.assign_itself()
    member.commit(topic, version=version)
    for generation_id in (0, 2, -1, -2):
        member.commit(topic, version=version, generation_id_or_member_epoch=generation_id)
    for member_id, generation_id in (("stranger", 1), ("", 1), ("", -1), ("stranger", -1)):
        member.commit(
            topic, version=version, member_id=member_id, generation_id_or_member_epoch=generation_id
        )
    rows = [committed(topic, {0: 9, 5: 9}), committed(_nowhere(peer), {0: 9})]
    member.commit(topic, version=version, generation_id_or_member_epoch=7, topics=rows)
    member.commit(topic, version=version, group_instance_id="i")
    member.leave()
    member.commit(topic, version=version)
    _commit(peer, member.group_id, [committed(topic, {0: 11})], version)
    fetch_offsets(peer, member.group_id, [fetched(topic, 0)])


@scenario_for_each(range(7, 11))
def commit_of_a_static_member(peer: Peer, version: int) -> None:
    topic = peer.topic()
    member = GroupMember(peer, peer.group(), "i")
    member.join()
    member.assign_itself()
    member.commit(topic, version=version)
    member.commit(topic, version=version, member_id="stranger")
    member.commit(topic, version=version, member_id="", generation_id_or_member_epoch=-1)
    member.commit(topic, version=version, generation_id_or_member_epoch=-1)
    member.commit(topic, version=version, group_instance_id="j")
    member.commit(topic, version=version, group_instance_id=None)


@scenario_for_each(COMMIT_VERSIONS)
def commit_metadata(peer: Peer, version: int) -> None:
    """Commit metadata of up to 4096 bytes. Metadata that is too large does not prevent the other commits."""
    topic = peer.topic(partitions=4)
    group_id = peer.group()
    for index, metadata in enumerate(("x" * 4096, "x" * 4097, "ü" * 2049, None)):
        _commit(peer, group_id, [committed(topic, {index: 1}, committed_metadata=metadata)], version)
    rows = [
        {**committed(topic, {index: 2}, committed_metadata=metadata)["partitions"][0]}
        for index, metadata in ((0, "x" * 5000), (1, "fine"))
    ]
    _commit(peer, group_id, [{**committed(topic, {}), "partitions": rows}], version)
    too_large = committed(topic, {0: 3}, committed_metadata="x" * 5000)
    _commit(peer, group_id, [too_large], version, generation_id_or_member_epoch=3)
    fetch_offsets(peer, group_id, [fetched(topic, 0, 1, 2, 3)])


@scenario_for_each({str(offset): offset for offset in (-1, -2, -(2**63), 2**63 - 1)})
def committed_offsets(peer: Peer, offset: int) -> None:
    topic = peer.topic()
    group_id = peer.group()
    for version in (2, 9):
        _commit(peer, group_id, [committed(topic, {0: offset})], version)
        fetch_offsets(peer, group_id, [fetched(topic, 0)])
        fetch_offsets(peer, group_id, None, 2)


@scenario_for_each({str(leader_epoch): leader_epoch for leader_epoch in (-2, -1, 0, 5, 2**31 - 1)})
def leader_epochs(peer: Peer, leader_epoch: int) -> None:
    topic = peer.topic()
    group_id = peer.group()
    _commit(peer, group_id, [committed(topic, {0: 5}, committed_leader_epoch=leader_epoch)])
    for version in (4, 5, 9):
        fetch_offsets(peer, group_id, [fetched(topic, 0)], version)


@scenario_for_each((2, 3, 4))
def retention_times(peer: Peer, version: int) -> None:
    topic = peer.topic()
    group_id = peer.group()
    for retention_time in (-1, 0, 1, 3_600_000, -2, 2**40):
        _commit(peer, group_id, [committed(topic, {0: 5})], version, retention_time=retention_time)
        fetch_offsets(peer, group_id, [fetched(topic, 0)])


@scenario_for_each(COMMIT_VERSIONS)
def commit_nothing(peer: Peer, version: int) -> None:
    topic = peer.topic()
    group_id = peer.group()
    _commit(peer, group_id, [], version)
    _commit(peer, group_id, [committed(topic, {})], version)
    _commit(peer, group_id, [committed(_nowhere(peer), {}), committed(topic, {})], version)
    _commit(peer, group_id, [], version, generation_id_or_member_epoch=3)
    peer.call("describe_groups", 6, groups=[group_id])


@scenario_for_each(COMMIT_VERSIONS)
def same_partition_twice(peer: Peer, version: int) -> None:
    topic = peer.topic()
    group_id = peer.group()
    row = committed(topic, {0: 1})
    _commit(peer, group_id, [row, committed(topic, {0: 2})], version)
    fetch_offsets(peer, group_id, [fetched(topic, 0)])
    twice = [*row["partitions"], *committed(topic, {0: 3})["partitions"]]
    _commit(peer, group_id, [{**row, "partitions": twice}], version)
    fetch_offsets(peer, group_id, [fetched(topic, 0)])
    nowhere = _nowhere(peer)
    _commit(peer, group_id, [committed(nowhere, {0: 1}), committed(nowhere, {1: 1})], version)


@scenario_for_each(COMMIT_VERSIONS)
def empty_group_id(peer: Peer, version: int) -> None:
    topic = peer.topic()
    peer.group()
    _commit(peer, "", [committed(topic, {0: 5})], version)
    _commit(peer, "", [committed(topic, {0: 5})], version, generation_id_or_member_epoch=1)
    fetch_offsets(peer, "", [fetched(topic, 0)], version)
    peer.call("describe_groups", min(version, 6), groups=[""])
    for _ in range(2):
        peer.call("delete_groups", 2, groups_names=[""])


@scenario
def commit_to_a_topic_of_the_broker(peer: Peer) -> None:
    group_id = peer.group()
    offsets_topic = Topic("__consumer_offsets", NO_TOPIC_ID)
    _commit(peer, group_id, [committed(offsets_topic, {0: 5})])
    fetch_offsets(peer, group_id, [fetched(offsets_topic, 0)])


# --- OffsetFetch


def _with_offsets(peer: Peer) -> tuple[Topic, Topic, str]:
    one, two = peer.topic("one", partitions=3), peer.topic("two")
    group_id = peer.group()
    rows = [committed(one, {0: 5, 2: 7}, committed_metadata="m"), committed(two, {0: 9})]
    _commit(peer, group_id, rows)
    return one, two, group_id


@scenario_for_each(FETCH_VERSIONS)
def fetch(peer: Peer, version: int) -> None:
    """Fetch offsets that are committed, that are not, and of partitions that do not exist."""
    one, two, group_id = _with_offsets(peer)
    nowhere = _nowhere(peer)
    fetch_offsets(peer, group_id, [fetched(one, 2, 0, 1), fetched(two, 0, 5, -1)], version)
    fetch_offsets(peer, group_id, [fetched(nowhere, 0, 1), fetched(one, 0)], version)
    fetch_offsets(peer, group_id, [fetched(one)], version)
    fetch_offsets(peer, group_id, [fetched(one, 0), fetched(one, 0), fetched(one, 2, 2)], version)
    fetch_offsets(peer, group_id, [fetched(Topic("", NO_TOPIC_ID), 0)], version)
    fetch_offsets(peer, group_id, [], version)
    if version >= 2:
        fetch_offsets(peer, group_id, None, version)
    fetch_offsets(peer, peer.name("nobody"), [fetched(one, 0), fetched(nowhere, 0)], version)
    if version >= 2:
        fetch_offsets(peer, peer.name("nobody"), None, version)


@scenario_for_each((7, 8, 9, 10))
def require_stable(peer: Peer, version: int) -> None:
    one, two, group_id = _with_offsets(peer)
    fetch_offsets(peer, group_id, [fetched(one, 0, 1), fetched(two, 0)], version, require_stable=True)
    fetch_offsets(peer, group_id, None, version, require_stable=True)


@scenario_for_each((8, 9, 10))
def several_groups(peer: Peer, version: int) -> None:
    one, two, group_id = _with_offsets(peer)
    other = peer.group("other")
    _commit(peer, other, [committed(two, {0: 1})])
    asked: list[tuple[str, list[Plain] | None]] = [
        (other, None),
        (peer.name("nobody"), None),
        (group_id, [fetched(one, 0, 1)]),
        (group_id, None),
        (group_id, []),
        ("", [fetched(two, 1)]),
        (peer.name("nobody"), [fetched(_nowhere(peer), 3), fetched(two, 0)]),
    ]
    groups = [
        {"group_id": name, "member_id": None, "member_epoch": -1, "topics": topics} for name, topics in asked
    ]
    for group in groups:
        peer.call("offset_fetch", version, groups=[group])
    peer.call("offset_fetch", version, groups=groups[:3])
    peer.call("offset_fetch", version, groups=groups)
    peer.call("offset_fetch", version, groups=[])


@scenario_for_each((9, 10))
def fetch_of_a_member(peer: Peer, version: int) -> None:
    """Fetch with a member id and epoch: a classic group ignores both."""
    topic = peer.topic()
    member = GroupMember(peer, peer.group())
    member.join()
    member.assign_itself()
    member.commit(topic)
    for name, member_id, member_epoch in (
        (member.group_id, member.member_id, 1),
        (member.group_id, member.member_id, 7),
        (member.group_id, "stranger", -1),
        (member.group_id, "stranger", 3),
        (member.group_id, "", 0),
        (peer.name("nobody"), "stranger", 3),
        (peer.name("nobody"), "", 0),
    ):
        group = {"group_id": name, "member_id": member_id, "member_epoch": member_epoch}
        peer.call("offset_fetch", version, groups=[{**group, "topics": [fetched(topic, 0)]}])
        peer.call("offset_fetch", version, groups=[{**group, "topics": None}])


@scenario
def mixed_topic_ids(peer: Peer) -> None:
    """Commit and fetch in the version that names topics by id: known, unknown and empty ids."""
    one, two, group_id = _with_offsets(peer)
    rows = [
        committed(Topic("", NO_TOPIC_ID), {0: 1}),
        committed(one, {1: 4}),
        committed(_nowhere(peer), {0: 1}),
    ]
    _commit(peer, group_id, rows, BY_ID)
    _commit(peer, group_id, [committed(two, {0: 10})], BY_ID, generation_id_or_member_epoch=4)
    asked = [fetched(Topic("", NO_TOPIC_ID), 0), fetched(one, 0, 1, 9), fetched(_nowhere(peer), 0, 1)]
    fetch_offsets(peer, group_id, asked, BY_ID)
    fetch_offsets(peer, group_id, None, BY_ID)


@scenario
def topic_is_deleted(peer: Peer) -> None:
    """Delete a topic: its offsets are deleted too, and a new topic of the same name begins without any."""
    one, two, group_id = _with_offsets(peer)
    peer.call("delete_topics", 5, topic_names=[one.name], timeout=10_000)

    def forgotten(answer: Plain) -> bool:
        return len(answer["groups"][0]["topics"]) == 1

    asked = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": None}
    peer.eventually("offset_fetch", 9, forgotten, groups=[asked], require_stable=False)
    fetch_offsets(peer, group_id, [fetched(one, 0), fetched(two, 0)])
    _commit(peer, group_id, [committed(one, {0: 1})])
    _commit(peer, group_id, [committed(one, {0: 1})], BY_ID)
    peer.topic("one")
    fetch_offsets(peer, group_id, [fetched(one, 0)])
