"""The port to a home."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NoReturn, Protocol

from gateway.cluster.objects.counted import Counts
from gateway.runtime.partitions.cold_reads import Fetcher
from gateway.runtime.partitions.log_flusher import LogFlusher
from gateway.runtime.services import Services
from log import Durability

Hold = Callable[[Sequence[str]], AbstractAsyncContextManager[None]]


class StartFailed(Exception):
    """The gateway can't start; the message is a sentence for the person who started it."""


class Ended(Exception):
    """The gateway must not serve any more; the message is a sentence that says why."""


class Home(Protocol):
    """Where records are durable. One gateway enters and leaves it once."""

    durability: Durability

    @property
    def calls(self) -> Counts | None:
        """The calls to the bucket until now; None without a bucket."""

    @property
    def fetcher(self) -> Fetcher | None:
        """What fetches blocks that the local disk lacks; None where the disk has everything. Call after `enter`."""

    @property
    def hold(self) -> Hold | None:
        """What keeps whole segment files on the local disk for another process; None where they always are. Call after `enter`."""

    async def enter(self) -> None:
        """Prepare the data directory, which no process has open. Raises StartFailed."""

    def flusher(self, loop: asyncio.AbstractEventLoop, durability: Durability) -> LogFlusher:
        """Return what makes appends durable. Call after `enter`."""

    def begin(self, services: Services) -> None:
        """Begin what the home does beside flushes; the gateway serves from now on."""

    async def rest(self) -> None:
        """End what `begin` began; the gateway takes no more requests."""

    async def ended(self) -> NoReturn:
        """Wait until the gateway must stop serving at once, although nobody stopped it. Raises Ended."""

    async def leave(self, *, is_clean: bool) -> None:
        """End the gateway's hold on its home; the data directory is closed. After a clean stop all of its records are durable."""
