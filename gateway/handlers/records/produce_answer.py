"""Encodes the answer to a Produce, and names the leaders of partitions that other gateways lead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import RequestContext
from gateway.handlers.records.current_leaders import name_leaders
from gateway.protocol.produce_codec import TopicRows, encode_produce_response

FIRST_WITH_LEADERS: Final = 10
"""The first version whose answers name the leader that the client should ask (KIP-951)."""
_LED_ELSEWHERE: Final = frozenset((int(ErrorCode.not_leader_or_follower),))


def produce_frame(context: RequestContext[Any], topics: Sequence[TopicRows]) -> bytes:
    """Return the whole frame of an answer."""
    version = context.api_version
    if version < FIRST_WITH_LEADERS or context.node.brokers.is_alone:
        return encode_produce_response(version, context.correlation_id, topics)
    topics, endpoints = name_leaders(context, topics, _LED_ELSEWHERE)
    return encode_produce_response(version, context.correlation_id, topics, endpoints)
