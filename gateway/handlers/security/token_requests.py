"""The parts that all requests about delegation tokens share: who may send such a request, and how requests
name principals.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from gateway.config.protocols import SecurityProtocol
from gateway.handlers.answering.api import RequestContext
from gateway.runtime.services import SecurityServices
from gateway.security.principals import ANONYMOUS

NO_TIME: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) - dt.timedelta(milliseconds=1)
"""The time -1, which stands for "no time" in the answer to a request that is not allowed."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def may_ask(context: RequestContext[SecurityServices]) -> bool:
    """Return whether the client may ask about tokens: it must have authenticated itself, and not with a token."""
    protocol = context.node.config.protocol_of(context.listener_name)
    if protocol is SecurityProtocol.PLAINTEXT or context.peer.token_id is not None:
        return False
    return protocol is not SecurityProtocol.SSL or context.peer.principal != ANONYMOUS


def principal_of(principal_type: str, name: str) -> str:
    """Return the principal of a type and name."""
    return f"{principal_type}:{name}"


def type_and_name(principal: str) -> tuple[str, str]:
    """Return the type and the name of a principal."""
    principal_type, _, name = principal.partition(":")
    return principal_type, name


def time_of(time_ms: int) -> dt.datetime:
    """Return a time in milliseconds as the messages have it."""
    return _EPOCH + dt.timedelta(milliseconds=time_ms)


def milliseconds(period: dt.timedelta) -> int:
    """Return a period of a message in milliseconds."""
    return period // dt.timedelta(milliseconds=1)
