"""Metadata, DescribeTopicPartitions and DescribeCluster."""

from __future__ import annotations

from typing import Any

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.wire import NO_TOPIC_ID

ILLEGAL_NAMES = {
    "empty": "",
    "dot": ".",
    "two dots": "..",
    "space": "a b",
    "slash": "a/b",
    "umlaut": "grün",
    "long": "x" * 250,
}


def _asked(*names: str, create: bool = False) -> dict[str, Any]:
    return {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": create}


@scenario_for_each(range(14))
def every_version(peer: Peer, version: int) -> None:
    topic = peer.topic(partitions=3)
    peer.call("metadata", version, **_asked(topic.name))


@scenario_for_each(range(14))
def unknown_topic(peer: Peer, version: int) -> None:
    """Ask for an unknown topic. Before version 4 a client can't forbid its creation."""
    peer.topic("known")
    peer.call("metadata", version, **_asked(peer.name("known"), peer.name("nowhere")))


@scenario_for_each(range(14))
def all_topics(peer: Peer, version: int) -> None:
    peer.topic("one")
    peer.topic("two", partitions=2)
    everything: list[Any] | None = [] if version == 0 else None
    peer.call("metadata", version, only_own=True, topics=everything, allow_auto_topic_creation=True)


@scenario_for_each((1, 5, 9, 12, 13))
def no_topics(peer: Peer, version: int) -> None:
    peer.call("metadata", version, topics=[], allow_auto_topic_creation=True)


@scenario_for_each((0, 3, 4, 8, 12, 13))
def creates_a_topic(peer: Peer, version: int) -> None:
    """Ask for a topic that is then created: the first answer is an error, later ones contain the topic."""
    asked = _asked(peer.name(), create=True)
    peer.call("metadata", version, **asked)
    peer.existing()
    peer.call("metadata", version, **asked)
    peer.offsets(peer.existing(), -1, -2)


@scenario_for_each(ILLEGAL_NAMES)
def illegal_name(peer: Peer, name: str) -> None:
    for version in (1, 4, 12):
        peer.call("metadata", version, **_asked(name, create=True))
        peer.call("metadata", version, **_asked(name, create=False))


@scenario_for_each((1, 9, 12))
def same_topic_twice(peer: Peer, version: int) -> None:
    topic = peer.topic()
    peer.call(
        "metadata", version, **_asked(topic.name, topic.name, peer.name("nowhere"), peer.name("nowhere"))
    )


@scenario_for_each((10, 11, 12, 13))
def by_topic_id(peer: Peer, version: int) -> None:
    topic = peer.topic(partitions=2)
    peer.call("metadata", version, topics=[{"topic_id": topic.topic_id, "name": None}])
    peer.call(
        "metadata", version, topics=[{"topic_id": "00000000-0000-0000-0000-000000000777", "name": None}]
    )


@scenario_for_each((12, 13))
def by_id_and_name(peer: Peer, version: int) -> None:
    topic = peer.topic()
    other = peer.topic("other")
    peer.call("metadata", version, topics=[{"topic_id": topic.topic_id, "name": topic.name}])
    peer.call("metadata", version, topics=[{"topic_id": topic.topic_id, "name": other.name}])
    peer.call("metadata", version, topics=[{"topic_id": topic.topic_id, "name": None}, {"name": other.name}])
    peer.call("metadata", version, topics=[{"topic_id": NO_TOPIC_ID, "name": None}])


@scenario_for_each((8, 10, 11, 13))
def authorized_operations(peer: Peer, version: int) -> None:
    topic = peer.topic()
    for cluster, topics in ((True, False), (False, True), (True, True)):
        peer.call(
            "metadata",
            version,
            include_cluster_authorized_operations=cluster,
            include_topic_authorized_operations=topics,
            **_asked(topic.name),
        )


@scenario
def while_topics_come_and_go(peer: Peer) -> None:
    topic = peer.topic()
    peer.call("create_partitions", 3, topics=[{"name": topic.name, "count": 3}], timeout=5_000)
    peer.existing(partitions=3)
    peer.call("metadata", 12, **_asked(topic.name))
    peer.call("delete_topics", 4, topic_names=[topic.name], timeout=5_000)
    peer.eventually(
        "metadata", 12, lambda answer: answer["topics"][0]["error_code"] == 3, **_asked(topic.name)
    )
    again = peer.topic()
    peer.note("a topic created again has a new id", new=again.topic_id != topic.topic_id)


@scenario_for_each(range(3))
def describe_cluster(peer: Peer, version: int) -> None:
    peer.call("describe_cluster", version, include_cluster_authorized_operations=False)
    peer.call("describe_cluster", version, include_cluster_authorized_operations=True)


@scenario_for_each({"brokers": 1, "controllers": 2, "neither": 3, "zero": 0})
def describe_cluster_endpoints(peer: Peer, endpoint_type: int) -> None:
    peer.call("describe_cluster", 1, endpoint_type=endpoint_type)
    peer.call("describe_cluster", 2, endpoint_type=endpoint_type, include_fenced_brokers=True)


def _described(*names: str, limit: int = 2_000, cursor: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"topics": [{"name": name} for name in names], "response_partition_limit": limit, "cursor": cursor}


@scenario
def describe_topic_partitions(peer: Peer) -> None:
    one, two = peer.topic("one"), peer.topic("two", partitions=3)
    nowhere = peer.name("nowhere")
    peer.call("describe_topic_partitions", 0, **_described(one.name, two.name))
    peer.call("describe_topic_partitions", 0, **_described(nowhere))
    peer.call("describe_topic_partitions", 0, **_described(one.name, nowhere, two.name))
    peer.call("describe_topic_partitions", 0, **_described(two.name, one.name, one.name))


@scenario_for_each({name: name for name in ("0", "1", "2", "3", "4", "-1")})
def describe_topic_partitions_limit(peer: Peer, limit: str) -> None:
    one, two = peer.topic("one"), peer.topic("two", partitions=3)
    peer.call("describe_topic_partitions", 0, **_described(one.name, two.name, limit=int(limit)))


@scenario_for_each({"0": 0, "1": 1, "2": 2, "3": 3, "9": 9, "-1": -1})
def describe_topic_partitions_cursor(peer: Peer, partition: int) -> None:
    one, two, three = peer.topic("one"), peer.topic("two", partitions=3), peer.topic("zzz")
    cursor = {"topic_name": two.name, "partition_index": partition}
    asked = _described(one.name, two.name, three.name, cursor=cursor)
    peer.call("describe_topic_partitions", 0, **asked)
    peer.call(
        "describe_topic_partitions", 0, **_described(one.name, two.name, three.name, limit=1, cursor=cursor)
    )


@scenario
def describe_topic_partitions_cursor_elsewhere(peer: Peer) -> None:
    one = peer.topic("one")
    peer.topic("two")
    for name in (peer.name("nowhere"), peer.name("aaa"), peer.name("zzz")):
        cursor = {"topic_name": name, "partition_index": 0}
        peer.call("describe_topic_partitions", 0, **_described(one.name, peer.name("two"), cursor=cursor))


@scenario_for_each(ILLEGAL_NAMES)
def describe_topic_partitions_illegal_name(peer: Peer, name: str) -> None:
    peer.call("describe_topic_partitions", 0, **_described(name))


@scenario
def describe_all_topic_partitions(peer: Peer) -> None:
    """Describe all topics by naming none. A cursor skips the topics of other scenarios."""
    first = peer.topic("one")
    peer.topic("two", partitions=2)
    cursor = {"topic_name": first.name, "partition_index": 0}
    peer.call("describe_topic_partitions", 0, only_own=True, **_described(cursor=cursor))
