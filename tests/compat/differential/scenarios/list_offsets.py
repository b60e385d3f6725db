"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Any

from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.batches import DEFAULT_TIMESTAMP, Batch, Record, records

T = DEFAULT_TIMESTAMP
ASKED = (-1, -2, 0, 1, T - 1, T, T + 1, T + 100, T + 250, T + 399, T + 400, T + 10_000)
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6


def _filled(peer: Peer) -> Topic:
    """Produce three batches with records 100 ms apart; the second has the largest timestamp."""
    topic = peer.topic()
    peer.produce(topic, Batch(records(3, step_ms=100)))
    peer.produce(topic, Batch((Record(timestamp_delta=400), Record(timestamp_delta=350)), base_timestamp=T))
    peer.produce(topic, Batch((Record(timestamp_delta=50), Record(timestamp_delta=400)), base_timestamp=T))
    return topic


@scenario_for_each(range(1, 12))
def every_version(peer: Peer, version: int) -> None:
    topic = _filled(peer)
    peer.offsets(topic, *ASKED, version=version)


@scenario_for_each(range(1, 12))
def special_values(peer: Peer, version: int) -> None:
    """Ask for each special value in every version: before the version that introduced it, it is an error."""
    topic = _filled(peer)
    peer.offsets(
        topic, -3, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD, -7, -(2**63), version=version
    )


@scenario_for_each((1, 4, 7, 11))
def empty_log(peer: Peer, version: int) -> None:
    peer.offsets(peer.topic(), -1, -2, -3, 0, T, version=version)


@scenario
def inside_a_compressed_batch(peer: Peer) -> None:
    topic = peer.topic()
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        peer.produce(topic, Batch(records(4, step_ms=100), codec=codec))
    peer.offsets(topic, *ASKED, -3)


@scenario
def timestamps_go_back(peer: Peer) -> None:
    topic = peer.topic()
    for shift in (1_000, 0, 500, 2_000, 1_500):
        peer.produce(topic, Batch(records(2, step_ms=100), base_timestamp=T + shift))
    peer.offsets(topic, T, T + 1, T + 600, T + 1_000, T + 1_100, T + 1_101, T + 2_100, T + 2_101, -3)


@scenario
def without_timestamps(peer: Peer) -> None:
    topic = peer.topic()
    peer.produce(topic, Batch(base_timestamp=-1))
    peer.offsets(topic, -1, -2, -3, 0, T)


@scenario
def log_append_time(peer: Peer) -> None:
    topic = peer.topic(configs={"message.timestamp.type": "LogAppendTime"})
    peer.produce(topic, Batch(records(3, step_ms=100)))
    peer.offsets(topic, 0, T, -3, -1, version=7)


@scenario
def after_delete_records(peer: Peer) -> None:
    """Look up timestamps of deleted records: they are not found, but the maximum timestamp is remembered."""
    topic = _filled(peer)
    for offset in (1, 4, 7):
        wanted = [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": offset}]}]
        peer.call("delete_records", 2, topics=wanted, timeout=5_000)
        peer.offsets(topic, -1, -2, -3, T, T + 100, T + 400)


@scenario_for_each({"committed": 1, "uncommitted": 0, "2": 2, "-1": -1})
def isolation(peer: Peer, level: int) -> None:
    topic = _filled(peer)
    peer.offsets(topic, -1, -2, T + 100, -3, version=8, isolation_level=level)
    for version in range(1, 12):
        peer.offsets(topic, -1, version=version, isolation_level=level)


@scenario_for_each((2, 4, 7, 11))
def unknown_isolation_of_several(peer: Peer, version: int) -> None:
    """Ask with an unknown isolation level for known and unknown partitions, for one twice, and for none."""
    topic = _filled(peer)
    here = {
        "name": topic.name,
        "partitions": [{"partition_index": index, "timestamp": -1} for index in (0, 4, 0)],
    }
    nowhere = {"name": peer.name("nowhere"), "partitions": [{"partition_index": 0, "timestamp": -1}]}
    for topics in ([nowhere, here], [nowhere], [{**here, "partitions": []}], []):
        peer.call("list_offsets", version, replica_id=-1, isolation_level=7, topics=topics)


@scenario_for_each({"0": 0, "1": 1, "-1": -1, "-2": -2})
def current_leader_epoch(peer: Peer, leader_epoch: int) -> None:
    topic = _filled(peer)
    for version in (4, 7, 11):
        asked = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": leader_epoch}
        wanted = [{"name": topic.name, "partitions": [asked]}]
        peer.call("list_offsets", version, replica_id=-1, topics=wanted)


@scenario_for_each((1, 7, 11))
def unknown(peer: Peer, version: int) -> None:
    topic = peer.topic()
    for name, partition in (
        (topic.name, 1),
        (topic.name, -1),
        (peer.name("nowhere"), 0),
        ("", 0),
        ("a b", 0),
    ):
        wanted = [{"name": name, "partitions": [{"partition_index": partition, "timestamp": -1}]}]
        peer.call("list_offsets", version, replica_id=-1, topics=wanted)


@scenario_for_each((1, 7, 11))
def several(peer: Peer, version: int) -> None:
    """Ask for several partitions, one of them twice."""
    topic = peer.topic(partitions=3)
    peer.produce(topic, {0: Batch(records(2)), 2: Batch(records(5))})
    asked = [
        {"partition_index": index, "timestamp": stamp}
        for index, stamp in ((0, -1), (1, -1), (2, -1), (2, -2))
    ]
    peer.call("list_offsets", version, replica_id=-1, topics=[{"name": topic.name, "partitions": asked}])
    peer.call("list_offsets", version, replica_id=-1, topics=[{"name": topic.name, "partitions": asked[:3]}])
    peer.call("list_offsets", version, replica_id=-1, topics=[])
    peer.call("list_offsets", version, replica_id=-1, topics=[{"name": topic.name, "partitions": []}])


@scenario_for_each({"-2": -2, "1": 1, "7": 7})
def replica_ids(peer: Peer, replica_id: int) -> None:
    topic = _filled(peer)
    wanted = [{"name": topic.name, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    peer.call("list_offsets", 7, replica_id=replica_id, topics=wanted)


def _leader_epochs(topic: Topic, *asked: tuple[int, int, int]) -> list[dict[str, Any]]:
    rows = [
        {"partition": partition, "current_leader_epoch": current, "leader_epoch": wanted}
        for partition, current, wanted in asked
    ]
    return [{"topic": topic.name, "partitions": rows}]


@scenario_for_each((2, 3, 4))
def offset_for_leader_epoch(peer: Peer, version: int) -> None:
    topic = _filled(peer)
    for current, wanted in ((-1, 0), (0, 0), (-1, 1), (-1, -1), (0, 5), (1, 0), (-2, 0), (0, -2)):
        peer.call(
            "offset_for_leader_epoch",
            version,
            replica_id=-1,
            topics=_leader_epochs(topic, (0, current, wanted)),
        )
    peer.call("offset_for_leader_epoch", version, replica_id=-1, topics=_leader_epochs(topic, (3, -1, 0)))
    nowhere = Topic(peer.name("nowhere"), "")
    peer.call("offset_for_leader_epoch", version, replica_id=-1, topics=_leader_epochs(nowhere, (0, -1, 0)))
    peer.call("offset_for_leader_epoch", version, replica_id=-1, topics=[])


@scenario
def offset_for_leader_epoch_of_an_empty_log(peer: Peer) -> None:
    topic = peer.topic()
    for wanted in (0, 1, -1):
        peer.call("offset_for_leader_epoch", 4, replica_id=-1, topics=_leader_epochs(topic, (0, -1, wanted)))
