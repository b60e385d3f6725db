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
from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import change_metadata_until_it_counts, log_change
from seqgate.gateway.handlers.answering.limits import TimeLimit
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

_ACCEPTED = ApiError(ErrorCode.none)


async def handle_alter_partition_reassignments(context: RequestContext[TopicServices], request: Any) -> Any:
    """Order the moves of all partitions of the request in one change, and answer for each."""
    denied = cluster_refusal(context, Operation.ALTER)
    is_late = bool(request.topics) and TimeLimit(context, request.timeout).left_s <= 0
    refusal = denied or (ApiError(ErrorCode.request_timed_out) if is_late else None)
    outcomes: list[ApiError] = []
    if refusal is None:
        refusal = await _carry_out(context, request, outcomes)
    told = iter(outcomes)
    allows_change = getattr(request, "allow_replication_factor_change", True)
    return context.answer(
        allow_replication_factor_change=allows_change,
        error_code=refusal.error_code if refusal else ErrorCode.none,
        error_message=_message(denied, request),
        responses=tuple([await _topic(context, topic, told, refusal) for topic in request.topics]),
    )


def _message(denied: ApiError | None, request: Any) -> str | None:
    if denied is not None:
        return denied.message
    return None if request.topics else ""


async def _carry_out(
    context: RequestContext[TopicServices], request: Any, outcomes: list[ApiError]
) -> ApiError | None:
    """Reassign; put outcomes into `outcomes` in request order; return the refusal of the whole request."""
    node_id = context.node.node_id
    keeps_count = not getattr(request, "allow_replication_factor_change", True)

    moved: list[str] = []

    def decide(image: MetadataImage) -> Decision[None]:
        outcomes.clear()
        moved.clear()
        records: list[MetadataRecord] = []
        for topic in request.topics:
            for partition in topic.partitions:
                index = partition.partition_index
                decision = reassign(
                    image, topic.name, index, partition.replicas, node_id, keeps_count=keeps_count
                )
                records += decision.records
                if decision.records:
                    moved.append(_described(topic.name, index, partition.replicas))
                outcomes.append(decision.answer or _ACCEPTED)
        return Decision(records, None)

    if not request.topics:
        return None
    return await change_metadata_until_it_counts(
        context, decide, request.timeout, note=lambda _: log_change(context, "reassigned partition", moved)
    )


def _described(topic: str, index: int, replicas: Sequence[int] | None) -> str:
    wanted = "as before" if replicas is None else f"to {list(replicas)}"
    return f"{topic}-{index} {wanted}"


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
    context: RequestContext[TopicServices], topic: Any, outcomes: Iterator[ApiError], refusal: ApiError | None
) -> Any:
    rows = []
    async for partition in in_slices(topic.partitions):
        outcome = refusal or next(outcomes)
        rows.append(
            context.row(
                "ReassignablePartitionResponse", partition_index=partition.partition_index, **told(outcome)
            )
        )
    return context.row("ReassignableTopicResponse", name=topic.name, partitions=tuple(rows))


async def handle_list_partition_reassignments(context: RequestContext[TopicServices], request: Any) -> Any:
    """Return the reassignments in progress of the named partitions (all without names), or the refusal."""
    denied = cluster_refusal(context, Operation.DESCRIBE)
    error = denied or ApiError(ErrorCode.none)
    if denied is not None:
        topics = [_unanswered(context, topic) async for topic in in_slices(request.topics or ())]
    else:
        topics = await _ongoing(context, request.topics)
    return context.answer(**told(error), topics=tuple(topics))


async def _ongoing(context: RequestContext[TopicServices], asked: Any) -> list[Any]:
    by_name = context.services.metadata_log.image.topics_by_name
    if asked is None:
        named = [(topic.name, list(topic.partitions)) for topic in by_name.values()]
    else:
        named = [(topic.name, list(topic.partition_indexes)) for topic in asked]
    topics = []
    async for name, indexes in in_slices(named):
        topic = by_name.get(name)
        partitions = tuple(
            _row(context, index, partition.replicas, partition.adding_replicas, partition.removing_replicas)
            for index in indexes
            if topic is not None
            and (partition := topic.partitions.get(index)) is not None
            and has_adding_or_removing_replicas(partition)
        )
        if partitions:
            topics.append(context.row("OngoingTopicReassignment", name=name, partitions=partitions))
    return topics


def _unanswered(context: RequestContext[TopicServices], topic: Any) -> Any:
    partitions = tuple(_row(context, index, (), (), ()) for index in topic.partition_indexes)
    return context.row("OngoingTopicReassignment", name=topic.name, partitions=partitions)


def _row(
    context: RequestContext[TopicServices],
    index: int,
    replicas: Sequence[int],
    adding: Sequence[int],
    removing: Sequence[int],
) -> Any:
    return context.row(
        "OngoingPartitionReassignment",
        partition_index=index,
        replicas=tuple(replicas),
        adding_replicas=tuple(adding),
        removing_replicas=tuple(removing),
    )


LIST_PARTITION_REASSIGNMENTS_API = Api(
    key=46, versions=(0, 0), reaches=api.topics, handle=handle_list_partition_reassignments
)


ALTER_PARTITION_REASSIGNMENTS_API = Api(
    key=45,
    versions=(0, 1),
    reaches=api.topics,
    handle=handle_alter_partition_reassignments,
    is_long=True,
    may_be_given_up=True,
)
