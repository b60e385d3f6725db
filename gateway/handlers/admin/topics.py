"""Topics: created, enlarged by partitions, and deleted.

CreateTopics (key 19, versions 2-7): create topics with their partitions and configurations. Rights:
`CREATE` on the cluster; `CREATE` on the topic (or this); `DESCRIBE_CONFIGS` on the topic (else the answer has
no configuration).

Each topic succeeds or fails by itself. The answer leaves when the topics are durable, and the other gateways
know them or are late; a log is created when it is first used. From v5 on the answer has the effective
configuration, from v7 on the topic id. While no gateway has joined the cluster, which a gateway does right
after its start, the error is NOT_CONTROLLER, upon which clients retry.

The right is checked before anything but repeated names and that of the metadata log, so a refusal does not
tell whether the topic exists; refused topics are listed last. From v5 on a topic is created for a client
without DESCRIBE_CONFIGS on it, too, but its configuration and numbers stay out of the answer. What else a
topic needs, `create_topics` in `metadata/topics.py` decides. Source: Kafka's ControllerApis.createTopics,
ReplicationControlManager.createTopic.

CreatePartitions (key 37, versions 0-3): add partitions to existing topics. Rights: `ALTER` on the topic.

The right is checked before anything but repeated names, so a refusal does not tell whether the topic exists.
Source: Kafka's ControllerApis.createPartitions, ReplicationControlManager.createPartitions.

DeleteTopics (key 20, versions 1-6): delete topics by name, from v6 on also by id. Rights: `DELETE` on the
cluster; `DELETE` on the topic (or this, and DESCRIBE where the topic is named); `DESCRIBE` on the topic (to
learn whether the name exists, or the name of an id).

TOPIC_AUTHORIZATION_FAILED has the name of a topic deleted by id only if the client may describe the topic. By
name it does not tell whether a topic exists that the client may not describe; ids are not secret. The results
come in the order of the request; Kafka shuffles them. Source: Kafka's ControllerApis.deleteTopics.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.config.config import Config
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import (
    change_metadata_until_it_counts,
    fresh_id,
    log_change,
    partitions_text,
)
from seqgate.gateway.handlers.answering.rights import NOTHING, has_on_cluster, refused_topics, unseen_topics
from seqgate.gateway.metadata.decision import (
    UNKNOWN_TOPIC_ID_MESSAGE,
    UNKNOWN_TOPIC_MESSAGE,
    ApiError,
    Decision,
    told,
)
from seqgate.gateway.metadata.described import describe_topic
from seqgate.gateway.metadata.image import INTERNAL_TOPICS, METADATA_TOPIC, MetadataImage, TopicImage
from seqgate.gateway.metadata.records import MetadataRecord, PartitionRecord, RemoveTopicRecord
from seqgate.gateway.metadata.topics import (
    MAX_PARTITIONS_PER_REQUEST,
    NOBODY_LEADS,
    PartitionRoom,
    TopicCreation,
    TopicResult,
    all_refused,
    create_topics,
    doubled,
    new_partition,
    new_partitions,
    replicas_error,
)
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.runtime.topics.metadata_log import Decide
from seqgate.gateway.security.acls.access import Operation

FIRST_WITH_CONFIGS: Final = 5
CREATE_TOPICS_STRICT_SINCE: Final = 6
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""
_DENIED: Final = ApiError(ErrorCode.topic_authorization_failed, "Authorization failed.")


async def handle_create_topics(context: RequestContext[TopicServices], request: Any) -> Any:
    """Create the topics, or only check them when `validate_only` is set."""
    node = context.node
    denied = await _denied(context, request.topics)
    undescribed: AbstractSet[str] = NOTHING
    if context.api_version >= FIRST_WITH_CONFIGS:
        names = (topic.name for topic in request.topics)
        undescribed = await unseen_topics(context, Operation.DESCRIBE_CONFIGS, names)
    topics = [(_new_topic(topic), fresh_id()) for topic in request.topics if topic.name not in denied]
    decide = charge_mutations(
        context,
        topics,
        lambda image, some: create_topics(
            image,
            [topic for topic, _ in some],
            fresh_ids=[fresh_id for _, fresh_id in some],
            config=node.config,
            node_id=node.node_id,
            validate_only=request.validate_only,
        ),
        key=lambda pair: pair[0].name,
        partitions=lambda _, result: result.num_partitions,
        strict_since=CREATE_TOPICS_STRICT_SINCE,
    )

    def note(results: Sequence[TopicResult]) -> None:
        created = [result for result in results if not result.error]
        names = [f"{topic.name} ({partitions_text(topic.num_partitions)})" for topic in created]
        if not request.validate_only:
            log_change(context, "created topic", names)

    asked = [topic.name for topic, _ in topics]
    results = await _results_once_durable(context, decide, request.timeout, note, asked)
    results += [TopicResult(name=name, error=_DENIED) for name in sorted(denied)]
    return context.answer(
        topics=tuple([_result(context, result, undescribed) async for result in in_slices(results)])
    )


async def _results_once_durable(
    context: RequestContext[TopicServices],
    decide: Decide[list[TopicResult]],
    time_limit: timedelta,
    note: Callable[[list[TopicResult]], None],
    names: Iterable[str],
) -> list[TopicResult]:
    """Carry out the change; return its results once it is durable and known, or the error of the whole change
    for each name.
    """
    results = await change_metadata_until_it_counts(context, decide, time_limit, note=note)
    if isinstance(results, ApiError):
        return [TopicResult(name=name, error=results) for name in names]
    return results


async def _denied(context: RequestContext[TopicServices], topics: Sequence[Any]) -> AbstractSet[str]:
    """Return the names of the topics that the client may not create. Repeated names and the name of the
    metadata log are refused for that, whatever the client may do.
    """
    if has_on_cluster(context, Operation.CREATE):
        return NOTHING
    times = Counter(topic.name for topic in topics)
    asked = (name for name, count in times.items() if count == 1 and name != METADATA_TOPIC)
    return await refused_topics(context, Operation.CREATE, asked)


def _new_topic(topic: Any) -> TopicCreation:
    return TopicCreation(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(entry.partition_index, entry.broker_ids) for entry in topic.assignments],
        configs=[(entry.name, entry.value) for entry in topic.configs],
    )


def _result(
    context: RequestContext[TopicServices], result: TopicResult, undescribed: AbstractSet[str]
) -> Any:
    shown: dict[str, Any] = {"topic_id": None, "num_partitions": -1, "replication_factor": -1, "configs": ()}
    if result.error is None:
        shown["topic_id"] = result.topic_id
        if result.name in undescribed:
            shown["topic_config_error_code"] = int(ErrorCode.topic_authorization_failed)
        else:
            shown["num_partitions"] = result.num_partitions
            shown["replication_factor"] = result.replication_factor
            shown["configs"] = _effective_configs(context, result)
    return context.row("CreatableTopicResult", name=result.name, **told(result.error), **shown)


def _effective_configs(context: RequestContext[TopicServices], result: TopicResult) -> list[dict[str, Any]]:
    if context.api_version < FIRST_WITH_CONFIGS:
        return []
    return [
        {
            "name": described.name,
            "value": described.value,
            "read_only": described.read_only,
            "config_source": described.source,
            "is_sensitive": described.is_sensitive,
        }
        for described in describe_topic(context.node.config, result.configs or {})
    ]


class MorePartitions(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that shall have `count` partitions; `assignments` has the brokers of each new one."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


CREATE_PARTITIONS_STRICT_SINCE: Final = 3
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""


async def handle_create_partitions(context: RequestContext[TopicServices], request: Any) -> Any:
    """Add the partitions, or only check the request when `validate_only` is set."""
    node = context.node
    times = Counter(topic.name for topic in request.topics)
    once = (name for name, count in times.items() if count == 1)
    denied = await refused_topics(context, Operation.ALTER, once)
    topics = [
        _more_partitions(topic) async for topic in in_slices(request.topics) if topic.name not in denied
    ]
    counts = {topic.name: topic.count for topic in topics}
    decide = charge_mutations(
        context,
        topics,
        lambda image, some: create_partitions(
            image, some, config=node.config, node_id=node.node_id, validate_only=request.validate_only
        ),
        key=lambda topic: topic.name,
        partitions=lambda image, result: _added(image, str(result.name), counts),
        strict_since=CREATE_PARTITIONS_STRICT_SINCE,
    )

    def note(results: Sequence[TopicResult]) -> None:
        grown = [str(result.name) for result in results if not result.error]
        if not request.validate_only:
            log_change(
                context, "added partitions to topic", [f"{name} (now {counts[name]})" for name in grown]
            )

    names = [topic.name for topic in topics]
    results = await _results_once_durable(context, decide, request.timeout, note, names)
    refusal = ApiError(ErrorCode.topic_authorization_failed)
    results = [TopicResult(name=name, error=refusal) for name in sorted(denied)] + results
    rows = [
        context.row("CreatePartitionsTopicResult", name=result.name, **told(result.error))
        async for result in in_slices(results)
    ]
    return context.answer(results=tuple(rows))


def create_partitions(
    image: MetadataImage,
    topics: Sequence[MorePartitions],
    *,
    config: Config,
    node_id: int,
    validate_only: bool = False,
) -> Decision[list[TopicResult]]:
    """Add partitions to topics. A topic that the request repeats is INVALID_REQUEST. A request for too many
    partitions adds none.
    """
    times = Counter(topic.name for topic in topics)
    if _additional(image, [topic for topic in topics if times[topic.name] == 1]) > MAX_PARTITIONS_PER_REQUEST:
        text = "Excessively large number of additional partitions per request."
        return Decision((), all_refused(times, text))
    results = doubled(times)
    records: list[MetadataRecord] = []
    room = PartitionRoom(image, config)
    brokers = image.brokers.live(node_id)
    for topic in topics:
        if times[topic.name] > 1:
            continue
        found = image.topics_by_name.get(topic.name)
        error = _increase_error(found, topic, brokers)
        if found is not None and error is None:
            present = len(found.partitions)
            error = room.take(topic.count - present)
            if error is None:
                records.extend(_records_of_added(found, topic, brokers, image.brokers.draining()))
        results.append(TopicResult(name=topic.name, error=error))
    return Decision(() if validate_only else records, results)


def _additional(image: MetadataImage, topics: Iterable[MorePartitions]) -> int:
    known = ((topic.count, image.topics_by_name.get(topic.name)) for topic in topics)
    return sum(max(0, count - len(found.partitions)) for count, found in known if found is not None)


def _records_of_added(
    found: TopicImage, topic: MorePartitions, brokers: Sequence[int], avoided: Sequence[int]
) -> Iterator[PartitionRecord]:
    present = len(found.partitions)
    if topic.assignments is not None:
        return (
            new_partition(found.topic_id, index, tuple(replicas))
            for index, replicas in enumerate(topic.assignments, start=present)
        )
    replication_factor = min(_replication_factor(found), len(brokers))
    return new_partitions(found.topic_id, range(present, topic.count), brokers, replication_factor, avoided)


def _replication_factor(topic: TopicImage) -> int:
    return len(topic.partitions[0].replicas)


def _increase_error(
    found: TopicImage | None, topic: MorePartitions, brokers: Sequence[int]
) -> ApiError | None:
    if found is None:
        return ApiError(ErrorCode.unknown_topic_or_partition, None)
    if topic.name in INTERNAL_TOPICS:
        return ApiError(
            ErrorCode.invalid_partitions,
            f"The partitions of {topic.name} can't change: their number decides where each group or "
            "transactional id is stored.",
        )
    if not brokers:
        return NOBODY_LEADS
    present = len(found.partitions)
    if topic.count == present:
        return ApiError(ErrorCode.invalid_partitions, f"Topic already has {present} partition(s).")
    if topic.count < present:
        return ApiError(
            ErrorCode.invalid_partitions,
            f"The topic {topic.name} currently has {present} partition(s); {topic.count} would not be an "
            "increase.",
        )
    if topic.assignments is None:
        return None
    additional = topic.count - present
    if len(topic.assignments) != additional:
        return ApiError(
            ErrorCode.invalid_replica_assignment,
            f"{additional} partition(s) would be added, but {len(topic.assignments)} assignment(s) were "
            "given.",
        )
    for replicas in topic.assignments:
        error = replicas_error(replicas, brokers, _replication_factor(found))
        if error:
            return error
    return None


def _added(image: MetadataImage, name: str, counts: Mapping[str, int]) -> int:
    return counts[name] - len(image.topics_by_name[name].partitions)


def _more_partitions(topic: Any) -> MorePartitions:
    assignments = topic.assignments
    return MorePartitions(
        name=topic.name,
        count=topic.count,
        assignments=None if assignments is None else [entry.broker_ids for entry in assignments],
    )


CREATE_PARTITIONS_API = Api(key=37, versions=(0, 3), reaches=api.topics, handle=handle_create_partitions)


FIRST_WITH_DELETION_DISABLED: Final = 3
DELETE_TOPICS_STRICT_SINCE: Final = 5
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""


class TopicToDelete(msgspec.Struct, frozen=True, kw_only=True):
    name: str | None = None
    topic_id: uuid.UUID | None = None


May = Callable[[Operation, str], bool]
"""Returns whether the client may carry out an operation on the topic of a name."""


async def handle_delete_topics(context: RequestContext[TopicServices], request: Any) -> Any:
    """Delete the topics, unless `delete.topic.enable` is off."""
    asked = request.topics if context.api_version >= 6 else request.topic_names
    topics = [_topic_to_delete(topic) async for topic in in_slices(asked)]
    if context.node.config.bool("delete.topic.enable"):
        results = await _delete_topics(context, topics, request.timeout)
    else:
        has_code = context.api_version >= FIRST_WITH_DELETION_DISABLED
        code = ErrorCode.topic_deletion_disabled if has_code else ErrorCode.invalid_request
        error = ApiError(code, "Topic deletion is disabled.")
        results = [_refused(topic, error) for topic in topics]
    rows = [
        context.row("DeletableTopicResult", name=result.name, topic_id=result.topic_id, **told(result.error))
        async for result in in_slices(results)
    ]
    return context.answer(responses=tuple(rows))


def _topic_to_delete(asked: Any) -> TopicToDelete:
    if isinstance(asked, str):
        return TopicToDelete(name=asked)
    return TopicToDelete(name=asked.name, topic_id=asked.topic_id)


async def _delete_topics(
    context: RequestContext[TopicServices], asked: Sequence[TopicToDelete], time_limit: timedelta
) -> list[TopicResult]:
    """Delete the topics, and return the result of each. The decision holds up other requests and may be made
    again, so the rights are checked before it, each once.
    """
    may: May | None = None if has_on_cluster(context, Operation.DELETE) else cache(context.may_topic)
    refusals = await _deletion_refusals(context, asked, may)
    topics = [topic for topic, refusal in refusals.items() if refusal is None]
    ids = {topic.topic_id for topic in asked if topic.name is None and topic.topic_id is not None}
    decide = charge_mutations(
        context,
        topics,
        lambda image, some: delete_topics(image, some, may, ids=ids),
        key=lambda topic: topic.name or topic.topic_id,
        partitions=lambda image, result: len(image.topics_by_name[str(result.name)].partitions),
        strict_since=DELETE_TOPICS_STRICT_SINCE,
    )

    def note(results: Sequence[TopicResult]) -> None:
        deleted = [str(result.name) for result in results if not result.error]
        log_change(context, "deleted topic", deleted)

    decided = await change_metadata_until_it_counts(context, decide, time_limit, note=note)
    if isinstance(decided, ApiError):
        decided = [_refused(topic, decided) for topic in topics]
    return [*(refusal for refusal in refusals.values() if refusal is not None), *decided]


async def _deletion_refusals(
    context: RequestContext[TopicServices], topics: Sequence[TopicToDelete], may: May | None
) -> dict[TopicToDelete, TopicResult | None]:
    """Return the topics, each once, with the results of those that are refused for now and ever."""
    times = Counter(topics)
    image = context.services.metadata_log.image
    refusals: dict[TopicToDelete, TopicResult | None] = {}
    async for topic in in_slices(times):
        error = _deletion_error(topic, is_repeated=times[topic] > 1)
        if error is not None:
            refusals[topic] = _refused(topic, error)
        else:
            refusals[topic] = None if may is None else _denial(topic, _find(image, topic), may)
    return refusals


def _refused(topic: TopicToDelete, error: ApiError) -> TopicResult:
    return TopicResult(name=topic.name, topic_id=topic.topic_id, error=error)


def delete_topics(
    image: MetadataImage,
    topics: Sequence[TopicToDelete],
    may: May | None = None,
    *,
    ids: AbstractSet[uuid.UUID] = frozenset(),
) -> Decision[list[TopicResult]]:
    """Delete topics. A name or id that the request repeats is INVALID_REQUEST, and so is a topic given
    by name and by id: it gets one result, and stays. `may` is None if the client may delete all topics; `ids`
    are all ids of the request, those too that were refused before because the request repeats them.
    Source: Kafka's ControllerApis.deleteTopics.
    """
    results: list[TopicResult] = []
    records: list[MetadataRecord] = []
    times = Counter(topics)
    for topic, count in times.items():
        error = _deletion_error(topic, is_repeated=count > 1)
        found = None if error else _find(image, topic)
        denied = None if error or may is None else _denial(topic, found, may)
        if denied is not None:
            results.append(denied)
        elif found is None:
            results.append(_refused(topic, error or _not_found(topic)))
        elif topic.name is not None and found.topic_id in ids:
            text = "The provided topic name maps to an ID that was already supplied."
            error = ApiError(ErrorCode.invalid_request, text)
            results.append(TopicResult(name=found.name, topic_id=found.topic_id, error=error))
        elif topic.name is None and times[TopicToDelete(name=found.name)] == 1 and _describes(may, found):
            continue  # the topic's name gets the result
        else:
            records.append(RemoveTopicRecord(found.topic_id))
            results.append(TopicResult(name=found.name, topic_id=found.topic_id))
    return Decision(records, results)


def _describes(may: May | None, topic: TopicImage) -> bool:
    return may is None or may(Operation.DESCRIBE, topic.name)


def _find(image: MetadataImage, topic: TopicToDelete) -> TopicImage | None:
    if topic.name is not None:
        return image.topics_by_name.get(topic.name)
    return None if topic.topic_id is None else image.topics_by_id.get(topic.topic_id)


def _denial(topic: TopicToDelete, found: TopicImage | None, may: May) -> TopicResult | None:
    """Return the result of a topic that the client may not delete, or must not find. A client that may not
    describe the topic learns neither whether its name exists nor the name of its id.
    """
    name = topic.name if found is None else found.name
    if name is None:
        return None
    describes, deletes = may(Operation.DESCRIBE, name), may(Operation.DELETE, name)
    error = ApiError(ErrorCode.topic_authorization_failed, "Topic authorization failed.")
    if topic.name is not None:
        is_allowed = describes and (found is None or deletes)
        return None if is_allowed else TopicResult(name=name, error=error)
    shown = name if describes else None
    return None if deletes else TopicResult(name=shown, topic_id=topic.topic_id, error=error)


def _not_found(topic: TopicToDelete) -> ApiError:
    if topic.name is not None:
        return ApiError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC_MESSAGE)
    return ApiError(ErrorCode.unknown_topic_id, UNKNOWN_TOPIC_ID_MESSAGE)


def _deletion_error(topic: TopicToDelete, *, is_repeated: bool) -> ApiError | None:
    text = None
    if topic.name is None and topic.topic_id is None:
        text = "Neither topic name nor id were specified."
    elif topic.name is not None and topic.topic_id is not None:
        text = "You may not specify both topic name and topic id."
    elif is_repeated:
        text = "Duplicate topic name." if topic.topic_id is None else "Duplicate topic id."
    return ApiError(ErrorCode.invalid_request, text) if text else None


DELETE_TOPICS_API = Api(key=20, versions=(1, 6), reaches=api.topics, handle=handle_delete_topics)


CREATE_TOPICS_API = Api(key=19, versions=(2, 7), reaches=api.topics, handle=handle_create_topics)


# The charge of created and deleted partitions to `controller_mutation_rate` (KIP-599).

T = TypeVar("T")
DecideOn = Callable[[MetadataImage, Sequence[T]], Decision[list[TopicResult]]]

EXCEEDED = ApiError(ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded.")


def charge_mutations(
    context: RequestContext[Any],
    topics: Sequence[T],
    decide: DecideOn[T],
    *,
    key: Callable[[T], str | uuid.UUID | None],
    partitions: Callable[[MetadataImage, TopicResult], int],
    strict_since: int,
) -> Callable[[MetadataImage], Decision[list[TopicResult]]]:
    """Return the decision about the topics that the quota lets through; the others are refused.

    A request of a newer version gets THROTTLING_QUOTA_EXCEEDED for each topic that comes after the one that
    overdrew the quota; the changes of an older version are made, and the client is throttled after them. A
    topic that is refused for another reason is not charged. Source: Kafka's ControllerMutationQuotaManager,
    ControllerApis.

    `key` returns the name or the id of a topic of the request, and `partitions` how many partitions a change
    creates or deletes. A decision that is made again, because another gateway changed the metadata first,
    charges no topic twice.
    """
    charge = context.charge
    if charge is None:
        return lambda image: decide(image, topics)
    strict = context.api_version >= strict_since
    charged: dict[tuple[str | None, uuid.UUID | None], bool] = {}

    def may_change(image: MetadataImage, result: TopicResult) -> bool:
        place = result.name, result.topic_id
        if place not in charged:
            charged[place] = charge.may_mutate(partitions(image, result), strict=strict)
        return charged[place]

    def decide_within_quota(image: MetadataImage) -> Decision[list[TopicResult]]:
        decision = decide(image, topics)
        refused: set[str | uuid.UUID | None] = set()
        results = []
        for result in decision.answer:
            if result.error is None and not may_change(image, result):
                refused |= {result.name, result.topic_id} - {None}
                results.append(TopicResult(name=result.name, topic_id=result.topic_id, error=EXCEEDED))
            else:
                results.append(result)
        if not refused:
            return decision
        allowed = decide(image, [topic for topic in topics if key(topic) not in refused])
        return Decision(allowed.records, results)

    return decide_within_quota
