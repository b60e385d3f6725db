"""Limits the answer to a request that names the same thing several times.

Apache Kafka answers a thing as often as the request names it. A request of a few bytes could name a large
thing many times and get gigabytes. No ordinary client does that, so a request that names many things gets
each answer once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering.api import RequestContext
from seqgate.gateway.metadata.image import PartitionImage
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.registry import TopicPartitions
from seqgate.gateway.runtime.services import NodeServices
from seqgate.gateway.runtime.topics.brokers import NO_LEADER, Brokers

REPEATING_MAX_NAMED: Final = 100
"""Things that a request may name and still get an answer for each repetition.

A longer request gets each answer once.
"""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Hashable)
R = TypeVar("R")


def to_answer(named: Sequence[T], name: Callable[[T], Hashable] = lambda thing: thing) -> Sequence[T]:
    """Return the things to answer, in the request's order: all of them, as in Apache Kafka.

    From more than `REPEATING_MAX_NAMED` things only the first of each name is answered. `name` returns the
    name by which two things are the same, even if they are not equal.
    """
    if len(named) <= REPEATING_MAX_NAMED:
        return named
    first: dict[Hashable, T] = {}
    for thing in named:
        first.setdefault(name(thing), thing)
    return tuple(first.values())


def places_to_answer(topics: Sequence[tuple[K, Sequence[int]]]) -> Iterator[tuple[K, Sequence[int]]]:
    """Yield the partitions to answer, (topic, indexes), by the rule of `to_answer`.

    Every topic comes with some indexes.
    """
    if sum(len(indexes) for _, indexes in topics) <= REPEATING_MAX_NAMED:
        yield from topics
        return
    answered: dict[K, set[int]] = {}
    for topic, indexes in topics:
        before = answered.setdefault(topic, set())
        yield topic, tuple(index for index in dict.fromkeys(indexes) if index not in before)
        before.update(indexes)


async def answer_each(
    named: Sequence[T], answer: Callable[[T], R], name: Callable[[T], Hashable] = lambda thing: thing
) -> tuple[R, ...]:
    """Return the answers to the things that `to_answer` chooses.

    Each answer is computed once, in slices, and shared.
    """
    asked = to_answer(named, name)
    answers = {thing: answer(thing) async for thing in in_slices(dict.fromkeys(asked))}
    return tuple([answers[thing] for thing in asked])


# The leader and state of a partition, as Metadata and DescribeTopicPartitions report them.


class PartitionState(NamedTuple):
    """The state of a partition as clients see it."""

    error_code: ErrorCode
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


def partition_state(
    context: RequestContext[Any], image: PartitionImage, topic: TopicPartitions | None, index: int
) -> PartitionState:
    """Return the state of a partition; one without a usable log has no leader, as with Kafka's failed disks."""
    brokers = context.node.brokers
    if brokers.leads(image) and _is_unusable(topic, index):
        return _state(brokers, image, NO_LEADER, (context.node.node_id,))
    return _state(brokers, image, brokers.leader_of(image), brokers.fenced_replicas_of(image))


def _is_unusable(topic: TopicPartitions | None, index: int) -> bool:
    if topic is None or not topic.has(index) or index in topic.failed:
        return True
    partition = topic.peek(index)
    return partition is not None and partition.log.offline


def _state(brokers: Brokers, image: PartitionImage, leader: int, offline: tuple[int, ...]) -> PartitionState:
    return PartitionState(
        ErrorCode.leader_not_available if leader == NO_LEADER else ErrorCode.none,
        leader,
        image.leader_epoch,
        brokers.replicas_of(image),
        brokers.isr_of(image),
        offline,
    )


# The limit on the metadata of a committed offset, for commits of groups and of transactions.


def metadata_fits(node: NodeServices, metadata: str) -> bool:
    """Return whether the metadata of an offset fits. Kafka counts UTF-16 units, whatever the setting is
    called.
    """
    units = len(metadata.encode("utf-16-le", "surrogatepass")) // 2
    return units <= node.config.int("offset.metadata.max.bytes")
