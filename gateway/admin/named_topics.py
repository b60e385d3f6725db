"""Finds the topics and partitions that a request names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gateway.admin.request import ControlError
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.registry import Partitions, TopicPartitions


def find_topic(partitions: Partitions, name: str, *indexes: int | None) -> TopicPartitions:
    """Return a topic that has all partitions of `indexes`; None names no partition. Raises ControlError."""
    topic = partitions.by_name.get(name)
    if topic is None:
        raise ControlError(f"there is no topic {name}")
    for index in indexes:
        if index is not None and not topic.has(index):
            raise ControlError(f"topic {name} has no partition {index}")
    return topic


def partitions_after(
    topics: list[TopicPartitions],
    list_partitions: Callable[[TopicPartitions], Iterator[Partition]],
    index: int | None,
    after: tuple[str, int, int] | None,
) -> Iterator[Partition]:
    """Yield the partitions of topics, or those with one index, beginning with the last one of the previous page.

    `after` is topic, partition and producer id of the last row of the previous page.
    """
    for topic in topics:
        for partition in list_partitions(topic):
            is_before = after is not None and (topic.name, partition.index) < after[:2]
            if not is_before and index in {None, partition.index}:
                yield partition
