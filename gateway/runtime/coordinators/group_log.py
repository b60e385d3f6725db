"""Logs the events of groups and their members.

Each kind of line has its own place in the code, so that the limit of log lines holds for each kind.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, TypeVar

from kio.schema.errors import ErrorCode

from gateway.coordinator.change import Change
from gateway.coordinator.group.consumer_heartbeat import HeartbeatRefused
from gateway.coordinator.group.events import (
    Effects,
    Emptied,
    EpochRaised,
    Event,
    MemberJoined,
    MemberLeft,
    MemberRemoved,
    MemberReplaced,
    RebalanceBegan,
    Stabilized,
    Who,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

_FENCED: Final = frozenset({ErrorCode.fenced_member_epoch, ErrorCode.fenced_instance_id})


def change_of(answer: T, effects: Effects) -> Change[T]:
    """Return the change of an operation that folds in its effects, and logs their events once they are durable."""
    return Change(
        answer,
        effects.records,
        is_folded_in=True,
        replies=effects.replies,
        when_durable=partial(log_events, effects.events) if effects.events else None,
    )


def log_events(events: Sequence[Event]) -> None:
    """Log one line for each event."""
    if logger.isEnabledFor(logging.INFO):
        for event in events:
            _log(event)


def _log(event: Event) -> None:
    match event:
        case RebalanceBegan(group_id, state, generation_id, reason):
            logger.info(
                "group %s rebalances: was %s in generation %d; %s", group_id, state, generation_id, reason
            )
        case Stabilized(group_id, generation_id, size):
            logger.info("group %s is stable: generation %d, members: %d", group_id, generation_id, size)
        case Emptied(group_id, generation_id):
            logger.info("group %s is empty: generation %d", group_id, generation_id)
        case MemberJoined(group_id, who):
            logger.info("group %s: %s joined", group_id, _named(who))
        case MemberReplaced(group_id, old_member_id, who):
            logger.info(
                "group %s: %s replaced member %s, which is fenced", group_id, _named(who), old_member_id
            )
        case MemberLeft(group_id, who):
            logger.info("group %s: %s left", group_id, _named(who))
        case MemberRemoved(group_id, who, reason):
            logger.info("group %s: %s was removed: %s", group_id, _named(who), reason)
        case EpochRaised(group_id, kind, group_epoch, reason):
            logger.info("%s group %s has group epoch %d: %s", kind, group_id, group_epoch, reason)


def _named(who: Who) -> str:
    static = "" if who.group_instance_id is None else f"instance id {who.group_instance_id}, "
    return f"member {who.member_id} ({static}client {who.client_id!r} at {who.client_host.lstrip('/')})"


def log_refused(group_id: str, member_id: str, error: HeartbeatRefused) -> None:
    """Log a heartbeat that was refused because its member is fenced; other refusals are no news of the group."""
    if error.error_code in _FENCED:
        logger.info("group %s: member %s is fenced: %s", group_id, member_id, error)
