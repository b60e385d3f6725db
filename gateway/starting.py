"""The start of a gateway, which SIGTERM may come in between."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Protocol

from gateway.homes.home import StartFailed

logger = logging.getLogger(__name__)


class Startable(Protocol):
    """A gateway as its start needs it."""

    has_entered: bool
    """Whether the home is prepared; until then a start may be cancelled."""

    async def start(self) -> None:
        """Start the gateway. Raises StartFailed."""

    def limit_waiting(self) -> asyncio.TimerHandle:
        """Give up the records that wait for a bucket after a while; cancel the timer if they need not wait any more."""


async def start_until(stopped: asyncio.Future[Any], gateway: Startable) -> bool:
    """Start the gateway; return False if `stopped` was done before the gateway ran. Raises StartFailed.

    Later the start finishes, and the caller stops the gateway. A start waits for a bucket, for its first block of producer ids for one. So
    once `stopped` is done, the start does not wait longer than a stop does. A start that fails then has stopped the gateway itself: False.
    """
    starting = asyncio.ensure_future(gateway.start())
    await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done() and not gateway.has_entered:
        starting.cancel()  # the bucket may never answer, and nothing of the gateway runs yet
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        return False
    giving_up = None if starting.done() else gateway.limit_waiting()
    try:
        await starting
    except StartFailed as error:
        if not stopped.done():
            raise
        logger.warning("the gateway was stopped before its start was complete: %s", error)
        return False
    finally:
        if giving_up is not None:
            giving_up.cancel()
    return True
