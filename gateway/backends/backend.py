"""The backend of a gateway: the place where its records are durable. It is the local disk, a worker's share
of the local disk, or a bucket (`bucket_backend`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from seqgate.gateway.admin.request import in_words
from seqgate.gateway.cluster.cache.local_caches import caches_in
from seqgate.gateway.cluster.rebuild.local_session import read_local_session
from seqgate.gateway.config import Config
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import TopicImage
from seqgate.gateway.metadata.records import UnknownRecordError
from seqgate.gateway.runtime.composition import Surroundings, open_metadata
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.partitions.flusher import Flusher, LogFlusher
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.topics.metadata_log import LocalJournal, MetadataJournal, MetadataLog
from seqgate.gateway.security.certificates import StoreError
from seqgate.gateway.security.principals import LoginSettingsError
from seqgate.gateway.tasks import start_task
from seqgate.gateway.workers.link import (
    FromWorker,
    Left,
    Ready,
    RoundEnded,
    RoundStep,
    SupervisorLink,
    WorkerJournal,
    WorkerRounds,
)
from seqgate.gateway.workers.worker_brokers import WorkerStart, unregistered
from seqgate.log import (
    DirectoryLocked,
    Durability,
    IncompatibleFormat,
    LocalDurability,
    LogDirectory,
    LogError,
    PartitionLog,
    Storage,
)
from seqgate.log.sharing import is_shared

if TYPE_CHECKING:
    from seqgate.gateway.cluster.cache.local_caches import CacheState
    from seqgate.gateway.cluster.objects.objects import Counts
    from seqgate.gateway.cluster.uploads.uploads import Uploads

logger = logging.getLogger(__name__)


class StartFailed(Exception):
    """The gateway can't start; the message is a sentence for the person who started it."""


class Ended(Exception):
    """The gateway must not serve any more; the message is a sentence that says why."""


@contextlib.contextmanager
def opening(directory: Path | str) -> Iterator[None]:
    """Turn the errors of opening a data directory into a sentence. Raises StartFailed."""
    try:
        yield
    except DirectoryLocked as error:
        raise StartFailed(str(error)) from error
    except (LogError, IncompatibleFormat, OSError, UnknownRecordError) as error:
        raise StartFailed(f"the data directory {directory} can't be opened: {in_words(error)}") from error


@contextlib.contextmanager
def preparing(listener: str) -> Iterator[None]:
    """Turn the errors of a listener's certificate and logins into a sentence. Raises StartFailed."""
    try:
        yield
    except StoreError as error:
        raise StartFailed(f"listener {listener} can't speak TLS: {error}") from error
    except LoginSettingsError as error:
        raise StartFailed(f"listener {listener} can't log clients in: {error}") from error


class Backend:
    """The place where records are durable. One gateway enters and leaves its backend once. A backend that
    says nothing else is a local disk, which has all records, and which no other gateway can take over.
    """

    def __init__(self, config: Config, machine: Machine) -> None:
        """Change nothing yet; `enter` does."""
        self._config = config
        self._machine = machine
        self.durability: Durability = LocalDurability(machine.storage)

    @property
    def calls(self) -> Counts | None:
        """The calls to the bucket until now; None without a bucket."""
        return None

    @property
    def cache(self) -> CacheState | None:
        """The counts of the local cache; None without a bucket, and before the gateway serves."""
        return None

    @property
    def uploads(self) -> Uploads | None:
        """The uploads into the bucket; None without a bucket, and before the gateway serves."""
        return None

    def surroundings(self) -> Surroundings:
        """Return what the backend adds to the parts of its gateway. Call after `enter`."""
        return Surroundings(has_whole_directory=False)

    async def check(self) -> None:
        """Check, for a process that is not to start, what `enter` refuses, as far as the files of this
        machine tell, and change none. Raises StartFailed.
        """

    async def enter(self) -> None:
        """Prepare the data directory, which no process has open. Raises StartFailed."""

    def flusher(self, loop: asyncio.AbstractEventLoop, durability: Durability) -> LogFlusher:
        """Return the flusher that makes appends durable. Call after `enter`."""
        return Flusher(loop, machine=self._machine, durability=durability)

    async def open_metadata(self, directory: LogDirectory, flusher: LogFlusher) -> MetadataLog:
        """Read the metadata and later changes. Raises LogError, IncompatibleFormat, OSError, ValueError."""
        return await open_metadata(directory, lambda log: self.journal(log, flusher))

    def journal(self, log: PartitionLog, flusher: LogFlusher) -> MetadataJournal:
        return LocalJournal(log, flusher, self._machine.clock)

    async def begin(self, services: Services) -> None:
        """Join a cluster, and begin background work. The gateway serves requests. Raises StartFailed."""

    async def prepare_stop(self) -> None:
        """Do what makes the stop short for clients, while requests are served."""

    async def rest(self) -> None:
        """End the background work that `begin` began; the gateway takes no more requests."""

    async def resign(self, *, is_clean: bool) -> None:
        """Let other gateways serve: nothing more is appended. After a clean stop all records are durable."""

    async def ended(self) -> NoReturn:
        """Wait until the backend fails so that the gateway must stop at once. Raises Ended."""
        while True:
            await asyncio.Event().wait()

    async def leave(self, *, is_clean: bool) -> None:
        """Leave the backend; the data directory is closed. After a clean stop all records are durable."""


class DiskBackend(Backend):
    """The local disk: the data directory is all there is."""

    def surroundings(self) -> Surroundings:
        return Surroundings(has_whole_directory=True)

    async def check(self) -> None:
        """Refuse a bucket's cache, and the directory of another node or of a later release."""
        from seqgate.log.stopped import check_identity  # noqa: PLC0415 - a start needs none of it

        storage, path = self._machine.storage, self._config.str("log.dirs")
        check_no_cache(storage, self._config)
        with opening(path):
            check_identity(storage, path, self._config.int("node.id"))

    async def enter(self) -> None:
        """Refuse a bucket's cache, and make a directory whole that workers had last. Raises StartFailed."""
        storage, path = self._machine.storage, self._config.str("log.dirs")
        check_no_cache(storage, self._config)
        if not is_shared(storage, path):
            return
        from seqgate.gateway.workers.shared_directory import recover_whole  # noqa: PLC0415 - seldom needed

        with opening(path):
            recover_whole(storage, Path(path), self._config.int("node.id"), self._machine.clock.now_ms)

    async def open_metadata(self, directory: LogDirectory, flusher: LogFlusher) -> MetadataLog:
        """Read the metadata, shorten a log that is mostly history, and remove workers whose start ended
        before they had their files. Otherwise partitions would have leaders that never run. Raises LogError,
        IncompatibleFormat, OSError, ValueError.
        """
        metadata_log = await super().open_metadata(directory, flusher)
        metadata_log.shorten(directory, self._machine.clock.now_ms())
        await metadata_log.commit(lambda image: Decision(list(unregistered(image)), None))
        return metadata_log


def check_no_cache(storage: Storage, config: Config) -> None:
    """Refuse a bucket's cache: its files are not durable, and may be older. Raises StartFailed."""
    path = config.str("log.dirs")
    with opening(path):
        local = read_local_session(storage, path)
    if caches_in(Path(path)):
        raise StartFailed(
            f"the data directory {path} has the caches of workers of a bucket; start with --cluster, or name "
            "another directory"
        )
    if local is not None:
        raise StartFailed(
            f"the data directory {path} is a cache of {local.address}, which has the records; start with "
            f"--cluster {local.address}, or name another directory"
        )


class WorkerBackend(Backend):
    """A share of the local disk, which several workers have, and the process that supervises this one."""

    def __init__(self, config: Config, machine: Machine, start: WorkerStart) -> None:
        super().__init__(config, machine)
        self._start = start
        self._link: SupervisorLink
        self._rounds: WorkerRounds
        self._metadata_log: MetadataLog
        self._following: asyncio.Task[None] | None = None
        self._services: Services | None = None
        self._leaving: list[TopicImage] = []
        """The topics that were removed before `begin`."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def enter(self) -> None:
        self._link = await SupervisorLink.open(self._start.connection, self._follow, self._stage)
        self._rounds = WorkerRounds(self._link)

    def surroundings(self) -> Surroundings:
        return Surroundings(has_whole_directory=False, stage_all=self._rounds.stage)

    def _stage(self, message: RoundStep | RoundEnded) -> None:
        """Take part in a backup: the supervisor begins a round only while all workers serve."""
        part = self._rounds.take(message)
        if part is not None and self._services is not None and self._services.upkeep.backups is not None:
            start_task(self._tasks, self._services.upkeep.backups.stage_share(part))

    async def open_metadata(
        self,
        directory: LogDirectory,  # noqa: ARG002 - the supervisor has the log
        flusher: LogFlusher,  # noqa: ARG002
    ) -> MetadataLog:
        """Return the metadata, which follows the changes of all workers from `begin` on. A change before then
        would miss the parts that carry it out.
        """
        start = self._start
        journal = WorkerJournal(self._link, start.image, start.end_offset, self._leave_soon)
        self._metadata_log = MetadataLog(journal)
        return self._metadata_log

    def send(self, message: FromWorker) -> None:
        self._link.send(message)

    async def begin(self, services: Services) -> None:
        self._services = services
        self._follow()
        topics, self._leaving = self._leaving, []
        self._leave_soon(topics)

    def _follow(self) -> None:
        """Fold in the changes that came. One catch-up takes all changes that came by then."""
        if self._services is not None and self._following is None:
            self._following = asyncio.get_running_loop().create_task(self._metadata_log.catch_up())
            self._following.add_done_callback(self._followed)

    def _followed(self, task: asyncio.Task[None]) -> None:
        self._following = None
        if not task.cancelled() and task.exception() is not None:
            logger.error("a change of the metadata was not carried out completely", exc_info=task.exception())
        if self._link.changes:
            self._follow()

    def _leave_soon(self, topics: list[TopicImage]) -> None:
        """Tell the supervisor once this process uses no directory of these removed topics."""
        if self._services is None:
            self._leaving += topics
            return
        for topic in topics:
            if self._uses(topic, self._services):
                start_task(self._tasks, self._leave_later(topic, self._services))
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

    async def ended(self) -> NoReturn:
        """Wait until the supervisor is gone: then nobody would restart or stop this worker. Raises Ended."""
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


def backend_of(config: Config, machine: Machine, start: WorkerStart | None = None) -> Backend:
    """Return the backend of `seqgate.cluster`: without it the local disk, with a `start` a worker's share."""
    if start is not None:
        return WorkerBackend(config, machine, start)
    if config.optional_str("seqgate.cluster") is None:
        return DiskBackend(config, machine)
    from seqgate.gateway.backends.bucket_backend import BucketBackend  # noqa: PLC0415 - the imports are slow

    return BucketBackend(config, machine)
