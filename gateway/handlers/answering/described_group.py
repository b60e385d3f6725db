"""The shared part of ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe. The three APIs
differ in the description of a member, and in one field of the group: the assignor, or the topology.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import wraps
from typing import Any, Final, TypeAlias, TypeVar

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.consumer_heartbeat import HeartbeatReply
from seqgate.gateway.coordinator.group.epoch_group import EpochGroup, HeartbeatRefused
from seqgate.gateway.coordinator.places import Place, by_topic
from seqgate.gateway.handlers.answering.api import ColdHandler, R, RequestContext
from seqgate.gateway.handlers.answering.limits import answer_each
from seqgate.gateway.handlers.answering.rights import NOT_ASKED, group_operations
from seqgate.gateway.runtime.coordinators.group_coordinator import log_refused
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.partitions.registry import TopicPartitions
from seqgate.gateway.security.acls.access import Operation

G = TypeVar("G", bound=EpochGroup[Any, Any])

HIDDEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."
_NOTHING: Final[dict[str, Any]] = {
    "group_state": "",
    "group_epoch": 0,
    "assignment_epoch": 0,
    "members": [],
    "topology": None,
    "topology_description": None,
    "topology_description_status": 0,
}
"""The description of a group beside an error, but for its assignor."""


def assigned_topics(description: Mapping[str, Any]) -> Iterable[str]:
    """Yield the names of the topics in the assignments of a description."""
    for member in description["members"]:
        for field in ("assignment", "target_assignment"):
            for topic in member[field]["topic_partitions"] if field in member else ():
                yield topic["topic_name"]


async def describe_each(
    context: RequestContext[Any],
    request: Any,
    find: Callable[[str], G | None],
    describe_member: Callable[[G, Any], dict[str, Any]],
    more_of: Callable[[G], dict[str, Any]] = lambda _: {},
    *,
    needs_describe_on: Callable[[Mapping[str, Any]], Iterable[str]],
    hidden_message: str = HIDDEN_TOPICS,
    no_assignor: str | None = "",
) -> Any:
    """Answer a Describe request: look each group up with `find`, and describe it, its members with
    `describe_member`, and what only this kind of group has with `more_of`. `find` may raise Unavailable. A
    client needs DESCRIBE on the group, and on the topics of its description that `needs_describe_on` returns;
    the error for a topic has `hidden_message`. An error comes with `no_assignor`.
    """

    def described(
        group_id: str, error: ErrorCode, message: str | None = None, operations: int = NOT_ASKED, **found: Any
    ) -> Any:
        return context.row(
            "DescribedGroup",
            **_NOTHING | {"assignor_name": no_assignor} | found,
            error_code=error,
            error_message=message,
            group_id=group_id,
            authorized_operations=operations,
        )

    def answer(group_id: str) -> Any:
        if not context.may_group(Operation.DESCRIBE, group_id):
            return described(group_id, ErrorCode.group_authorization_failed)
        if not group_id:
            return described(group_id, ErrorCode.invalid_group_id)
        try:
            group = find(group_id)
        except Unavailable as error:
            return described(group_id, error.error_code)
        if group is None:
            return described(group_id, ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        description = {
            "group_state": group.state_text,
            "group_epoch": group.group_epoch,
            "assignment_epoch": group.assignment_epoch,
            "assignor_name": group.assignor,
            "members": [describe_member(group, member) for member in group.members.values()],
            **more_of(group),
        }
        if context.node.access.is_on and not all(
            context.may_topic(Operation.DESCRIBE, name) for name in set(needs_describe_on(description))
        ):
            return described(group_id, ErrorCode.topic_authorization_failed, hidden_message)
        operations = (
            group_operations(context, group_id) if request.include_authorized_operations else NOT_ASKED
        )
        return described(group_id, ErrorCode.none, None, operations, **description)

    groups = await answer_each(request.group_ids, answer)
    return context.answer(groups=groups)


# Encodes the assignments of members of consumer and share groups.

Topics: TypeAlias = Mapping[uuid.UUID, TopicPartitions]


def assignment(places: Iterable[Place]) -> dict[str, Any]:
    """Return the assignment for the answer to a heartbeat."""
    topics = by_topic(places).items()
    found = [{"topic_id": topic_id, "partitions": tuple(partitions)} for topic_id, partitions in topics]
    return {"topic_partitions": found}


def named_assignment(places: Iterable[Place], topics: Topics) -> dict[str, Any]:
    """Return the assignment for a description: with topic names, and without topics that no longer exist."""
    found = assignment(place for place in places if place[0] in topics)
    for topic in found["topic_partitions"]:
        topic["topic_name"] = topics[topic["topic_id"]].name
    return found


# The heartbeats of the three kinds of groups.

NO_TIME: Final = timedelta(0)
Refuse = Callable[[RequestContext[Any], ErrorCode, str | None], Any]


def refusing(refuse: Refuse) -> Callable[[ColdHandler[R]], ColdHandler[R]]:
    """Return the decorator of a handler that answers HeartbeatRefused and Unavailable with `refuse`."""

    def decorated(handle: ColdHandler[R]) -> ColdHandler[R]:
        @wraps(handle)
        async def answer(context: RequestContext[R], request: Any) -> Any:
            try:
                return await handle(context, request)
            except HeartbeatRefused as error:
                log_refused(request.group_id, request.member_id, error)
                return refuse(context, error.error_code, str(error))
            except Unavailable as error:
                return refuse(context, error.error_code, None)

        return answer

    return decorated


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
        assignment=None if assigned is None else assignment(assigned),
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
