"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords, DescribeLogDirs."""

from __future__ import annotations

from typing import Any

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.batches import Batch, records
from tests.support.wire import NO_TOPIC_ID, Plain

OTHER_ID = "00000000-0000-0000-0000-00000000beef"


def _wanted(name: str, partitions: int = 1, replication_factor: int = 1, **more: Any) -> Plain:
    return {"name": name, "num_partitions": partitions, "replication_factor": replication_factor, **more}


def _create(peer: Peer, *topics: Plain, version: int = 7, validate_only: bool = False) -> Plain:
    return peer.call(
        "create_topics", version, topics=list(topics), timeout=10_000, validate_only=validate_only
    )


def _gone(peer: Peer, name: str) -> None:
    asked: dict[str, Any] = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    peer.eventually("metadata", 12, lambda answer: answer["topics"][0]["error_code"] == 3, **asked)


@scenario_for_each(range(2, 8))
def create(peer: Peer, version: int) -> None:
    _create(peer, _wanted(peer.name(), 3), version=version)
    topic = peer.existing(partitions=3)
    _create(peer, _wanted(topic.name, 3), version=version)
    peer.call("metadata", 12, topics=[{"name": topic.name}])


@scenario_for_each(range(2, 8))
def create_with_configs(peer: Peer, version: int) -> None:
    configs = [{"name": "retention.ms", "value": "12345"}, {"name": "segment.bytes", "value": "2000000"}]
    _create(peer, _wanted(peer.name(), configs=configs), version=version)
    peer.existing()


@scenario_for_each(range(2, 8))
def validate_only(peer: Peer, version: int) -> None:
    _create(peer, _wanted(peer.name(), 2), _wanted("a b"), version=version, validate_only=True)
    peer.call("metadata", 12, topics=[{"name": peer.name()}], allow_auto_topic_creation=False)


@scenario_for_each({str(count): count for count in (0, -1, -2, 100)})
def partition_counts(peer: Peer, count: int) -> None:
    """Create topics with all kinds of partition counts; −1 stands for the broker's default."""
    _create(peer, _wanted(peer.name(), count))
    _create(peer, _wanted(peer.name("other"), count), version=4)


@scenario_for_each({str(count): count for count in (0, -1, -2, 2, 1_000)})
def replication_factors(peer: Peer, count: int) -> None:
    _create(peer, _wanted(peer.name(), 1, count))


@scenario_for_each(
    {"empty": "", "dot": ".", "two dots": "..", "illegal": "a b", "long": "x" * 250, "umlaut": "grün"}
)
def illegal_names(peer: Peer, name: str) -> None:
    _create(peer, _wanted(name))
    _create(peer, _wanted(name), version=4)


@scenario
def longest_name(peer: Peer) -> None:
    suffix = "x" * (249 - len(peer.name("")))
    _create(peer, _wanted(peer.name(suffix)))
    peer.existing(suffix)


@scenario
def colliding_names(peer: Peer) -> None:
    """Create topics whose names differ only in a dot and an underscore, which collide in metric names."""
    peer.topic("a.b")
    _create(peer, _wanted(peer.name("a_b")))


@scenario
def same_name_twice(peer: Peer) -> None:
    _create(peer, _wanted(peer.name()), _wanted(peer.name(), 2), _wanted(peer.name("other")))
    peer.existing("other")
    peer.call("metadata", 12, topics=[{"name": peer.name()}], allow_auto_topic_creation=False)


@scenario
def nothing_to_create(peer: Peer) -> None:
    _create(peer)


def _node(peer: Peer) -> int:
    return int(peer.wire.call("metadata", 12, topics=[]).fields["brokers"][0]["node_id"])


ASSIGNMENTS: dict[str, list[tuple[int, list[int]]]] = {
    "one": [(0, [0])],
    "two": [(0, [0]), (1, [0])],
    "from one": [(1, [0])],
    "gap": [(0, [0]), (2, [0])],
    "same partition": [(0, [0]), (0, [0])],
    "unknown broker": [(0, [98])],
    "broker twice": [(0, [0, 0])],
    "no broker": [(0, [])],
    "different counts": [(0, [0]), (1, [0, 98])],
}


@scenario_for_each(ASSIGNMENTS)
def assignments(peer: Peer, rows: list[tuple[int, list[int]]]) -> None:
    """Create topics with given assignments. Broker numbers in the table are relative to the endpoint's own."""
    node = _node(peer)
    wanted = [
        {"partition_index": index, "broker_ids": [node + broker for broker in ids]} for index, ids in rows
    ]
    _create(peer, _wanted(peer.name(), -1, -1, assignments=wanted))
    _create(peer, _wanted(peer.name("counted"), 2, 1, assignments=wanted))


CONFIGS: dict[str, tuple[str, str | None]] = {
    "unknown": ("no.such.config", "1"),
    "not a number": ("retention.ms", "soon"),
    "too small": ("segment.bytes", "1"),
    "negative": ("max.message.bytes", "-1"),
    "bad choice": ("cleanup.policy", "burn"),
    "bad choice of codec": ("compression.type", "zip"),
    "empty policy": ("cleanup.policy", ""),
    "null": ("retention.ms", None),
    "empty number": ("retention.ms", ""),
    "spaces": ("retention.ms", " 5000 "),
    "upper case": ("cleanup.policy", "DELETE"),
    "bool": ("preallocate", "maybe"),
    "timestamp type": ("message.timestamp.type", "LogAppendTime"),
    "bad timestamp type": ("message.timestamp.type", "Never"),
    "too large": ("segment.bytes", "99999999999"),
    "retention -1": ("retention.ms", "-1"),
    "retention -2": ("retention.ms", "-2"),
    "flush": ("flush.messages", "1"),
    "flush 0": ("flush.messages", "0"),
    "min isr 0": ("min.insync.replicas", "0"),
    "broker's name": ("log.retention.ms", "5000"),
}


@scenario_for_each(CONFIGS)
def create_with_config(peer: Peer, config: tuple[str, str | None]) -> None:
    name, value = config
    _create(peer, _wanted(peer.name(), configs=[{"name": name, "value": value}]))
    _create(peer, _wanted(peer.name("old"), configs=[{"name": name, "value": value}]), version=4)


@scenario
def same_config_twice(peer: Peer) -> None:
    configs = [{"name": "retention.ms", "value": "1000"}, {"name": "retention.ms", "value": "2000"}]
    _create(peer, _wanted(peer.name(), configs=configs))


@scenario_for_each(range(1, 6))
def delete_by_name(peer: Peer, version: int) -> None:
    topic = peer.topic()
    nowhere = peer.name("nowhere")
    peer.call("delete_topics", version, topic_names=[topic.name, nowhere], timeout=10_000)
    _gone(peer, topic.name)
    peer.call("delete_topics", version, topic_names=[topic.name], timeout=10_000)


@scenario
def delete_by_id(peer: Peer) -> None:
    one, two = peer.topic("one"), peer.topic("two")
    wanted = [
        {"name": None, "topic_id": one.topic_id},
        {"name": two.name},
        {"name": peer.name("nowhere")},
        {"name": None, "topic_id": OTHER_ID},
    ]
    peer.call("delete_topics", 6, topics=wanted, timeout=10_000)
    _gone(peer, one.name)
    _gone(peer, two.name)


@scenario
def delete_by_both(peer: Peer) -> None:
    topic = peer.topic()
    for wanted in (
        {"name": topic.name, "topic_id": topic.topic_id},
        {"name": None, "topic_id": NO_TOPIC_ID},
        {"name": "", "topic_id": NO_TOPIC_ID},
        {"name": "a b"},
    ):
        peer.call("delete_topics", 6, topics=[wanted], timeout=10_000)


@scenario
def delete_twice_in_one(peer: Peer) -> None:
    topic = peer.topic()
    peer.call("delete_topics", 4, topic_names=[topic.name, topic.name], timeout=10_000)
    peer.call("delete_topics", 6, topics=[{"name": topic.name}, {"name": topic.name}], timeout=10_000)
    both = [{"name": topic.name}, {"name": None, "topic_id": topic.topic_id}]
    peer.call("delete_topics", 6, topics=both, timeout=10_000)
    peer.call("delete_topics", 6, topics=[], timeout=10_000)
    peer.call("metadata", 12, topics=[{"name": topic.name}], allow_auto_topic_creation=False)


@scenario_for_each(range(4))
def create_partitions(peer: Peer, version: int) -> None:
    topic = peer.topic(partitions=2)
    peer.produce(topic, {0: Batch(records(1)), 1: Batch(records(2))})
    peer.call("create_partitions", version, topics=[{"name": topic.name, "count": 4}], timeout=10_000)
    peer.existing(partitions=4)
    peer.call("metadata", 12, topics=[{"name": topic.name}])
    peer.produce(topic, {1: Batch(), 3: Batch()})


@scenario_for_each({str(count): count for count in (2, 1, 0, -1)})
def create_partitions_not_more(peer: Peer, count: int) -> None:
    topic = peer.topic(partitions=2)
    peer.call("create_partitions", 3, topics=[{"name": topic.name, "count": count}], timeout=10_000)


@scenario
def create_partitions_of_what(peer: Peer) -> None:
    topic = peer.topic()
    name = topic.name
    peer.call("create_partitions", 3, topics=[{"name": peer.name("nowhere"), "count": 4}], timeout=10_000)
    peer.call("create_partitions", 3, topics=[{"name": "a b", "count": 4}], timeout=10_000)
    peer.call("create_partitions", 3, topics=[], timeout=10_000)
    twice = [{"name": name, "count": 4}, {"name": name, "count": 5}]
    peer.call("create_partitions", 3, topics=twice, timeout=10_000)
    peer.call("create_partitions", 3, topics=[{"name": name, "count": 4}], timeout=10_000, validate_only=True)
    peer.call("metadata", 12, topics=[{"name": name}])


@scenario_for_each(
    {"right": [[0], [0]], "too few": [[0]], "too many": [[0]] * 3, "unknown": [[0], [98]], "none": []}
)
def create_partitions_assigned(peer: Peer, rows: list[list[int]]) -> None:
    topic = peer.topic()
    node = _node(peer)
    wanted = [{"broker_ids": [node + broker for broker in row]} for row in rows]
    asked = {"name": topic.name, "count": 3, "assignments": wanted}
    peer.call("create_partitions", 3, topics=[asked], timeout=10_000)


@scenario_for_each(range(3))
def delete_records(peer: Peer, version: int) -> None:
    topic = peer.topic(partitions=2)
    peer.produce(topic, {0: Batch(records(10)), 1: Batch(records(3))})
    for offset in (4, 2, 0, 11, -2, 10, -1):
        wanted = [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": offset}]}]
        peer.call("delete_records", version, topics=wanted, timeout=10_000)
        peer.offsets(topic, -2, -1)
    peer.produce(topic, Batch())


@scenario
def delete_records_of_what(peer: Peer) -> None:
    topic = peer.topic(partitions=2)
    peer.produce(topic, {0: Batch(records(5)), 1: Batch(records(3))})
    nowhere = {"name": peer.name("nowhere"), "partitions": [{"partition_index": 0, "offset": 0}]}
    rows = [{"partition_index": index, "offset": offset} for index, offset in ((0, 2), (1, -1), (7, 0))]
    peer.call("delete_records", 2, topics=[{"name": topic.name, "partitions": rows}, nowhere], timeout=10_000)
    twice = [{"partition_index": 0, "offset": 3}, {"partition_index": 0, "offset": 4}]
    peer.call("delete_records", 2, topics=[{"name": topic.name, "partitions": twice}], timeout=10_000)
    peer.call("delete_records", 2, topics=[], timeout=10_000)
    peer.offsets(topic, -2)


@scenario
def delete_records_of_a_compacted_topic(peer: Peer) -> None:
    topic = peer.topic(configs={"cleanup.policy": "compact"})
    wanted = [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": 0}]}]
    peer.call("delete_records", 2, topics=wanted, timeout=10_000)


@scenario_for_each(range(1, 6))
def describe_log_dirs(peer: Peer, version: int) -> None:
    topic = peer.topic(partitions=2)
    peer.produce(topic, {0: Batch(records(10)), 1: Batch(records(3))})
    peer.call("describe_log_dirs", version, topics=[{"topic": topic.name, "partitions": [0, 1, 5]}])
    peer.call("describe_log_dirs", version, topics=[{"topic": peer.name("nowhere"), "partitions": [0]}])
    peer.call("describe_log_dirs", version, topics=[])
    peer.call("describe_log_dirs", version, only_own=True, topics=None)
