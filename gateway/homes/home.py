"""The port to a home."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, NoReturn, Protocol

from seqgate.gateway.runtime.composition import OpenJournal
from seqgate.gateway.runtime.partitions.cold_reads import Fetcher
from seqgate.gateway.runtime.partitions.flusher import LogFlusher
from seqgate.gateway.runtime.partitions.partition import Readiness
from seqgate.gateway.runtime.services import Services
from seqgate.log import Durability

if TYPE_CHECKING:
    from seqgate.gateway.cluster.cache.cache_state import CacheState
    from seqgate.gateway.cluster.membership.silence import Lease
    from seqgate.gateway.cluster.objects.objects import Counts

Hold = Callable[[Sequence[str]], AbstractAsyncContextManager[None]]


class StartFailed(Exception):
    """The gateway can't start; the message is a sentence for the person who started it."""


class Ended(Exception):
    """The gateway must not serve any more; the message is a sentence that says why."""


class Home(Protocol):
    """The port to the place where records are durable: the local disk, or a bucket. One gateway enters and
    leaves its home once.
    """

    durability: Durability

    @property
    def calls(self) -> Counts | None:
        """The calls to the bucket until now; None without a bucket."""

    @property
    def cache(self) -> CacheState | None:
        """The counts of the local cache; None without a bucket, and before the gateway serves."""

    @property
    def fetcher(self) -> Fetcher | None:
        """The fetcher of blocks that the local disk lacks; None where the disk has all blocks. Call after
        `enter`.
        """

    @property
    def readiness(self) -> Readiness:
        """Tells of which partitions the records are here."""

    @property
    def hold(self) -> Hold | None:
        """Keeps whole segment files on the local disk while another process reads them; None where the disk
        always has whole files. Call after `enter`.
        """

    @property
    def lease(self) -> Lease | None:
        """The lease of this gateway; None where no other gateway can take its partitions over. Call after
        `enter`.
        """

    async def enter(self) -> None:
        """Prepare the data directory, which no process has open. Raises StartFailed."""

    def flusher(self, loop: asyncio.AbstractEventLoop, durability: Durability) -> LogFlusher:
        """Return the flusher that makes appends durable. Call after `enter`."""

    @property
    def open_journal(self) -> OpenJournal | None:
        """Opens the journal of the metadata over its local log; None where the local log is the only one.
        Call after `enter`.
        """

    async def begin(self, services: Services) -> None:
        """Join the cluster, if there is one, and begin the home's background work. The gateway serves
        requests. Raises StartFailed.
        """

    async def prepare_stop(self) -> None:
        """Do what makes the stop short for clients, while requests are served."""

    async def rest(self) -> None:
        """End the background work that `begin` began; the gateway takes no more requests."""

    async def resign(self, *, is_clean: bool) -> None:
        """Let other gateways serve from now on: nothing more is appended, and after a clean stop all records
        are durable.
        """

    async def ended(self) -> NoReturn:
        """Wait until the home fails so that the gateway must stop at once. Raises Ended."""

    async def leave(self, *, is_clean: bool) -> None:
        """Leave the home, after the data directory is closed. After a clean stop all of its records are
        durable.
        """
