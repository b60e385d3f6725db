"""Decisions about new topics, for CreateTopics and whatever else creates topics, and the brokers of new
partitions.

Each request is decided as a whole; a refused topic does not affect the other topics of the request. Rules and
order of checks: Kafka's ControllerApis and ReplicationControlManager.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.config.config import Config
from seqgate.gateway.metadata.configs import topic_config_error
from seqgate.gateway.metadata.decision import ApiError, Decision
from seqgate.gateway.metadata.image import (
    METADATA_TOPIC,
    TOPIC_RESOURCE,
    MetadataImage,
    name_complaint,
    unify_collision_characters,
)
from seqgate.gateway.metadata.records import ConfigRecord, MetadataRecord, PartitionRecord, TopicRecord

#: Partitions that one request may create; Kafka refuses more, too
#: (ReplicationControlManager.MAX_RECORDS_PER_USER_OP).
MAX_PARTITIONS_PER_REQUEST = 10_000

NOBODY_LEADS: Final = ApiError(ErrorCode.not_controller, "No gateway has joined the cluster yet; retry.")
"""The error of new partitions while no broker is live. A gateway that starts serves before it has joined.
Kafka's StripedReplicaPlacer answers INVALID_REPLICATION_FACTOR, upon which clients give up."""

Assignments = Sequence[tuple[int, Sequence[int]]]


class TopicCreation(msgspec.Struct, frozen=True, kw_only=True):
    """A topic to create; -1 partitions or replicas: the default; `assignments` has (partition, brokers)."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Assignments = ()
    configs: Sequence[tuple[str, str | None]] = ()


class TopicResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one topic of a request; `error` is None when it was carried out."""

    name: str | None
    topic_id: uuid.UUID | None = None
    error: ApiError | None = None
    num_partitions: int = -1
    replication_factor: int = 1
    configs: Mapping[str, str] | None = None


def create_topics(
    image: MetadataImage,
    topics: Sequence[TopicCreation],
    *,
    fresh_ids: Sequence[uuid.UUID],
    config: Config,
    node_id: int,
    validate_only: bool = False,
) -> Decision[list[TopicResult]]:
    """Create topics; `fresh_ids` has an unused topic id for each. A request for too many partitions creates
    none.
    """
    times = Counter(topic.name for topic in topics)
    counted = (topic for topic in topics if times[topic.name] == 1 and topic.name != METADATA_TOPIC)
    if sum(max(0, _partition_count(topic, config)) for topic in counted) > MAX_PARTITIONS_PER_REQUEST:
        return Decision((), all_refused(times, "Excessively large number of partitions per request."))
    results: list[TopicResult] = []
    records: list[MetadataRecord] = []
    room = PartitionRoom(image, config)
    brokers = image.brokers.live(node_id)
    unified: dict[str, str] = {}
    for topic, topic_id in zip(topics, fresh_ids, strict=True):
        if times[topic.name] > 1:
            continue
        error = _refusal(image, topic, unified, config) or _shape_error(topic, brokers)
        count = _partition_count(topic, config)
        error = error or room.take(count)
        if error:
            results.append(TopicResult(name=topic.name, error=error))
            continue
        unified[unify_collision_characters(topic.name)] = topic.name
        configs = {name: value for name, value in topic.configs if value is not None}
        partitions = list(_partitions(topic, topic_id, count, brokers, image.brokers.draining()))
        records.extend(_creation(topic.name, topic_id, configs, partitions))
        results.append(
            TopicResult(
                name=topic.name,
                topic_id=topic_id,
                num_partitions=count,
                replication_factor=len(partitions[0].replicas),
                configs=configs,
            )
        )
    results.extend(doubled(times))
    return Decision(() if validate_only else records, results)


def create_internal_topic(
    image: MetadataImage,
    name: str,
    *,
    num_partitions: int,
    configs: Mapping[str, str],
    fresh_id: uuid.UUID,
    node_id: int,
) -> Decision[None]:
    """Create a topic in which this gateway stores its own state, unless it exists, or no broker is live."""
    brokers = image.brokers.live(node_id)
    if name in image.topics_by_name or not brokers:
        return Decision((), None)
    partitions = new_partitions(
        fresh_id,
        range(num_partitions),
        brokers,
        default_replication_factor(brokers),
        image.brokers.draining(),
    )
    return Decision(list(_creation(name, fresh_id, configs, partitions)), None)


def all_refused(names: Iterable[str], message: str) -> list[TopicResult]:
    """Return POLICY_VIOLATION for all topics of a request. Source: Kafka's
    ReplicationControlManager.validateTotalNumberOfPartitions.
    """
    error = ApiError(ErrorCode.policy_violation, message)
    return [TopicResult(name=name, error=error) for name in names]


def doubled(times: Mapping[str, int]) -> list[TopicResult]:
    """Return one refusal for each name that a request repeats."""
    error = ApiError(ErrorCode.invalid_request, "Duplicate topic name.")
    return [TopicResult(name=name, error=error) for name, count in times.items() if count > 1]


def _refusal(
    image: MetadataImage, topic: TopicCreation, unified: Mapping[str, str], config: Config
) -> ApiError | None:
    """Return why a topic of this name and these configurations can't be created, or None."""
    if topic.name == METADATA_TOPIC:
        return ApiError(
            ErrorCode.invalid_request, f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        )
    complaint = name_complaint(topic.name)
    if complaint:
        return ApiError(ErrorCode.invalid_topic_exception, complaint)
    if topic.name in image.topics_by_name:
        return ApiError(ErrorCode.topic_already_exists, f"Topic '{topic.name}' already exists.")
    other = image.colliding_topic(topic.name) or unified.get(unify_collision_characters(topic.name))
    if other is not None:
        return ApiError(
            ErrorCode.invalid_topic_exception, f"Topic '{topic.name}' collides with existing topic: {other}"
        )
    missing = [name for name, value in topic.configs if value is None]
    if missing:
        return ApiError(
            ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(missing)}"
        )
    return topic_config_error(config, {name: value for name, value in topic.configs if value is not None})


def _shape_error(topic: TopicCreation, brokers: Sequence[int]) -> ApiError | None:
    """Return the error in the numbers of partitions and replicas, or in the manual assignment, or None."""
    if not brokers:
        return NOBODY_LEADS
    if topic.assignments:
        return _manual_error(topic, brokers)
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        return ApiError(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        return ApiError(
            ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
        )
    if topic.replication_factor > len(brokers):
        return ApiError(
            ErrorCode.invalid_replication_factor,
            f"Unable to replicate the partition {topic.replication_factor} time(s): The target replication "
            f"factor of {topic.replication_factor} cannot be reached because only {len(brokers)} broker(s) "
            "are registered.",
        )
    return None


def _manual_error(topic: TopicCreation, brokers: Sequence[int]) -> ApiError | None:
    for number, what in (
        (topic.replication_factor, "replication factor"),
        (topic.num_partitions, "numPartitions"),
    ):
        if number != -1:
            return ApiError(
                ErrorCode.invalid_request,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    seen: set[int] = set()
    replication_factor = len(topic.assignments[0][1])
    for partition, replicas in topic.assignments:
        if partition in seen:
            return ApiError(
                ErrorCode.invalid_replica_assignment,
                f"Found multiple manual partition assignments for partition {partition}",
            )
        seen.add(partition)
        error = replicas_error(replicas, brokers, replication_factor)
        if error:
            return error
    if seen != set(range(len(seen))):
        return ApiError(
            ErrorCode.invalid_replica_assignment,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return None


def replicas_error(
    replicas: Sequence[int], brokers: Collection[int], replication_factor: int | None = None
) -> ApiError | None:
    """Return the error in the replicas of a request for a partition: none, one that is not among `brokers`,
    one named twice, or another number than `replication_factor`.
    Source: Kafka's ReplicationControlManager.validateManualPartitionAssignment.
    """
    if not replicas:
        text = "The manual partition assignment includes an empty replica list."
        return ApiError(ErrorCode.invalid_replica_assignment, text)
    previous: int | None = None
    for broker in sorted(replicas):
        if broker not in brokers:
            text = (
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
            return ApiError(ErrorCode.invalid_replica_assignment, text)
        if broker == previous:
            text = f"The manual partition assignment includes the broker {broker} more than once."
            return ApiError(ErrorCode.invalid_replica_assignment, text)
        previous = broker
    if replication_factor is not None and len(replicas) != replication_factor:
        text = (
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this "
            f"is not consistent with previous partitions, which have {replication_factor} replica(s)."
        )
        return ApiError(ErrorCode.invalid_replica_assignment, text)
    return None


def _partition_count(topic: TopicCreation, config: Config) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return config.int("num.partitions") if topic.num_partitions == -1 else topic.num_partitions


class PartitionRoom:
    """The number of partitions that the cluster may still get."""

    def __init__(self, image: MetadataImage, config: Config) -> None:
        self._limit = config.int("seqgate.max.partitions")
        self._left = self._limit - image.partition_count

    def take(self, count: int) -> ApiError | None:
        """Take `count` partitions out of the room; return an error when there is less room."""
        if count > self._left:
            return ApiError(
                ErrorCode.policy_violation,
                f"{count} more partitions would exceed seqgate.max.partitions ({self._limit}).",
            )
        self._left -= count
        return None


def _partitions(
    topic: TopicCreation, topic_id: uuid.UUID, count: int, brokers: Sequence[int], avoided: Sequence[int]
) -> Iterator[PartitionRecord]:
    if topic.assignments:
        return (
            new_partition(topic_id, index, tuple(replicas)) for index, replicas in sorted(topic.assignments)
        )
    replication_factor = topic.replication_factor
    if replication_factor == -1:
        replication_factor = default_replication_factor(brokers)
    return new_partitions(topic_id, range(count), brokers, replication_factor, avoided)


def _creation(
    name: str, topic_id: uuid.UUID, configs: Mapping[str, str], partitions: Iterable[PartitionRecord]
) -> Iterator[MetadataRecord]:
    yield TopicRecord(name, topic_id)
    for config_name, value in configs.items():
        yield ConfigRecord(TOPIC_RESOURCE, name, config_name, value)
    yield from partitions


# Chooses the brokers of new partitions: neighbouring partitions of a topic go to different brokers.

MOST_REPLICAS_BY_DEFAULT: Final = 3
"""Replicas of a partition that is created without a number of them, where as many gateways are live. All
gateways share the records, so the replicas only say which of them lead the partition first."""


def default_replication_factor(brokers: Sequence[int]) -> int:
    """Return the number of replicas of a partition that is created without one."""
    return min(MOST_REPLICAS_BY_DEFAULT, len(brokers))


def new_partitions(
    topic_id: uuid.UUID,
    indexes: Iterable[int],
    brokers: Sequence[int],
    replication_factor: int = 1,
    avoided: Collection[int] = (),
) -> Iterator[PartitionRecord]:
    """Yield the records of new partitions. The first replica leads, from leader epoch 0 on. The brokers take
    turns; the topic id chooses which of them has partition 0, so that topics of one partition are spread,
    too. Partitions that are added later continue the turns. The `avoided` brokers lead none, unless all are
    avoided. Source: Kafka's StripedReplicaPlacer, without racks.
    """
    first = int.from_bytes(topic_id.bytes[-8:], "big")
    leaders = [broker for broker in brokers if broker not in avoided] or brokers
    last = [broker for broker in brokers if broker not in leaders]
    for index in indexes:
        begin = (first + index) % len(leaders)
        replicas = (*leaders[begin:], *leaders[:begin], *last)[:replication_factor]
        yield new_partition(topic_id, index, replicas)


def new_partition(topic_id: uuid.UUID, index: int, replicas: tuple[int, ...]) -> PartitionRecord:
    """Return the record of a new partition on these replicas. The first one leads."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
    )
