"""The shared part of ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe. The three APIs
differ in the description of a member, and in one field of the group: the assignor, or the topology.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.consumer_heartbeat import HeartbeatRefused, HeartbeatReply
from seqgate.gateway.coordinator.places import Place, by_topic
from seqgate.gateway.handlers.answering.api import RequestContext
from seqgate.gateway.handlers.answering.limits import answer_each
from seqgate.gateway.handlers.answering.rights import NOT_ASKED, group_operations
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.coordinators.group_coordinator import log_refused
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.partitions.registry import TopicPartitions
from seqgate.gateway.security.acls.access import Operation

G = TypeVar("G")

HIDDEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."


class DescribedGroup(NamedTuple):
    """The fields of a group that the kinds of groups fill in differently."""

    state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str | None
    members: tuple[Any, ...]
    topology: Any = None
    topology_description: Any = None
    topology_description_status: int = 0


_NOTHING: Final = DescribedGroup("", 0, 0, "", ())


async def describe_each(
    context: RequestContext[Any],
    request: Any,
    find: Callable[[str], G | None],
    describe: Callable[[Any, G], DescribedGroup],
    topics_of: Callable[[DescribedGroup], Iterable[str]],
    hidden_message: str = HIDDEN_TOPICS,
    nothing: DescribedGroup = _NOTHING,
) -> Any:
    """Answer a Describe request: look each group up with `find`, and describe it with `describe`. `describe`
    gets the response's module and the group. `find` may raise Unavailable. A client needs DESCRIBE on the
    group, and on every topic of its description, which `topics_of` returns; the error for a topic has
    `hidden_message`. An error comes with `nothing`.
    """
    module = context.response_module

    def absent(group_id: str, error: ErrorCode, message: str | None = None) -> Any:
        return _described(module, group_id, nothing, error=error, message=message)

    def answer(group_id: str) -> Any:
        if not context.may_group(Operation.DESCRIBE, group_id):
            return absent(group_id, ErrorCode.group_authorization_failed)
        if not group_id:
            return absent(group_id, ErrorCode.invalid_group_id)
        try:
            group = find(group_id)
        except Unavailable as error:
            return absent(group_id, error.error_code)
        if group is None:
            message = f"Group {group_id} not found."
            return absent(group_id, ErrorCode.group_id_not_found, message)
        description = describe(module, group)
        if context.node.access.is_on and not all(
            context.may_topic(Operation.DESCRIBE, name) for name in set(topics_of(description))
        ):
            return absent(group_id, ErrorCode.topic_authorization_failed, hidden_message)
        operations = (
            group_operations(context, group_id) if request.include_authorized_operations else NOT_ASKED
        )
        return _described(module, group_id, description, operations)

    groups = await answer_each(request.group_ids, answer)
    return context.answer(groups=groups)


def assigned_topics(*assignments: Any) -> Iterable[str]:
    """Yield the names of the topics in the assignments of a description."""
    for assignment in assignments:
        for topic in assignment.topic_partitions:
            yield topic.topic_name


def _described(
    module: Any,
    group_id: str,
    description: DescribedGroup,
    operations: int = NOT_ASKED,
    error: ErrorCode = ErrorCode.none,
    message: str | None = None,
) -> Any:
    return build(
        module.DescribedGroup,
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=description.state,
        group_epoch=description.group_epoch,
        assignment_epoch=description.assignment_epoch,
        assignor_name=description.assignor_name,
        topology=description.topology,
        topology_description=description.topology_description,
        topology_description_status=description.topology_description_status,
        members=description.members,
        authorized_operations=operations,
    )


# Encodes the assignments of members of consumer and share groups.

Topics: TypeAlias = Mapping[uuid.UUID, TopicPartitions]


def assignment(module: Any, places: Iterable[Place]) -> Any:
    """Return the assignment for the answer to a heartbeat."""
    topics = tuple(
        build(module.TopicPartitions, topic_id=topic_id, partitions=tuple(partitions))
        for topic_id, partitions in by_topic(places).items()
    )
    return build(module.Assignment, topic_partitions=topics)


def named_assignment(module: Any, places: Iterable[Place], topics: Topics) -> Any:
    """Return the assignment for a description: with topic names, and without topics that no longer exist."""
    found = tuple(
        build(
            module.TopicPartitions,
            topic_id=topic_id,
            topic_name=topics[topic_id].name,
            partitions=tuple(partitions),
        )
        for topic_id, partitions in by_topic(places).items()
        if topic_id in topics
    )
    return build(module.Assignment, topic_partitions=found)


# The heartbeats of the three kinds of groups.

NO_TIME: Final = timedelta(0)
Refuse = Callable[[RequestContext[Any], ErrorCode, str | None], Any]


async def answer_heartbeat(
    context: RequestContext[Any], request: Any, beat: Awaitable[Any], refuse: Refuse
) -> Any:
    """Answer with the result of `beat`, or with a refusal if it raises HeartbeatRefused or Unavailable."""
    try:
        return await beat
    except HeartbeatRefused as error:
        log_refused(request.group_id, request.member_id, error)
        return refuse(context, error.error_code, str(error))
    except Unavailable as error:
        return refuse(context, error.error_code, None)


def accepted(context: RequestContext[Any], reply: HeartbeatReply, interval_ms: int) -> Any:
    """Return the answer to an accepted heartbeat of a consumer or share group; a negative epoch means that
    the member has left. The assignment is left out when the member has it already.
    """
    assigned = reply.assignment
    return context.answer(
        error_code=ErrorCode.none,
        error_message=None,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval=timedelta(milliseconds=interval_ms) if reply.member_epoch >= 0 else NO_TIME,
        assignment=None if assigned is None else assignment(context.response_module, assigned),
    )


def refused(context: RequestContext[Any], error: ErrorCode, message: str | None = None) -> Any:
    """Return the answer to a refused heartbeat of a consumer or share group."""
    return context.answer(
        error_code=error,
        error_message=message,
        member_id=None,
        member_epoch=0,
        heartbeat_interval=NO_TIME,
        assignment=None,
    )
