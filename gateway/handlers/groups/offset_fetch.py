"""OffsetFetch (key 9, versions 1–10): return the committed offsets of groups; from v8 on of several groups at once.

A partition without a committed offset gets −1. A request without topics (null, from v2 on) gets all committed
offsets. The answer has only durable offsets. With `require_stable` it has no offset that an open transaction may
change (KIP-447). From v10 on topics are named by id. For a group id that stands for a producer name the answer has
the name's persisted sequence ids (see `name_offsets`). A client needs DESCRIBE on the group and on each topic; a request
for all offsets gets those of topics that the client may describe. Source: Kafka's KafkaApis.handleOffsetFetchRequest,
OffsetMetadataManager.fetchOffsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.name_groups import is_name_group, producer_name
from gateway.coordinator.group.records import CommittedOffset
from gateway.coordinator.group.shard import GroupShard
from gateway.coordinator.places import TopicPartition
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.named_twice import places_to_answer, to_answer
from gateway.handlers.answering.rights import NOTHING, refused_ids, refused_topics, unseen_topics
from gateway.handlers.groups.name_offsets import NameOffsets
from gateway.handlers.groups.peer_names import LED_HERE
from gateway.protocol.messages import build, response_module
from gateway.runtime.loop.slices import in_slices
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.partitions.registry import TopicPartitions
from gateway.runtime.services import Services
from gateway.security.acls.codes import Operation

API_KEY: Final = 9
FIRST_WITH_ERROR: Final = 2
FIRST_WITH_STABLE: Final = 7
FIRST_BATCHED_VERSION: Final = 8
FIRST_WITH_MEMBER: Final = 9
FIRST_WITH_TOPIC_IDS: Final = 10
_NOT_HERE_NOW: Final = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress})
"""Errors that pass, which a client must not take for the answer that nothing is committed."""
NO_OFFSET: Final = CommittedOffset(-1, -1, "", -1)
UNSTABLE: Final = CommittedOffset(-1, -1, "", -2)
"""The placeholder for an offset that an open transaction may change."""


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Return the offsets of every group of the request."""
    version = context.api_version
    module = response_module(API_KEY, version)
    names = NameOffsets(context)
    if version >= FIRST_BATCHED_VERSION:
        stable = _requires_stable(context, request)
        asked = to_answer(request.groups, lambda group: group.group_id)
        answers = {
            group: await _group(context, module, group, names, require_stable=stable)
            async for group in in_slices(dict.fromkeys(asked))
        }
        return build(module.OffsetFetchResponse, groups=tuple(answers[group] for group in asked))
    stable = _requires_stable(context, request)
    behind = await _catch_up(context, request.group_id, request.topics, names)
    hidden = await _hidden(context, request.topics)
    committed = behind or await _committed(
        context, request.group_id, request.topics, names, hidden, require_stable=stable
    )
    if isinstance(committed, ErrorCode):
        error, committed, hidden = committed, {}, NOTHING
    else:
        error = ErrorCode.none
    # aiokafka (v3) checks only the errors of partitions: it would take the name for unknown, and begin a topic anew
    in_rows = version < FIRST_WITH_ERROR or is_name_group(request.group_id) or error in _NOT_HERE_NOW
    asked = request.topics
    if error is ErrorCode.group_authorization_failed and not in_rows:
        asked = ()
    topics = await _topics(context, asked, committed, error if in_rows else None, hidden)
    return build(
        module.OffsetFetchResponse,
        topics=await _built(
            module.OffsetFetchResponseTopic, module.OffsetFetchResponsePartition, topics, by_id=False
        ),
        error_code=error,
    )


def _requires_stable(context: RequestContext[Services], request: Any) -> bool:
    return context.api_version >= FIRST_WITH_STABLE and bool(request.require_stable)


async def _group(
    context: RequestContext[Services], module: Any, group: Any, names: NameOffsets, *, require_stable: bool
) -> Any:
    behind = await _catch_up(context, group.group_id, group.topics, names)
    hidden = await _hidden(context, group.topics)
    committed = behind or await _committed(
        context,
        group.group_id,
        group.topics,
        names,
        hidden,
        require_stable=require_stable,
        only_led_here=context.api_version >= FIRST_WITH_MEMBER and group.member_id == LED_HERE,
    )
    if context.api_version >= FIRST_WITH_MEMBER and not isinstance(committed, ErrorCode):
        error = ErrorCode.none if is_name_group(group.group_id) else _check_member(context, group)
        committed = committed if error is ErrorCode.none else error
    if isinstance(committed, ErrorCode):
        return build(
            module.OffsetFetchResponseGroup, group_id=group.group_id, topics=(), error_code=committed
        )
    topics = await _topics(context, group.topics, committed, None, hidden)
    by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
    return build(
        module.OffsetFetchResponseGroup,
        group_id=group.group_id,
        topics=await _built(
            module.OffsetFetchResponseTopics, module.OffsetFetchResponsePartitions, topics, by_id=by_id
        ),
        error_code=ErrorCode.none,
    )


async def _catch_up(
    context: RequestContext[Services], group_id: str, asked: Sequence[Any] | None, names: NameOffsets
) -> ErrorCode | None:
    """Read the metadata that an answer needs, where the group stands for a producer name; return the error if that fails."""
    if not is_name_group(group_id) or not context.may_group(Operation.DESCRIBE, group_id):
        return None
    return await names.catch_up(asked, by_id=context.api_version >= FIRST_WITH_TOPIC_IDS)


async def _hidden(context: RequestContext[Services], asked: Sequence[Any] | None) -> AbstractSet[Any]:
    """Return the topics, named as in the request, that the client may not describe."""
    if asked is None or not context.node.access.is_on:
        return NOTHING
    if context.api_version < FIRST_WITH_TOPIC_IDS:
        return await refused_topics(context, Operation.DESCRIBE, (wanted.name for wanted in asked))
    by_id = context.services.partitions.registry.by_id
    ids = [wanted.topic_id for wanted in asked if wanted.topic_id is not None]
    return await refused_ids(context, Operation.DESCRIBE, ids, by_id)


def _check_member(context: RequestContext[Services], group: Any) -> ErrorCode:
    """Return whether the member may fetch: an error code.

    The shard may have been lost while the offsets were awaited.
    """
    try:
        return context.services.coordinators.groups.check_fetch(
            group.group_id, group.member_id, group.member_epoch
        )
    except Unavailable as error:
        return error.error_code


async def _committed(
    context: RequestContext[Services],
    group_id: str,
    asked: Sequence[Any] | None,
    names: NameOffsets,
    hidden: AbstractSet[Any],
    *,
    require_stable: bool,
    only_led_here: bool = False,
) -> Mapping[TopicPartition, CommittedOffset] | ErrorCode:
    """Return the committed offsets; with `require_stable`, `UNSTABLE` where an open transaction may change one.

    `only_led_here` leaves out what other gateways know of a producer name.
    """
    if not context.may_group(Operation.DESCRIBE, group_id):
        return ErrorCode.group_authorization_failed
    if context.services.partitions.registry.may_be_led_elsewhere:
        return ErrorCode.not_coordinator
    try:
        name = producer_name(group_id)
        if name is not None:
            topics = _named_topics(context, asked, hidden)
            found = await names.fetch(
                name, topics, only_led_here=only_led_here, require_stable=require_stable
            )
            return {
                place: UNSTABLE if require_stable and offset.is_pending else offset.committed
                for place, offset in found.items()
            }
        return await context.services.coordinators.groups.read(
            group_id,
            lambda shard: _offsets(shard, group_id, is_all=asked is None, require_stable=require_stable),
        )
    except Unavailable as error:
        return error.error_code


def _offsets(
    shard: GroupShard, group_id: str, *, is_all: bool, require_stable: bool
) -> dict[TopicPartition, CommittedOffset]:
    committed = dict(shard.offsets.of(group_id))
    if require_stable:
        held = shard.offsets.pending.places(group_id)
        unstable = [place for place in held if not is_all or place in committed]
        committed.update(dict.fromkeys(unstable, UNSTABLE))
    return committed


def _named_topics(
    context: RequestContext[Services], asked: Sequence[Any] | None, hidden: AbstractSet[Any]
) -> list[tuple[TopicPartitions, Sequence[int]]] | None:
    """Return the topics that exist, of those that a request for a producer name names, with the partitions; None for all."""
    if asked is None:
        return None
    registry = context.services.partitions.registry
    by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
    named = (((wanted.topic_id if by_id else wanted.name), wanted) for wanted in asked)
    known: Mapping[Any, TopicPartitions] = registry.by_id if by_id else registry.by_name
    found = ((known.get(key), wanted) for key, wanted in named if key not in hidden)
    return [(topic, wanted.partition_indexes) for topic, wanted in found if topic is not None]


async def _topics(
    context: RequestContext[Services],
    asked: Iterable[Any] | None,
    committed: Mapping[TopicPartition, CommittedOffset],
    error: ErrorCode | None,
    hidden: AbstractSet[Any],
) -> list[tuple[Any, list[tuple[int, CommittedOffset, ErrorCode]]]]:
    """Return (topic name or id as requested, rows).

    Every row gets `error` where the version has no other field for it. The topics in `hidden` get
    TOPIC_AUTHORIZATION_FAILED.
    """
    by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
    partitions = context.services.partitions.registry
    topics: list[tuple[Any, list[tuple[int, CommittedOffset, ErrorCode]]]] = []
    if asked is None:
        found: dict[str, list[tuple[int, CommittedOffset, ErrorCode]]] = {}
        async for (name, partition), value in in_slices(list(committed.items())):
            found.setdefault(name, []).append(_row(partition, value))
        unseen = await unseen_topics(context, Operation.DESCRIBE, found)
        for name, rows in found.items():
            if name in unseen:
                continue
            topic = partitions.by_name.get(name)
            if not by_id:
                topics.append((name, rows))
            elif topic is not None:
                topics.append((topic.topic_id, rows))
        return topics
    named: list[tuple[Any, Sequence[int]]] = [
        (wanted.topic_id if by_id else wanted.name, wanted.partition_indexes) for wanted in asked
    ]
    for key, indexes in places_to_answer(named):
        name = key
        row_error = error or ErrorCode.none
        if by_id:
            topic = None if key is None else partitions.by_id.get(key)
            name = "" if topic is None else topic.name
            row_error = ErrorCode.unknown_topic_id if topic is None else ErrorCode.none
        if key in hidden:
            row_error = ErrorCode.topic_authorization_failed
        rows = [
            _row(index, committed.get((name, index), NO_OFFSET))
            if row_error is ErrorCode.none
            else (index, NO_OFFSET, row_error)
            async for index in in_slices(indexes)
        ]
        topics.append((key, rows))
    return topics


def _row(index: int, value: CommittedOffset) -> tuple[int, CommittedOffset, ErrorCode]:
    if value is UNSTABLE:
        return index, NO_OFFSET, ErrorCode.unstable_offset_commit
    return index, value, ErrorCode.none


async def _built(
    topic_type: Any,
    row_type: Any,
    topics: list[tuple[Any, list[tuple[int, CommittedOffset, ErrorCode]]]],
    *,
    by_id: bool,
) -> tuple[Any, ...]:
    built = []
    for key, rows in topics:
        partitions = [
            build(
                row_type,
                partition_index=index,
                committed_offset=value.offset,
                committed_leader_epoch=value.leader_epoch,
                metadata=value.metadata,
                error_code=error,
            )
            async for index, value, error in in_slices(rows)
        ]
        name = {"topic_id": key} if by_id else {"name": key}
        built.append(build(topic_type, **name, partitions=tuple(partitions)))
    return tuple(built)


API = Api(
    key=API_KEY,
    name="OffsetFetch",
    min_version=1,
    max_version=10,
    reaches=api.everything,
    handle=handle,
    is_eager=True,
    may_be_given_up=True,
)
