"""AlterPartitionReassignments (key 45, versions 0-1): move partitions to other gateways. Rights: `ALTER` on
the cluster.

    replicas                            answer
    gateways, the leader too            accepted, and complete at once
    other gateways                      accepted: the leader hands over to the first that may lead
    gateways of which none may lead     INVALID_REPLICA_ASSIGNMENT
    null (cancel)                       the reassignment ends; without one NO_REASSIGNMENT_IN_PROGRESS
    any other list                      INVALID_REPLICA_ASSIGNMENT
    without ALTER on the cluster        CLUSTER_AUTHORIZATION_FAILED, for the request and each partition

All gateways share the records, so only the leadership of a partition moves. A gateway may lead if it is live
and not drained. Kafka accepts brokers in a controlled shutdown too, and the reassignment waits until they
have started again. A gateway alone is the only place for a partition. Source: Kafka's
ReplicationControlManager.alterPartitionReassignments, PartitionReassignmentReplicas.

ListPartitionReassignments (key 46, version 0): list the reassignments in progress. Rights: `DESCRIBE` on the
cluster.

One is in progress, with adding or removing replicas, until the leader has handed the partition over to one of
the new replicas (`move` in `metadata/leadership.py`). A refusal repeats the partitions of the request.
Source: Kafka's ReplicationControlManager.listPartitionReassignments, which lists no partition that is unknown
or not being moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import change_metadata_until_it_counts, log_change
from seqgate.gateway.handlers.answering.rights import cluster_refusal
from seqgate.gateway.metadata.decision import UNKNOWN_TOPIC_MESSAGE, ApiError, Decision, told
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.leadership import (
    has_adding_or_removing_replicas,
    next_record,
    reassigned_replicas,
    staying,
    without_reassignment_and_move,
)
from seqgate.gateway.metadata.records import MetadataRecord
from seqgate.gateway.metadata.topics import replicas_error
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.security.acls.access import Operation


async def handle_alter(context: RequestContext[TopicServices], request: Any) -> Any:
    """Order the moves of all partitions of the request in one change, and answer for each."""
    node_id = context.node.node_id
    allows_change = getattr(request, "allow_replication_factor_change", True)
    moved: list[str] = []

    def decide(image: MetadataImage) -> Decision[list[ApiError | None]]:
        moved.clear()
        outcomes: list[ApiError | None] = []
        records: list[MetadataRecord] = []
        for topic in request.topics:
            for partition in topic.partitions:
                index, replicas = partition.partition_index, partition.replicas
                decision = reassign(
                    image, topic.name, index, replicas, node_id, keeps_count=not allows_change
                )
                records += decision.records
                if decision.records:
                    wanted = "as before" if replicas is None else f"to {list(replicas)}"
                    moved.append(f"{topic.name}-{index} {wanted}")
                outcomes.append(decision.answer)
        return Decision(records, outcomes)

    denied = cluster_refusal(context, Operation.ALTER)
    found: list[ApiError | None] | ApiError = denied or []
    if denied is None and request.topics:
        found = await change_metadata_until_it_counts(
            context,
            decide,
            request.timeout,
            note=lambda _: log_change(context, "reassigned partition", moved),
        )
    refusal = found if isinstance(found, ApiError) else None
    outcomes = repeat(found) if isinstance(found, ApiError) else iter(found)
    no_message = None if request.topics else ""
    return context.answer(
        allow_replication_factor_change=allows_change,
        error_code=refusal.error_code if refusal else ErrorCode.none,
        error_message=denied.message if denied else no_message,
        responses=tuple([await _topic(context, topic, outcomes) for topic in request.topics]),
    )


def reassign(
    image: MetadataImage,
    name: str,
    index: int,
    replicas: Sequence[int] | None,
    node_id: int,
    *,
    keeps_count: bool = False,
) -> Decision[ApiError | None]:
    """Reassign a partition to other replicas, at once unless the leader is none of them: it then hands over
    to the first that may lead. None ends the reassignment in progress. `node_id` is the gateway that decides.
    With `keeps_count` another number of replicas is refused (KIP-860).
    """
    topic = image.topics_by_name.get(name)
    if topic is None:
        return Decision((), ApiError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC_MESSAGE))
    partition = topic.partitions.get(index)
    if partition is None:
        return Decision(
            (), ApiError(ErrorCode.unknown_topic_or_partition, "The topic has no such partition.")
        )
    live = image.brokers.live(node_id)
    if replicas is None:
        if not has_adding_or_removing_replicas(partition):
            return Decision((), ApiError(ErrorCode.no_reassignment_in_progress))
        return Decision((staying(partition, live),), None)
    error = replicas_error(replicas, image.brokers.by_id or live)
    if error is not None or not image.brokers.by_id:
        return Decision((), error)
    count = len(reassigned_replicas(partition))
    if keeps_count and count != len(replicas):
        message = f"The replication factor is changed from {count} to {len(replicas)}"
        return Decision((), ApiError(ErrorCode.invalid_replication_factor, message))
    before = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    target = tuple(replicas)
    live_target = tuple(replica for replica in target if replica in live)
    avoided = set(image.brokers.draining()) - {partition.leader}
    able = [replica for replica in live_target if replica not in avoided]
    if not able:
        message = f"None of the brokers {list(target)} is live and not drained."
        return Decision((), ApiError(ErrorCode.invalid_replica_assignment, message))
    removing = tuple(replica for replica in before if replica not in target)
    if partition.leader in target or partition.leader not in live:
        changed = without_reassignment_and_move(partition, target, live_target)
    else:
        adding = tuple(replica for replica in target if replica not in before)
        changed = next_record(
            partition,
            replicas=target + removing,
            adding_replicas=adding,
            removing_replicas=removing,
            next_leader=able[0],
        )
    is_same = changed.replicas == partition.replicas and changed.next_leader == partition.next_leader
    return Decision(() if is_same else (changed,), None)


async def _topic(
    context: RequestContext[TopicServices], topic: Any, outcomes: Iterator[ApiError | None]
) -> Any:
    rows = []
    async for partition in in_slices(topic.partitions):
        index, outcome = partition.partition_index, told(next(outcomes))
        rows.append(context.row("ReassignablePartitionResponse", partition_index=index, **outcome))
    return context.row("ReassignableTopicResponse", name=topic.name, partitions=tuple(rows))


async def handle_list(context: RequestContext[TopicServices], request: Any) -> Any:
    """Return the reassignments in progress of the named partitions (all without names), or the refusal."""
    denied = cluster_refusal(context, Operation.DESCRIBE)
    by_name = context.services.metadata_log.image.topics_by_name
    if request.topics is None:
        named = [] if denied else [(topic.name, list(topic.partitions)) for topic in by_name.values()]
    else:
        named = [(topic.name, list(topic.partition_indexes)) for topic in request.topics]
    topics = []
    async for name, indexes in in_slices(named):
        topic = None if denied else by_name.get(name)
        partitions = []
        async for index in in_slices(indexes if denied or topic is not None else ()):
            partition = None if topic is None else topic.partitions.get(index)
            if denied:
                partitions.append(_row(context, index))
            elif partition is not None and has_adding_or_removing_replicas(partition):
                moved = partition.replicas, partition.adding_replicas, partition.removing_replicas
                partitions.append(_row(context, index, *moved))
        if partitions or denied:
            topics.append(context.row("OngoingTopicReassignment", name=name, partitions=tuple(partitions)))
    return context.answer(**told(denied), topics=tuple(topics))


def _row(
    context: RequestContext[TopicServices],
    index: int,
    replicas: Sequence[int] = (),
    adding: Sequence[int] = (),
    removing: Sequence[int] = (),
) -> Any:
    return context.row(
        "OngoingPartitionReassignment",
        partition_index=index,
        replicas=tuple(replicas),
        adding_replicas=tuple(adding),
        removing_replicas=tuple(removing),
    )


LIST_PARTITION_REASSIGNMENTS_API = Api(key=46, versions=(0, 0), reaches=api.topics, handle=handle_list)


ALTER_PARTITION_REASSIGNMENTS_API = Api(
    key=45, versions=(0, 1), reaches=api.topics, handle=handle_alter, is_long=True, may_be_given_up=True
)
