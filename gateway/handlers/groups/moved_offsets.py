"""Answers the OffsetCommit of another gateway that moves a group forward (`gateway.runtime.coordinators.moving`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.records import OffsetCommitRecord
from gateway.coordinator.group.shard import Target, move_forward
from gateway.coordinator.places import TopicPartition
from gateway.handlers.answering.api import RequestContext
from gateway.runtime.coordinators.moving import NOT_MOVED
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.services import Services
from gateway.security.acls.codes import Operation

_moving: set[asyncio.Task[None]] = set()
"""The moves in progress, at most as many as requests."""

Errors = Callable[[TopicPartition], ErrorCode]


def begin_move(
    context: RequestContext[Services],
    group_id: str,
    records: Sequence[OffsetCommitRecord],
    answered: Callable[[Errors], None],
) -> None:
    """Move the group forward; call `answered` with a function that returns the error of each place, once the move is durable."""
    task = context.node.loop.create_task(_move(context, group_id, records, answered))
    _moving.add(task)
    task.add_done_callback(_moving.discard)


async def _move(
    context: RequestContext[Services],
    group_id: str,
    records: Sequence[OffsetCommitRecord],
    answered: Callable[[Errors], None],
) -> None:
    if not context.may_cluster(Operation.CLUSTER_ACTION):
        answered(lambda _: ErrorCode.group_authorization_failed)
        return
    targets = [
        Target((record.topic, record.partition), record.value.offset, record.value.leader_epoch)
        for record in records
        if record.value is not None
    ]
    try:
        before = await context.services.coordinators.groups.run(
            group_id, lambda shard, effects: move_forward(shard, group_id, targets, effects)
        )
    except Unavailable as error:
        code = error.error_code
        answered(lambda _: code)
    else:
        answered(lambda place: ErrorCode.none if place in before else NOT_MOVED)
