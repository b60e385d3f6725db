"""The home of one of several workers: the local disk, of which the worker has a share, and the process that
supervises it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NoReturn

from seqgate.gateway.config import Config
from seqgate.gateway.homes.home import Ended, Home
from seqgate.gateway.homes.local_home import LocalHome
from seqgate.gateway.metadata.image import TopicImage
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.partitions.flusher import Flusher, LogFlusher
from seqgate.gateway.runtime.partitions.partition import ALWAYS_READY
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog
from seqgate.gateway.workers.link import Left, Ready, SupervisorLink, WorkerJournal
from seqgate.gateway.workers.seating import Seat
from seqgate.log import Durability, LocalDurability

logger = logging.getLogger(__name__)


class WorkerHome:
    """The local disk under several workers."""

    fetcher: Final = None
    hold: Final = None
    calls: Final = None
    cache: Final = None
    open_journal: Final = None
    lease: Final = None
    readiness: Final = ALWAYS_READY

    def __init__(self, config: Config, machine: Machine, seat: Seat) -> None:
        """Take the worker's place; `enter` connects it."""
        self._config = config
        self._machine = machine
        self._seat = seat
        self._link: SupervisorLink
        self._following: asyncio.Task[None] | None = None
        self._follow: Callable[[], None] = lambda: None
        """Starts to fold in the changes that came."""
        self._services: Services | None = None
        self._leaving: list[TopicImage] = []
        """The topics that were removed before `begin`."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.durability: Durability = LocalDurability(machine.storage)

    async def enter(self) -> None:
        self._link = await SupervisorLink.open(self._seat.connection)

    def open_metadata(self) -> MetadataLog:
        """Return the metadata, which follows the changes of all workers from `begin` on.

        A change before then would miss the parts that carry it out.
        """
        seat = self._seat
        journal = WorkerJournal(self._link, seat.image, seat.end_offset)
        journal.when_removed = self._leave_soon
        metadata_log = MetadataLog(journal)

        def follow() -> None:
            # One catch-up takes all changes that came by then.
            if self._following is None:
                self._following = asyncio.get_running_loop().create_task(metadata_log.catch_up())
                self._following.add_done_callback(followed)

        def followed(task: asyncio.Task[None]) -> None:
            self._following = None
            if not task.cancelled() and task.exception() is not None:
                logger.error(
                    "a change of the metadata was not carried out completely", exc_info=task.exception()
                )
            if self._link.changes:
                follow()

        self._follow = follow
        return metadata_log

    def ready(self, services: Services) -> None:
        """Tell the supervisor that clients can connect, and where."""
        self._link.send(ready_of(services))

    def flusher(self, loop: asyncio.AbstractEventLoop, durability: Durability) -> LogFlusher:
        return Flusher(loop, machine=self._machine, durability=durability)

    async def begin(self, services: Services) -> None:
        self._services = services
        self._link.when_changed = self._follow
        self._follow()
        topics, self._leaving = self._leaving, []
        self._leave_soon(topics)

    def _leave_soon(self, topics: list[TopicImage]) -> None:
        """Tell the supervisor that this process uses no directory of these removed topics, once that is so."""
        if self._services is None:
            self._leaving += topics
            return
        for topic in topics:
            if self._uses(topic, self._services):
                task = asyncio.get_running_loop().create_task(self._leave_later(topic, self._services))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                self._link.send(Left(topic.topic_id))

    async def _leave_later(self, topic: TopicImage, services: Services) -> None:
        """Wait for the threads that recover logs of the topic. They know the directories by name."""
        for index in topic.partitions:
            await services.partitions.recoveries.settled((topic.name, index))
        if self._uses(topic, services):
            logger.error(
                "%s was deleted, and its logs were not let go; no topic can have this name now", topic.name
            )
        else:
            self._link.send(Left(topic.topic_id))

    @staticmethod
    def _uses(topic: TopicImage, services: Services) -> bool:
        directory = services.partitions.log_directory
        return any(directory.uses(topic.name, index) for index in topic.partitions)

    async def prepare_stop(self) -> None:
        pass

    async def rest(self) -> None:
        pass

    async def resign(self, *, is_clean: bool) -> None:
        pass

    async def ended(self) -> NoReturn:
        """Wait until the supervisor is gone. Then nobody would start this worker again, or stop it. Raises
        Ended.
        """
        raise Ended(await self._link.lost())

    async def leave(self, *, is_clean: bool) -> None:  # noqa: ARG002 - the files say it
        self._link.close()


def ready_of(services: Services) -> Ready:
    """Return the message that clients can connect to this gateway, and where."""
    node = services.node
    return Ready(
        {name: (place.host, place.port) for name, place in node.brokers.advertised.items()},
        [place.shown for place in node.bound.values()],
    )


# Chooses the home of a gateway's records.


def home_of(config: Config, machine: Machine, seat: Seat | None = None) -> Home:
    """Return the home that `seqgate.cluster` names: the local disk without it, and a worker's share of the
    disk with a `seat`.
    """
    if seat is not None:
        return WorkerHome(config, machine, seat)
    if config.optional_str("seqgate.cluster") is None:
        return LocalHome(config, machine)
    from seqgate.gateway.homes.bucket_home import BucketHome  # noqa: PLC0415 - a gateway without a cluster starts without its imports

    return BucketHome(config, machine)
