"""Logs who changed what: one line for each request that changed metadata, groups or records on purpose.

created topic orders (4 partitions), by User:ANONYMOUS at 192.0.2.7:50312 (client 'admin-1')
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from gateway.handlers.answering.api import RequestContext
from gateway.runtime.loop.log_rate_limit import UNLIMITED

NAMES_IN_A_LINE = 20
"""The most changed resources that a log line names; the line counts the others."""

logger = logging.getLogger(UNLIMITED)


def log_change(context: RequestContext[Any], action: str, things: Sequence[object]) -> None:
    """Log that this request did `action` to the resources with these names. Without resources, log nothing."""
    if not things:
        return
    more = len(things) - NAMES_IN_A_LINE
    names = [str(thing) for thing in things[:NAMES_IN_A_LINE]]
    listed = ", ".join(names) + (f" and {more} more" if more > 0 else "")
    context.node.audit.changed(context.requester(), action.rstrip(":"), names, others=max(more, 0))
    logger.info(
        "%s %s, by %s at %s (client %r)",
        action,
        listed,
        context.peer.principal,
        context.peer.name,
        context.client_id,
    )


def partitions_text(count: int) -> str:
    """Return a number of partitions as text for a log line."""
    return f"{count} partition" if count == 1 else f"{count} partitions"
