"""Follows the shared metadata log: folds in what other gateways have changed, soon after they did."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from gateway.cluster.objects.objects import Refused, StoreFailed
from log import LogError

logger = logging.getLogger(__name__)


class MetadataTail:
    """The task that looks for changes of others. It takes the turn of a change only when there is something to fold in."""

    def __init__(
        self,
        has_more: Callable[[], Awaitable[bool]],
        catch_up: Callable[[], Awaitable[None]],
        interval_s: Callable[[], float],
    ) -> None:
        self._has_more = has_more
        self._catch_up = catch_up
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="tail of the metadata")

    async def stop(self) -> None:
        """End the looks. A change that is being folded in is finished."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s())
            try:
                if await self._has_more():
                    await self._catch_up()
            except (StoreFailed, Refused) as error:
                logger.debug("no look at the metadata of the cluster now: %s", error)
            except LogError as error:
                logger.info("the metadata of the cluster is not followed any more: %s", error)
                return
            except Exception:
                logger.exception("a change of the metadata can't be folded in")
