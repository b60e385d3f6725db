"""ElectLeaders (key 43, versions 0-2): elect the leader of partitions. Rights: `ALTER` on the cluster.

    preferred election                  answer: the first row that fits
    the preferred gateway is not live   PREFERRED_LEADER_NOT_AVAILABLE, whoever leads
    it is drained, and another leads    PREFERRED_LEADER_NOT_AVAILABLE
    another gateway leads               none, once that one has handed over to the preferred gateway
    it leads here without a usable log  PREFERRED_LEADER_NOT_AVAILABLE
    it leads                            ELECTION_NOT_NEEDED

    unclean election                    answer: the first row that fits
    the leader is not live              ELIGIBLE_LEADERS_NOT_AVAILABLE
    it leads here without a usable log  ELIGIBLE_LEADERS_NOT_AVAILABLE
    it leads                            ELECTION_NOT_NEEDED, also if another gateway is preferred

    both                                answer
    an unknown partition                UNKNOWN_TOPIC_OR_PARTITION
    any, without ALTER on the cluster   CLUSTER_AUTHORIZATION_FAILED, for the request and each partition

The preferred gateway is the first replica. A gateway alone leads every partition, and is preferred for each.
A gateway knows of unusable logs only where it leads itself. A preferred election waits until the metadata
names the new leader, or the time is up (REQUEST_TIMED_OUT; the move goes on). An unclean one never moves a
partition: the gateways themselves give those of a gateway that is gone to live ones. A request without a list
means all topics, and its answer lists no partition that needed no election.
Source: Kafka's ReplicationControlManager.electLeaders, QuorumController.electLeaders.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import log_change
from seqgate.gateway.handlers.answering.limits import TimeLimit, places_to_answer
from seqgate.gateway.handlers.answering.rights import cluster_refusal
from seqgate.gateway.metadata.decision import UNKNOWN_TOPIC_MESSAGE, ApiError, Decision, told
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.leadership import order_move
from seqgate.gateway.metadata.records import MetadataRecord
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.topics.brokers import NO_LEADER
from seqgate.gateway.security.acls.access import Operation
from seqgate.log import LogError

logger = logging.getLogger(__name__)


_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_NOT_NEEDED: Final = ApiError(
    ErrorCode.election_not_needed, "Leader election not needed for topic partition."
)
_NO_LEADER_CODES: Final = {
    _PREFERRED: ErrorCode.preferred_leader_not_available,
    _UNCLEAN: ErrorCode.eligible_leaders_not_available,
}


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Answer for each partition of the request; refuse a wrong request as a whole and for each partition."""
    kind = getattr(request, "election_type", _PREFERRED)
    refusal = cluster_refusal(context, Operation.ALTER) or _refusal(context, request, kind)
    held: dict[TopicPartition, ApiError] = {}
    if refusal is None and kind == _PREFERRED and not context.node.brokers.is_alone:
        held = await elect_preferred(context, request)
    return context.answer(
        error_code=refusal.error_code if refusal else ErrorCode.none,
        replica_election_results=await _results(context, request.topic_partitions, kind, refusal, held),
    )


def _refusal(context: RequestContext[Services], request: Any, kind: int) -> ApiError | None:
    if request.topic_partitions is not None and not request.topic_partitions:
        return None
    if TimeLimit(context, request.timeout).left_s <= 0:
        return ApiError(ErrorCode.request_timed_out)
    if kind not in {_PREFERRED, _UNCLEAN}:
        return ApiError(ErrorCode.invalid_request, f"Unknown election type {kind}")
    return None


async def _results(
    context: RequestContext[Services],
    asked: Any,
    kind: int,
    refusal: ApiError | None,
    held: Mapping[TopicPartition, ApiError],
) -> tuple[Any, ...]:
    """Return the rows of the partitions of the request; None stands for all topics, each with the partitions
    that were elected, or have no leader.
    """
    places: Iterable[tuple[str, Sequence[int]]]
    if asked is not None:
        places = places_to_answer([(entry.topic, entry.partitions) for entry in asked])
    else:
        topics = context.services.topics.metadata_log.image.topics_by_name.values()
        places = [] if refusal else [(topic.name, list(topic.partitions)) for topic in topics]
    results = []
    for topic, indexes in places:
        rows = []
        async for index in in_slices(indexes):
            outcome = refusal or held.get((topic, index)) or _outcome(context, topic, index, kind)
            if asked is not None or outcome is not _NOT_NEEDED:
                rows.append(context.row("PartitionResult", partition_id=index, **told(outcome)))
        results.append(context.row("ReplicaElectionResult", topic=topic, partition_result=tuple(rows)))
    return tuple(results)


def _outcome(context: RequestContext[Services], name: str, index: int, kind: int) -> ApiError:
    topic = context.services.topics.metadata_log.image.topics_by_name.get(name)
    if topic is None:
        return ApiError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC_MESSAGE)
    partition = topic.partitions.get(index)
    if partition is None:
        return ApiError(ErrorCode.unknown_topic_or_partition, "The topic has no such partition.")
    brokers = context.node.brokers
    if brokers.leader_of(partition) == NO_LEADER:
        return ApiError(_NO_LEADER_CODES[kind], f"Broker {partition.leader} is not live.")
    logs = context.services.partitions.registry.by_name.get(name)
    if brokers.leads(partition) and (logs is None or logs.is_unusable(index)):
        return ApiError(_NO_LEADER_CODES[kind], "The log of the partition is offline; see `seqgate status`.")
    return _NOT_NEEDED


# Elections of preferred leaders in a cluster: each leader is ordered to hand over, and the request waits
# until it has.

_ELECTED: Final = ApiError(ErrorCode.none)
_LATE: Final = ApiError(ErrorCode.request_timed_out, "The move is not complete yet and continues.")


async def elect_preferred(context: RequestContext[Services], request: Any) -> dict[TopicPartition, ApiError]:
    """Move partitions to their preferred leaders; return the outcome for each that needed an election."""
    limit = TimeLimit(context, request.timeout)
    outcomes: dict[TopicPartition, ApiError] = {}
    targets: dict[TopicPartition, int] = {}

    def decide(image: MetadataImage) -> Decision[None]:
        outcomes.clear()
        targets.clear()
        records: list[MetadataRecord] = []
        for name, index in _asked(image, request):
            topic = image.topics_by_name[name]
            partition = topic.partitions[index]
            preferred = partition.replicas[0]
            if preferred == partition.leader and preferred in image.brokers.live(preferred):
                continue
            decision = order_move(image, topic.topic_id, index, preferred)
            if decision.answer is not None:
                outcomes[name, index] = decision.answer
                continue
            records += decision.records
            targets[name, index] = preferred
        return Decision(records, None)

    def refused(error: ApiError) -> dict[TopicPartition, ApiError]:
        if not targets and not outcomes:
            decide(context.services.topics.metadata_log.image)  # it ended before anything was decided
        return dict.fromkeys(targets, error) | outcomes

    def note(_: object) -> None:
        log_change(context, "elected the preferred leader of", [f"{name}-{index}" for name, index in targets])

    try:
        await limit.run(context.services.topics.metadata_log.commit(decide), late=note)
    except TimeoutError:
        return refused(_LATE)
    except LogError as error:
        logger.error("elections of preferred leaders failed: %s", error)  # noqa: TRY400 - an expected error
        return refused(ApiError(ErrorCode(error.kafka_error_code), str(error)))
    note(None)
    await context.services.topics.waiters.until(
        lambda image: all(_leads(image, place, to) for place, to in targets.items()), max(0.0, limit.left_s)
    )
    image = context.services.topics.metadata_log.image
    moved = {place: _ELECTED if _leads(image, place, to) else _LATE for place, to in targets.items()}
    return moved | outcomes


def _asked(image: MetadataImage, request: Any) -> list[TopicPartition]:
    if request.topic_partitions is None:
        return [(topic.name, index) for topic in image.topics_by_name.values() for index in topic.partitions]
    named = [(entry.topic, index) for entry in request.topic_partitions for index in entry.partitions]
    return [
        (name, index)
        for name, index in dict.fromkeys(named)
        if name in image.topics_by_name and index in image.topics_by_name[name].partitions
    ]


def _leads(image: MetadataImage, place: TopicPartition, node_id: int) -> bool:
    """Whether the node leads the partition by now; True, too, if the topic was deleted meanwhile."""
    partition = image.partition_named(*place)
    return partition is None or partition.leader == node_id


API = Api(key=43, versions=(0, 2), reaches=api.everything, handle=handle, is_long=True, may_be_given_up=True)
