"""The answers to ConsumerGroupHeartbeat and ShareGroupHeartbeat, which have the same fields."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.consumer_heartbeat import HeartbeatReply
from gateway.handlers.answering.assignments import assignment
from gateway.protocol.messages import build, response_module, response_type

NO_TIME: Final = timedelta(0)


def accepted(api_key: int, version: int, reply: HeartbeatReply, interval_ms: int) -> Any:
    """Return the answer to an accepted heartbeat; a negative epoch means that the member has left.

    The assignment is left out when the member has it already.
    """
    assigned = reply.assignment
    return build(
        response_type(api_key, version),
        error_code=ErrorCode.none,
        error_message=None,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval=timedelta(milliseconds=interval_ms) if reply.member_epoch >= 0 else NO_TIME,
        assignment=None if assigned is None else assignment(response_module(api_key, version), assigned),
    )


def refused(api_key: int, version: int, error: ErrorCode, message: str | None) -> Any:
    """Return the answer to a refused heartbeat."""
    return build(
        response_type(api_key, version),
        error_code=error,
        error_message=message,
        member_id=None,
        member_epoch=0,
        heartbeat_interval=NO_TIME,
        assignment=None,
    )
