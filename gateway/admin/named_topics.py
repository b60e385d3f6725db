"""Finds the topics and partitions that a request names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kio.schema.errors import ErrorCode

from seqgate.gateway.admin.request import ControlError, Elsewhere
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import Partitions, TopicPartitions
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.topics.brokers import NO_LEADER


def find_topic(partitions: Partitions, name: str, *indexes: int | None) -> TopicPartitions:
    """Return a topic that has all partitions of `indexes`; None names no partition. Raises ControlError."""
    topic = partitions.by_name.get(name)
    if topic is None:
        raise ControlError(f"there is no topic {name}")
    for index in indexes:
        if index is not None and not topic.has(index):
            raise ControlError(f"topic {name} has no partition {index}")
    return topic


def check_led_here(services: Services, topic: str, index: int) -> None:
    """Refuse a partition that another gateway leads. Raises Elsewhere."""
    found = services.partitions.registry.by_name.get(topic)
    if found is None or found.refusal(index) is not ErrorCode.not_leader_or_follower:
        return
    leader = services.node.brokers.leader_in(topic, index)
    where = "no live gateway" if leader is None or leader[0] == NO_LEADER else f"broker {leader[0]}"
    raise Elsewhere(
        f"{topic}-{index} is led by {where}, not by this gateway; ask that one, or name the cluster with "
        "--bootstrap where the command has it"
    )


def partitions_after(
    topics: list[TopicPartitions],
    list_partitions: Callable[[TopicPartitions], Iterator[Partition]],
    index: int | None,
    after: tuple[str, int, int] | None,
) -> Iterator[Partition]:
    """Yield the partitions of topics, or those with one index, beginning with the last one of the previous
    page.

    `after` is topic, partition and producer id of the last row of the previous page.
    """
    for topic in topics:
        for partition in list_partitions(topic):
            is_before = after is not None and (topic.name, partition.index) < after[:2]
            if not is_before and index in {None, partition.index}:
                yield partition
