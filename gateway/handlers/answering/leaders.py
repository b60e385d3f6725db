"""The parts of answers about leaders: a partition's state, and the leader of one led elsewhere (KIP-951)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering.api import RequestContext
from seqgate.gateway.metadata.records import PartitionRecord
from seqgate.gateway.protocol.fetch_codec import FetchRow
from seqgate.gateway.protocol.frames import NodeEndpoint
from seqgate.gateway.protocol.produce_codec import ProduceRow
from seqgate.gateway.runtime.partitions.registry import TopicPartitions
from seqgate.gateway.runtime.topics.brokers import NO_LEADER

FIRST_WITH_LISTENER_NOT_FOUND: Final = 6
"""The first version of Metadata with this error."""
NOT_LEADER: Final = int(ErrorCode.not_leader_or_follower)
Row = TypeVar("Row", FetchRow, ProduceRow)


class PartitionState(NamedTuple):
    """The state of a partition as clients see it."""

    error_code: ErrorCode
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


def partition_state(
    context: RequestContext[Any], image: PartitionRecord, topic: TopicPartitions | None, index: int
) -> PartitionState:
    """Return the state of a partition; one without a usable log has no leader, as on Kafka's failed disks."""
    brokers = context.node.brokers
    if brokers.leads(image) and (topic is None or topic.is_unusable(index)):
        leader, error = NO_LEADER, ErrorCode.leader_not_available
        offline: tuple[int, ...] = (context.node.node_id,)
    else:
        leader, error = _reachable_leader(context, image)
        offline = brokers.fenced_replicas_of(image)
    return PartitionState(
        error, leader, image.leader_epoch, brokers.replicas_of(image), brokers.isr_of(image), offline
    )


def _reachable_leader(context: RequestContext[Any], image: PartitionRecord) -> tuple[int, ErrorCode]:
    """Return the node id of the leader; -1 and an error where clients of this listener can't reach it.
    Source: Kafka's KRaftMetadataCache.partitionMetadata.
    """
    brokers = context.node.brokers
    leader = brokers.leader_of(image)
    if leader == NO_LEADER:
        return NO_LEADER, ErrorCode.leader_not_available
    if leader == context.node.node_id or brokers.find(leader, context.listener_name) is not None:
        return leader, ErrorCode.none
    if context.api_version < FIRST_WITH_LISTENER_NOT_FOUND:
        return NO_LEADER, ErrorCode.leader_not_available
    return NO_LEADER, ErrorCode.listener_not_found


def name_leaders(
    context: RequestContext[Any],
    topics: Sequence[tuple[str | bytes, Sequence[Row]]],
    error_codes: Collection[int],
    *,
    to_follower: bool = False,
) -> tuple[Sequence[tuple[str | bytes, Sequence[Row]]], Sequence[NodeEndpoint]]:
    """Return the rows, with the leader in those that have one of the errors, and these leaders' addresses. A
    follower learns only the node id: the leader does not know it as a replica. Source: Kafka's
    KafkaApis.getCurrentLeader, handleFetchRequest.
    """
    brokers = context.node.brokers
    endpoints: dict[int, NodeEndpoint] = {}
    named = []
    for key, rows in topics:
        told = list(rows)
        for position, row in enumerate(rows):
            leader = brokers.leader_in(key, row.partition) if row.error_code in error_codes else None
            if leader is None:
                continue
            if leader[0] == context.node.node_id and row.error_code == NOT_LEADER and not to_follower:
                continue  # The records of the partition are not here yet: the client asks again later.
            told[position] = row._replace(current_leader=leader)
            if to_follower:
                continue
            broker = brokers.find_live(leader[0], context.listener_name)
            if broker is not None:
                endpoints[broker.node_id] = NodeEndpoint(*broker[:4])
        named.append((key, told))
    return named, list(endpoints.values())
