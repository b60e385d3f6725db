"""The start offsets of share groups; only those of a group without members can be changed.

AlterShareGroupOffsets (key 91, version 0): set the start offsets of a share group without members. Rights:
`READ` on the group; `READ` on the topic.

A group that does not exist is created. Source: Kafka's GroupCoordinatorService.alterShareGroupOffsets,
KIP-932.

DeleteShareGroupOffsets (key 92, version 0): delete the offsets of topics in a share group without members.
Rights: `DELETE` on the group; `READ` on the topic.

Source: Kafka's GroupCoordinatorService.deleteShareGroupOffsets, KIP-932.

DescribeShareGroupOffsets (key 90, versions 0–1): describe the start offsets and the lag of share groups.
Rights: `DESCRIBE` on the group; `DESCRIBE` on the topic.

A request for all topics gets those that the client may describe. The start offsets are those of the share
coordinators, and the ends those of the leaders, whichever gateways these are. Source: Kafka's
GroupCoordinatorService.describeShareGroupOffsets, KIP-932, KIP-1226 (lag).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.events import Effects
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.group.share_group import GROUP_EPOCH, ShareGroup
from seqgate.gateway.coordinator.group.stored_groups import ShareGroups
from seqgate.gateway.coordinator.places import Place, TopicPartition
from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import log_change
from seqgate.gateway.handlers.answering.limits import TimeLimit, to_answer
from seqgate.gateway.handlers.answering.rights import refused_topics, unseen_topics
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import CoordinatorServices, Services
from seqgate.gateway.runtime.topics.latest_offsets import LatestOffsets
from seqgate.gateway.security.acls.access import Operation

MESSAGES: Final = {
    ErrorCode.unknown_topic_or_partition: "The topic or partition does not exist.",
    ErrorCode.topic_authorization_failed: "Topic authorization failed.",
}
"""The messages of the errors of topics and partitions; other errors have none."""


async def group_error(
    context: RequestContext[Services], limit: TimeLimit, group_id: str, needed: Operation
) -> tuple[ErrorCode, str | None]:
    """Return why a share group's offsets can't be changed, as (error code, message); (none, None) if they
    can. The client needs the right `needed` on the group. Offsets of a missing group can be changed, too.
    """
    if not context.may_group(needed, group_id):
        return ErrorCode.group_authorization_failed, "Group authorization failed."
    if not group_id:
        return ErrorCode.invalid_group_id, "The group id is empty."
    try:
        return await limit.run(_read(context, group_id), group_id)
    except Unavailable as error:
        return error.error_code, None
    except TimeoutError:
        return ErrorCode.request_timed_out, None


async def _read(context: RequestContext[Services], group_id: str) -> tuple[ErrorCode, str | None]:
    services = context.services
    await services.coordinators.groups.ensure_topic()
    await services.coordinators.shares.ensure_topic()
    return await services.coordinators.groups.read_durable(
        group_id, lambda shard: shard.share_offsets_error(group_id)
    )


async def handle_alter(context: RequestContext[Services], request: Any) -> Any:
    """Start each partition again at its new offset, durably."""
    limit = TimeLimit(context)
    error, message = await group_error(context, limit, request.group_id, Operation.READ)
    wanted: dict[str, list[Any]] = {}
    for topic in request.topics if error is ErrorCode.none else ():
        wanted.setdefault(topic.topic_name, []).extend(topic.partitions)
    hidden = await refused_topics(context, Operation.READ, wanted)
    await _note_together(context, limit, request.group_id, wanted, hidden)
    responses = []
    for name, entries in wanted.items():
        # the id of a topic that the client may not read stays secret
        topic = None if name in hidden else context.services.partitions.registry.by_name.get(name)
        rows = []
        for entry in entries:
            if name in hidden:
                row_error = ErrorCode.topic_authorization_failed
            else:
                row_error = await _begin_in_time(context, limit, request.group_id, topic, entry)
            rows.append(
                {
                    "partition_index": entry.partition_index,
                    "error_code": row_error,
                    "error_message": MESSAGES.get(row_error),
                }
            )
        topic_id = None if topic is None else topic.topic_id
        responses.append({"topic_name": name, "topic_id": topic_id, "partitions": rows})
    return context.answer(error_code=error, error_message=message, responses=responses)


async def _note_together(
    context: RequestContext[Services],
    limit: TimeLimit,
    group_id: str,
    wanted: Mapping[str, list[Any]],
    hidden: AbstractSet[str],
) -> None:
    """Note several partitions at once, because the record has all partitions of the group. An error is
    reported by the partitions, each of which is noted again where need be.
    """
    names: dict[uuid.UUID, str] = {}
    places: set[Place] = set()
    for name, entries in wanted.items():
        topic = None if name in hidden else context.services.partitions.registry.by_name.get(name)
        if topic is not None:
            names[topic.topic_id] = name
            indexes = (entry.partition_index for entry in entries)
            places.update((topic.topic_id, index) for index in indexes if topic.has(index))
    if len(places) > 1:
        noting = _note_begun(context.services.coordinators, group_id, places, names)
        with contextlib.suppress(Unavailable, TimeoutError):
            await limit.run(noting, group_id)


async def _begin_in_time(
    context: RequestContext[Services], limit: TimeLimit, group_id: str, topic: Any, entry: Any
) -> ErrorCode:
    def note(error: ErrorCode) -> None:
        if error is ErrorCode.none:
            what = f"{topic.name}-{entry.partition_index} (to {max(0, entry.start_offset)})"
            log_change(context, f"set the start offset of share group {group_id} in", [what])

    try:
        error = await limit.run(_begin(context, group_id, topic, entry), group_id, late=note)
    except TimeoutError:
        return ErrorCode.request_timed_out
    note(error)
    return error


async def _begin(context: RequestContext[Services], group_id: str, topic: Any, entry: Any) -> ErrorCode:
    if topic is None or not topic.has(entry.partition_index):
        return ErrorCode.unknown_topic_or_partition
    key = SharePartitionKey(group_id, topic.topic_id, entry.partition_index)
    try:
        return await begin_group(context.services.coordinators, key, topic.name, max(0, entry.start_offset))
    except Unavailable as error:
        return error.error_code


async def begin_group(
    coordinators: CoordinatorServices, key: SharePartitionKey, topic: str, start_offset: int
) -> ErrorCode:
    """Set the offset from which a share group without members reads, even if it never had one; return an
    error code. Raises Unavailable.
    """
    place = key.topic_id, key.partition
    error = await _note_begun(coordinators, key.group_id, {place}, {key.topic_id: topic})
    if error is ErrorCode.none:
        await coordinators.shares.begin_at(key, start_offset)
    return error


async def _note_begun(
    coordinators: CoordinatorServices,
    group_id: str,
    places: AbstractSet[Place],
    names: Mapping[uuid.UUID, str],
) -> ErrorCode:
    """Note that a share group without members reads these partitions; return an error code. Raises
    Unavailable.
    """
    shares = coordinators.shares
    shares.check_stays(group_id)

    def begin(shard: GroupShard, effects: Effects) -> ErrorCode:
        error, _ = shard.share_offsets_error(group_id)  # a member may have joined since the request came
        if error is ErrorCode.none and group_id not in shard.shares.groups and not shares.has_room():
            error = ErrorCode.group_max_size_reached
        if error is ErrorCode.none:
            begin_partitions(shard.shares, group_id, places, names, effects)
        return error

    return await coordinators.groups.run(group_id, begin)


def begin_partitions(
    shares: ShareGroups,
    group_id: str,
    places: AbstractSet[Place],
    names: Mapping[uuid.UUID, str],
    effects: Effects,
) -> None:
    """Note that the group reads partitions; `names` has the names of their topics. A new group is created,
    which need not have had members.
    """
    if group_id not in shares.groups:
        shares.write(GROUP_EPOCH.of(group_id, ShareGroup(group_id).group_epoch), effects)
    group = shares.groups[group_id]
    if not places <= group.begun:
        shares.write(group.begun_record(group.begun | places, names), effects)


ALTER_SHARE_GROUP_OFFSETS_API = Api(key=91, versions=(0, 0), reaches=api.everything, handle=handle_alter)


async def handle_delete(context: RequestContext[Services], request: Any) -> Any:
    """Delete the share group's state of each topic durably."""
    limit = TimeLimit(context)
    error, message = await group_error(context, limit, request.group_id, Operation.DELETE)
    if error is ErrorCode.none and context.services.coordinators.shares.group(request.group_id) is None:
        error, message = ErrorCode.group_id_not_found, f"Group {request.group_id} not found."
    hidden = await refused_topics(context, Operation.READ, (topic.topic_name for topic in request.topics))
    responses = []
    for topic in request.topics if error is ErrorCode.none else ():
        note = partial(_note, context, request.group_id, topic.topic_name)
        try:
            result = await limit.run(
                _forget(context, request.group_id, topic.topic_name, hidden), request.group_id, late=note
            )
        except TimeoutError:
            topic_id, row_error = None, ErrorCode.request_timed_out
        else:
            note(result)
            topic_id, row_error = result
        responses.append(
            {
                "topic_name": topic.topic_name,
                "topic_id": None if row_error in MESSAGES else topic_id,
                "error_code": row_error,
                "error_message": MESSAGES.get(row_error),
            }
        )
    return context.answer(error_code=error, error_message=message, responses=responses)


def _note(context: RequestContext[Services], group_id: str, name: str, result: tuple[Any, ErrorCode]) -> None:
    if result[1] is ErrorCode.none:
        log_change(context, f"deleted the offsets of share group {group_id} for", [name])


async def _forget(
    context: RequestContext[Services], group_id: str, name: str, hidden: AbstractSet[str]
) -> tuple[Any, ErrorCode]:
    if name in hidden:
        return None, ErrorCode.topic_authorization_failed
    shares = context.services.coordinators.shares
    topic = context.services.partitions.registry.by_name.get(name)
    if topic is None:
        return None, ErrorCode.unknown_topic_or_partition
    try:
        if not any(topic_id == topic.topic_id for topic_id, _ in shares.begun(group_id)):
            return None, ErrorCode.unknown_topic_or_partition
        return topic.topic_id, await shares.forget_topic(group_id, topic.topic_id)
    except Unavailable as error:
        return topic.topic_id, error.error_code


DELETE_SHARE_GROUP_OFFSETS_API = Api(key=92, versions=(0, 0), reaches=api.everything, handle=handle_delete)


UNKNOWN: Final = -1


async def handle_describe(context: RequestContext[Services], request: Any) -> Any:
    """Describe each group; null topics: all that it read. An unknown partition gets no offset, no error."""
    asked = to_answer(request.groups, lambda group: group.group_id)
    answers = {group: await _group(context, group) async for group in in_slices(dict.fromkeys(asked))}
    return context.answer(groups=tuple(answers[group] for group in asked))


async def _group(context: RequestContext[Services], asked: Any) -> Any:
    error, topics = ErrorCode.none, []
    if context.may_group(Operation.DESCRIBE, asked.group_id):
        try:
            topics = await _topics(context, asked)
        except Unavailable as unavailable:
            error = unavailable.error_code
    else:
        error = ErrorCode.group_authorization_failed
    return context.row(
        "DescribeShareGroupOffsetsResponseGroup",
        group_id=asked.group_id,
        topics=topics,
        error_code=error,
        error_message=None,
    )


async def _topics(context: RequestContext[Services], asked: Any) -> list[dict[str, Any]]:
    """Return the topics of a group that the client may describe. Raises Unavailable."""
    coordinators, registry = context.services.coordinators, context.services.partitions.registry
    if coordinators.groups.shards.is_elsewhere(asked.group_id):
        raise Unavailable(ErrorCode.not_coordinator)
    wanted: dict[str, list[int]] = {}
    if asked.topics is None:
        for topic_id, index in sorted(coordinators.shares.begun(asked.group_id)):
            topic = registry.by_id.get(topic_id)
            if topic is not None:
                wanted.setdefault(topic.name, []).append(index)
        hidden = await unseen_topics(context, Operation.DESCRIBE, wanted)
    else:
        wanted = {topic.topic_name: list(dict.fromkeys(topic.partitions)) for topic in asked.topics}
        hidden = await refused_topics(context, Operation.DESCRIBE, wanted)
    progress = await _progress(context, asked.group_id, wanted, hidden)
    return [
        _topic(context, name, indexes, progress, is_hidden=name in hidden)
        for name, indexes in wanted.items()
        if asked.topics is not None or name not in hidden
    ]


async def _progress(
    context: RequestContext[Services],
    group_id: str,
    wanted: Mapping[str, list[int]],
    hidden: AbstractSet[str],
) -> Mapping[TopicPartition, tuple[int, int]]:
    """Return each read partition's start offset and lag (UNKNOWN if not known). Raises Unavailable."""
    by_name = context.services.partitions.registry.by_name
    keys = {
        SharePartitionKey(group_id, topic.topic_id, index): (name, index)
        for name, indexes in wanted.items()
        if name not in hidden and (topic := by_name.get(name)) is not None
        for index in indexes
    }
    found = await context.services.coordinators.shares.persister.summaries_here_and_elsewhere(keys)
    begun = {keys[key]: summary for key, summary in found.items() if summary.start_offset >= 0}
    node = context.node
    ends = await LatestOffsets(
        context.services.partitions.registry,
        context.services.topics.metadata_log.image,
        node.brokers,
        node.peers,
    ).of(begun)
    return {
        place: (
            summary.start_offset,
            max(0, ends[place] - summary.start_offset - summary.done) if place in ends else UNKNOWN,
        )
        for place, summary in begun.items()
    }


def _topic(
    context: RequestContext[Services],
    name: str,
    indexes: list[int],
    progress: Mapping[TopicPartition, tuple[int, int]],
    *,
    is_hidden: bool,
) -> dict[str, Any]:
    """Return the answer for a topic. That for a hidden topic does not tell whether the topic exists."""
    topic = None if is_hidden else context.services.partitions.registry.by_name.get(name)
    error = ErrorCode.topic_authorization_failed if is_hidden else ErrorCode.none
    rows = []
    for index in indexes:
        start_offset, lag = progress.get((name, index), (UNKNOWN, UNKNOWN))
        rows.append(
            {
                "partition_index": index,
                "start_offset": start_offset,
                "leader_epoch": 0,
                "lag": lag,
                "error_code": error,
                "error_message": MESSAGES.get(error),
            }
        )
    topic_id = None if topic is None else topic.topic_id
    return {"topic_name": name, "topic_id": topic_id, "partitions": rows}


DESCRIBE_SHARE_GROUP_OFFSETS_API = Api(
    key=90, versions=(0, 1), reaches=api.everything, handle=handle_describe, may_be_given_up=True
)
