"""Asks other gateways about the groups that they coordinate. Raises Unavailable."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from gateway.peer.peers import AsksPeers, PeerUnavailable
from gateway.protocol.messages import build, request_type
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.topics.brokers import NO_LEADER

ASK_TIMEOUT_S: Final = 5.0
"""Time for the answer of one gateway."""
_SHARE_GROUP_DESCRIBE: Final = 77
_EXISTS: Final = frozenset((ErrorCode.none, ErrorCode.topic_authorization_failed))


async def has_share_group(peers: AsksPeers, leader: int, group_id: str) -> bool:
    """Return whether there is a share group of this id at its coordinator, the gateway `leader`."""
    if leader == NO_LEADER:
        raise Unavailable
    request = build(
        request_type(_SHARE_GROUP_DESCRIBE, 1), group_ids=(group_id,), include_authorized_operations=False
    )
    try:
        answer = await peers.ask(leader, request, timeout_s=ASK_TIMEOUT_S)
    except PeerUnavailable as error:
        raise Unavailable from error
    code = ErrorCode(int(answer.groups[0].error_code))
    if code in _EXISTS:
        return True
    if code is ErrorCode.group_id_not_found:
        return False
    raise Unavailable(code)
