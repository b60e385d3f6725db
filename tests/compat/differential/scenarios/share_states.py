"""The requests between a share-partition leader and the share coordinator (KIP-932): the delivery state of
share groups.
"""

from __future__ import annotations

from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.wire import Plain

Batch = tuple[int, int, int, int]
"""First and last offset, delivery state, delivery count."""

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
NO_TOPIC = "00000000-0000-0000-0000-000000000000"
UNKNOWN_ID = "7d9c7319-dc40-44ae-a1b6-b2b2b584141a"


def initialize(
    peer: Peer,
    group_id: str,
    topic_id: str,
    *,
    partition: int = 0,
    state_epoch: int = 0,
    start_offset: int = 0,
) -> Plain:
    row = {"partition": partition, "state_epoch": state_epoch, "start_offset": start_offset}
    topics = [{"topic_id": topic_id, "partitions": [row]}]
    return peer.call("initialize_share_group_state", 0, group_id=group_id, topics=topics)


def read(peer: Peer, group_id: str, topic_id: str, *, partition: int = 0, leader_epoch: int = 0) -> Plain:
    topics = [{"topic_id": topic_id, "partitions": [{"partition": partition, "leader_epoch": leader_epoch}]}]
    return peer.call("read_share_group_state", 0, group_id=group_id, topics=topics)


def summary(
    peer: Peer, group_id: str, topic_id: str, *, version: int = 1, partition: int = 0, leader_epoch: int = 0
) -> Plain:
    topics = [{"topic_id": topic_id, "partitions": [{"partition": partition, "leader_epoch": leader_epoch}]}]
    return peer.call("read_share_group_state_summary", version, group_id=group_id, topics=topics)


def write(
    peer: Peer,
    group_id: str,
    topic_id: str,
    *batches: Batch,
    version: int = 1,
    partition: int = 0,
    state_epoch: int = 0,
    leader_epoch: int = 0,
    start_offset: int = 0,
    complete: int = 0,
) -> Plain:
    rows = [
        {"first_offset": first, "last_offset": last, "delivery_state": state, "delivery_count": count}
        for first, last, state, count in batches
    ]
    entry = {
        "partition": partition,
        "state_epoch": state_epoch,
        "leader_epoch": leader_epoch,
        "start_offset": start_offset,
        "state_batches": rows,
        **({"delivery_complete_count": complete} if version >= 1 else {}),
    }
    topics = [{"topic_id": topic_id, "partitions": [entry]}]
    return peer.call("write_share_group_state", version, group_id=group_id, topics=topics)


def delete(peer: Peer, group_id: str, topic_id: str, *, partition: int = 0) -> Plain:
    topics = [{"topic_id": topic_id, "partitions": [{"partition": partition}]}]
    return peer.call("delete_share_group_state", 0, group_id=group_id, topics=topics)


def _begun(peer: Peer, *, partitions: int = 1) -> tuple[str, Topic]:
    """Return a group and a topic whose state the coordinator has initialized."""
    topic, group_id = peer.topic(partitions=partitions), peer.group()
    peer.wire.call(
        "find_coordinator", 6, key_type=2, coordinator_keys=[f"{group_id}:AAAAAAAAAAAAAAAAAAAAAA:0"]
    )
    peer.eventually(
        "initialize_share_group_state",
        0,
        lambda answer: (
            not any(row["error_code"] for topic in answer["results"] for row in topic["partitions"])
        ),
        group_id=group_id,
        topics=[
            {
                "topic_id": topic.topic_id,
                "partitions": [{"partition": 0, "state_epoch": 0, "start_offset": 0}],
            }
        ],
    )
    return group_id, topic


@scenario
def read_before_and_after_the_beginning(peer: Peer) -> None:
    group_id, topic = _begun(peer, partitions=2)
    for partition in (0, 1):
        summary(peer, group_id, topic.topic_id, partition=partition)
        read(peer, group_id, topic.topic_id, partition=partition)
    initialize(peer, group_id, topic.topic_id, partition=1, state_epoch=3, start_offset=-1)
    summary(peer, group_id, topic.topic_id, partition=1)
    read(peer, group_id, topic.topic_id, partition=1)
    write(peer, group_id, topic.topic_id, partition=1, state_epoch=3, start_offset=5)
    read(peer, group_id, topic.topic_id, partition=1)


@scenario_for_each(range(2))
def write_and_read_again(peer: Peer, version: int) -> None:
    group_id, topic = _begun(peer)
    ours = peer, group_id, topic.topic_id
    write(*ours, (0, 4, ACKNOWLEDGED, 1), (5, 9, AVAILABLE, 1), version=version, complete=5)
    read(*ours)
    summary(*ours, version=version)
    write(*ours, (5, 6, ACKNOWLEDGED, 2), (7, 7, ARCHIVED, 2), start_offset=5, version=version, complete=3)
    read(*ours)
    write(*ours, start_offset=-1, version=version)
    read(*ours)
    write(*ours, (20, 25, ACKNOWLEDGED, 1), start_offset=8, version=version)
    read(*ours)
    write(*ours, start_offset=100, version=version)
    read(*ours)
    summary(*ours, version=version)


@scenario
def a_later_leader_fences_the_earlier_one(peer: Peer) -> None:
    group_id, topic = _begun(peer)
    ours = peer, group_id, topic.topic_id
    write(*ours, (0, 1, ACKNOWLEDGED, 1), leader_epoch=2, complete=2)
    read(*ours, leader_epoch=1)
    read(*ours, leader_epoch=4)
    write(*ours, (2, 3, ACKNOWLEDGED, 1), leader_epoch=3)
    write(*ours, (2, 3, ACKNOWLEDGED, 1), leader_epoch=4, complete=4)
    summary(*ours, leader_epoch=1)
    summary(*ours, leader_epoch=9)
    write(*ours, (4, 4, ACKNOWLEDGED, 1), leader_epoch=4)
    write(*ours, (4, 4, ACKNOWLEDGED, 1), leader_epoch=-1)


@scenario
def a_new_beginning_fences_the_state_before(peer: Peer) -> None:
    group_id, topic = _begun(peer)
    ours = peer, group_id, topic.topic_id
    write(*ours, (0, 1, ACKNOWLEDGED, 1), leader_epoch=2)
    initialize(*ours, state_epoch=0, start_offset=7)
    read(*ours, leader_epoch=2)
    initialize(*ours, state_epoch=5, start_offset=3)
    read(*ours, leader_epoch=2)
    write(*ours, (3, 4, ACKNOWLEDGED, 1), state_epoch=4, leader_epoch=2, start_offset=3)
    write(*ours, (3, 4, ACKNOWLEDGED, 1), state_epoch=6, leader_epoch=2, start_offset=3)
    write(*ours, (3, 4, ACKNOWLEDGED, 1), state_epoch=5, leader_epoch=2, start_offset=3)
    read(*ours, leader_epoch=2)
    initialize(*ours, state_epoch=4, start_offset=0)
    initialize(*ours, state_epoch=-1, start_offset=0)
    read(*ours, leader_epoch=2)


@scenario
def delete_what_is_there_and_what_is_not(peer: Peer) -> None:
    group_id, topic = _begun(peer)
    ours = peer, group_id, topic.topic_id
    write(*ours, (0, 1, ACKNOWLEDGED, 1), leader_epoch=2)
    delete(*ours)
    delete(*ours)
    summary(*ours)
    read(*ours, leader_epoch=0)
    write(*ours, (0, 1, ACKNOWLEDGED, 1))
    delete(peer, group_id, UNKNOWN_ID)
    delete(peer, group_id, topic.topic_id, partition=7)
    initialize(*ours)
    read(*ours)


@scenario
def places_that_do_not_exist(peer: Peer) -> None:
    group_id, topic = _begun(peer)
    for topic_id, partition in ((UNKNOWN_ID, 0), (topic.topic_id, 7), (topic.topic_id, -1), (NO_TOPIC, 0)):
        initialize(peer, group_id, topic_id, partition=partition)
        read(peer, group_id, topic_id, partition=partition)
        write(peer, group_id, topic_id, partition=partition)
        summary(peer, group_id, topic_id, partition=partition)
        delete(peer, group_id, topic_id, partition=partition)


@scenario
def requests_without_a_group_or_places(peer: Peer) -> None:
    group_id, topic = _begun(peer)
    for name, topics in (
        ("", [{"topic_id": topic.topic_id, "partitions": [{"partition": 0}]}]),
        (group_id, []),
        (group_id, [{"topic_id": topic.topic_id, "partitions": []}]),
    ):
        for api, version, more in (
            ("initialize_share_group_state", 0, {"state_epoch": 0, "start_offset": 0}),
            ("read_share_group_state", 0, {"leader_epoch": 0}),
            (
                "write_share_group_state",
                0,
                {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "state_batches": []},
            ),
            ("delete_share_group_state", 0, {}),
            ("read_share_group_state_summary", 0, {"leader_epoch": 0}),
        ):
            asked = [
                {**entry, "partitions": [{**row, **more} for row in entry["partitions"]]} for entry in topics
            ]
            peer.call(api, version, group_id=name, topics=asked)


@scenario
def several_places_in_one_request(peer: Peer) -> None:
    other = peer.topic("other")
    group_id, topic = _begun(peer, partitions=3)
    rows = [{"partition": index, "state_epoch": 0, "start_offset": index} for index in (2, 0, 1, 1)]
    topics = [
        {"topic_id": topic.topic_id, "partitions": rows},
        {"topic_id": other.topic_id, "partitions": rows[1:2]},
    ]
    peer.call("initialize_share_group_state", 0, group_id=group_id, topics=topics)
    asked = [
        {
            "topic_id": topic.topic_id,
            "partitions": [{"partition": index, "leader_epoch": 0} for index in range(4)],
        },
        {"topic_id": other.topic_id, "partitions": [{"partition": 0, "leader_epoch": 0}]},
    ]
    peer.call("read_share_group_state", 0, group_id=group_id, topics=asked)
    peer.call("read_share_group_state_summary", 1, group_id=group_id, topics=asked)
