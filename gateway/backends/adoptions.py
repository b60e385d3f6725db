"""Brings the records of partitions that this gateway begins to lead from the bucket, while it serves others.

Another gateway led such a partition before, so the bucket alone has its records: a manifest, and rows in the
logs of ended sessions. The files are written beside the data of the gateway, in threads, and take the place
of what is here of the partition. Then the log is recovered as after a crash, and the partition is served.
Until then requests for it are refused, and clients ask again.

At a crash the next start makes the whole data directory anew, so a crash may come between any two steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from seqgate.gateway.cluster.objects.objects import ObjectStore, Refused, StoreFailed
from seqgate.gateway.cluster.parts.manifest import Manifest, PartitionKey
from seqgate.gateway.cluster.rebuild.history import RestoredState, restore
from seqgate.gateway.cluster.uploads.uploads import HandOverFailed, Uploads
from seqgate.gateway.cluster.wal.ended import StoredSessions
from seqgate.gateway.cluster.wal.sessions import CorruptRegistration
from seqgate.gateway.cluster.wal.wal_object import CorruptWalObject
from seqgate.gateway.metadata.image import INTERNAL_TOPICS, MetadataImage
from seqgate.gateway.metadata.leadership import Leadership, leadership_of
from seqgate.gateway.metadata.records import (
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
)
from seqgate.gateway.runtime.partitions.partition import Readiness
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.tasks import end_tasks, start_task
from seqgate.log import IncompatibleFormat, LogError, PartitionLog, Storage
from seqgate.log.rebuilding import StagedPartitions

logger = logging.getLogger(__name__)

ADOPTED_AT_ONCE: Final = 256
"""Partitions that are adopted together, so that each log is read once for all of them. The others follow."""
ADOPTIONS_AT_ONCE: Final = 2
"""Adoptions that run at the same time, so that a large one does not hold up all others."""
RETRIED_AFTER_S: Final = 10.0
_FAILURES: Final = (
    Refused,
    StoreFailed,
    CorruptWalObject,
    CorruptRegistration,
    IncompatibleFormat,
    LogError,
    OSError,
)


class Adoptions(Readiness):
    """The `Readiness` of a gateway in a cluster: the partitions whose records are not here, or are coming."""

    def __init__(
        self,
        restored: dict[PartitionKey, Manifest],
        began_with: Callable[[PartitionKey, Leadership], bool] = lambda _, __: True,
        *,
        has_joined: bool = True,
    ) -> None:
        """`restored` are the manifests from which local files were made, and are kept up to date here.
        `began_with` returns whether the start has restored all of a partition from before this leadership.
        """
        self._restored = restored
        self._began_with = began_with
        self._absent: set[PartitionKey] = set()
        """The partitions of the metadata whose records are not here: others lead or led them."""
        self.has_joined = has_joined
        """Whether the gateway is a member. Before, others may lead its partitions, so none is served."""
        self._withdrawn: set[PartitionKey] = set()
        self._wanted: dict[PartitionKey, int] = {}
        """The partitions to adopt, with the number of the order; a later order replaces it."""
        self._orders = 0
        self._is_stopped = False
        self._running: set[PartitionKey] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: dict[PartitionKey, asyncio.Task[None]] = {}
        """The logs of lost partitions that wait for their last flush."""
        self._complaints: dict[PartitionKey, str] = {}
        """Why partitions could not be adopted, as it was logged."""
        self._turns: asyncio.Semaphore
        self._is_started = False
        self._services: Services
        self._objects: ObjectStore
        self._storage: Storage
        self._sessions: StoredSessions
        self._uploads: Uploads

    # --- what is here

    def begin(self, image: MetadataImage) -> None:
        """Take the metadata of the start: what the start has not restored is not here. `start` takes newer
        metadata in the same way: a gateway that joined and ended meanwhile may have led a partition.
        """
        self._absent |= {
            key
            for topic in image.topics_by_id.values()
            for index, partition in topic.partitions.items()
            if not self._began_with(
                key := PartitionKey(topic.topic_id, index), leadership_of(image, partition)
            )
        }

    def is_ready(self, topic_id: UUID, index: int) -> bool:
        """Return whether the records of a partition are here, and nobody takes them over right now."""
        key = PartitionKey(topic_id, index)
        return self.has_joined and key not in self._absent and key not in self._withdrawn

    def lost(self, topic: str, topic_id: UUID, index: int) -> None:
        """Give up a partition that another gateway leads. Its files go once its last records are durable."""
        key = PartitionKey(topic_id, index)
        self._withdrawn.discard(key)
        self._wanted.pop(key, None)
        self._complaints.pop(key, None)
        if key in self._absent:
            return
        self._absent.add(key)
        if not self._is_started:
            return
        self._uploads.released(key)
        log = self._services.partitions.log_directory.opened(topic, index)
        if log is not None and not log.offline and log.recovery_point < log.log_end_offset:
            task = asyncio.get_running_loop().create_task(self._drop_when_flushed(log, key))
            self._closing[key] = task
            task.add_done_callback(lambda done: self._closed(key, done))
        else:
            self._drop(topic, key)

    async def _drop_when_flushed(self, log: PartitionLog, key: PartitionKey) -> None:
        with contextlib.suppress(LogError):
            await self._services.partitions.flusher.flushed(log)
        if self._services.partitions.log_directory.opened(log.topic, log.partition) is log:
            self._drop(log.topic, key)

    def _closed(self, key: PartitionKey, done: asyncio.Task[None]) -> None:
        if self._closing.get(key) is done:
            del self._closing[key]

    def _drop(self, topic: str, key: PartitionKey) -> None:
        self._restored.pop(key, None)
        try:
            self._services.partitions.log_directory.delete(topic, key.partition)
        except (LogError, OSError) as error:
            logger.warning("the local files of %s-%d can't be deleted now: %s", topic, key.partition, error)

    # --- the end of a leadership

    async def hand_over(self, topic_id: UUID, index: int) -> None:
        """Serve a partition no more, and upload all of it, so that the metadata may give it to another
        gateway. Call `keep` if the metadata does not. Raises HandOverFailed, and as `Uploads.hand_over`; the
        partition is then served on.
        """
        partitions = self._services.partitions
        image = self._services.topics.metadata_log.image.topics_by_id.get(topic_id)
        if image is None:
            raise HandOverFailed("its topic was deleted")
        topic, key = image.name, PartitionKey(topic_id, index)
        self._withdrawn.add(key)
        try:
            partitions.registry.release(topic, index)
            await partitions.recoveries.open(partitions.log_directory, (topic, index))
            log = _of_topic(topic_id, partitions.log_directory.get(topic, index))
            if log is not None:
                log.begin_leader_epoch(image.partitions[index].leader_epoch)
                await self._uploads.hand_over(log)
        except BaseException:
            self._withdrawn.discard(key)
            raise

    def keep(self, topic_id: UUID, index: int) -> None:
        """Serve a partition again that was handed over, and that no other gateway leads."""
        self._withdrawn.discard(PartitionKey(topic_id, index))

    # --- adoption

    def start(
        self,
        services: Services,
        objects: ObjectStore,
        storage: Storage,
        sessions: StoredSessions,
        uploads: Uploads,
    ) -> None:
        """Adopt what this gateway leads and lacks, now and after each change of the metadata."""
        self._is_started = True
        self._services, self._objects, self._storage = services, objects, storage
        self._sessions, self._uploads = sessions, uploads
        self._turns = asyncio.Semaphore(ADOPTIONS_AT_ONCE)
        services.topics.metadata_log.add_listener(self.changed)
        self.begin(services.topics.metadata_log.image)
        self._drop_outdated()
        self._order(self._absent)

    def _drop_outdated(self) -> None:
        """Drop what the start has restored of partitions that another gateway has led since."""
        topics = self._services.topics.metadata_log.image.topics_by_id
        for key in self._absent:
            topic = topics.get(key.topic_id)
            if topic is not None:
                self._drop(topic.name, key)

    def joined(self) -> None:
        """Serve what is here and still ours, now as a member. Open what the start would have opened."""
        self.has_joined = True
        self._services.topics.lifecycle.open_needed()
        self._services.upkeep.compaction.check_closed()
        self._services.upkeep.backlog.measure_soon()
        registry = self._services.partitions.registry
        topics = self._services.topics.metadata_log.image.topics_by_name
        for name in INTERNAL_TOPICS:
            for index in topics[name].partitions if name in topics else ():
                if registry.get(name, index) is not None:
                    registry.became_ready(name, index)

    async def stop(self) -> None:
        """End all adoptions, and discard what is unfinished; later changes of the metadata begin none."""
        self._is_stopped = True
        await end_tasks(*self._tasks, *self._closing.values())

    @property
    def has_all(self) -> bool:
        """Whether all records are here: no other gateway leads a partition, and no adoption is unfinished."""
        return not self._absent

    async def changed(self, records: Sequence[MetadataRecord]) -> None:
        """Adopt the partitions that a change of the metadata has given to this gateway."""
        image, brokers = self._services.topics.metadata_log.image, self._services.node.brokers
        changed = [
            PartitionKey(record.topic_id, record.partition_id)
            for record in records
            if isinstance(record, PartitionRecord)
        ]
        removed = {record.topic_id for record in records if isinstance(record, RemoveTopicRecord)}
        if removed:
            self._forget(removed)
        if any(isinstance(record, RegisterBrokerRecord) for record in records):
            # The first registration ends the time in which this gateway led everything.
            for topic in image.topics_by_id.values():
                for index, partition in topic.partitions.items():
                    if not brokers.leads(partition):
                        self.lost(topic.name, topic.topic_id, index)
        self._order(changed)

    def _forget(self, removed: Collection[UUID]) -> None:
        for keys in (self._absent, self._withdrawn):
            keys.difference_update([key for key in keys if key.topic_id in removed])
        tables: tuple[dict[PartitionKey, Any], ...] = (self._wanted, self._restored, self._complaints)
        for table in tables:
            for key in [key for key in table if key.topic_id in removed]:
                del table[key]

    def _order(self, partitions: Iterable[PartitionKey]) -> None:
        """Begin to adopt those of the partitions that this gateway leads and lacks."""
        keys = [key for key in partitions if key in self._absent and self._leads(key)]
        if not keys or self._is_stopped:
            return
        self._orders += 1
        self._wanted.update(dict.fromkeys(keys, self._orders))
        for first in range(0, len(keys), ADOPTED_AT_ONCE):
            some = keys[first : first + ADOPTED_AT_ONCE]
            start_task(self._tasks, self._adopt(some, self._orders), "adoption")

    def _leads(self, key: PartitionKey) -> bool:
        partition = self._services.topics.metadata_log.image.partition(*key)
        return partition is not None and self._services.node.brokers.leads(partition)

    async def _adopt(self, keys: Sequence[PartitionKey], order: int) -> None:
        """Adopt partitions together, until all are here or ordered by somebody else."""
        while True:
            keys = [key for key in keys if self._wanted.get(key) == order]
            if not keys:
                return
            try:
                async with self._turns:
                    await self._adopt_once(keys, order)
            except _FAILURES as error:
                for key in keys:
                    self._complain(key, error)
            except Exception:
                logger.exception("an adoption failed in an unexpected way and is tried again")
            if any(self._wanted.get(key) == order for key in keys):
                await asyncio.sleep(RETRIED_AFTER_S)

    async def _adopt_once(self, keys: Sequence[PartitionKey], order: int) -> None:
        directory = self._services.partitions.log_directory
        # Another order may still write files of the same partitions.
        while self._running.intersection(keys):
            await asyncio.wait(
                [task for task in self._tasks if task is not asyncio.current_task()], timeout=1.0
            )
        self._running.update(keys)
        try:
            staged = StagedPartitions(self._storage.apart(), directory.path)
            try:
                restored = await restore(
                    self._objects, await self._sessions.ended(), staged, keys, _in_thread
                )
                for key in keys:
                    await self._finish(key, order, staged, restored)
            finally:
                for topic_id, index in staged.staged:
                    staged.discard(topic_id, index)
        finally:
            self._running.difference_update(keys)

    async def _finish(
        self, key: PartitionKey, order: int, staged: StagedPartitions, restored: RestoredState
    ) -> None:
        failure = restored.failures.get(key)
        if failure is not None:
            self._complain(key, failure)
            return
        try:
            if await self._take_in(key, order, staged, restored.manifests.get(key)):
                self._became_ready(key, is_behind=key in restored.with_rows)
        except _FAILURES as error:
            self._complain(key, error)

    async def _take_in(
        self, key: PartitionKey, order: int, staged: StagedPartitions, manifest: Manifest | None
    ) -> bool:
        """Put the files in place, and recover the log; False if unwanted now. Raises LogError, OSError."""
        partitions = self._services.partitions
        topic = self._services.topics.metadata_log.image.topics_by_id.get(key.topic_id)
        if topic is None or self._wanted.get(key) != order:
            return False
        name, index = topic.name, key.partition
        closing = self._closing.get(key)
        if closing is not None:
            await asyncio.wait([closing])
        await partitions.recoveries.settled((name, index))
        if self._wanted.get(key) != order or not self._exists(key):
            return False
        complete = staged.complete(*key)
        partitions.log_directory.take_in(name, index, complete.path, complete.recovery_point)
        path = partitions.log_directory.path / f"{name}-{index}"
        partitions.log_directory.environment.durability.rebuilt(
            [str(path / segment) for segment in complete.segments]
        )
        if manifest is None:
            self._restored.pop(key, None)
        else:
            self._restored[key] = manifest
        await partitions.recoveries.open(partitions.log_directory, (name, index))
        stored = partitions.log_directory.stored().get((name, index))
        if stored is not None and stored.stop is None:
            raise OSError(f"the log of {name}-{index} could not be recovered")
        if self._wanted.get(key) == order:
            return True
        # Where the topic was deleted, its files have gone, and another topic may have its name by now.
        if key not in self._wanted and self._exists(key):
            self._drop(name, key)
        return False

    def _exists(self, key: PartitionKey) -> bool:
        """Whether the topic exists. Its deletion is told to others first, which delete its logs."""
        return key.topic_id in self._services.topics.metadata_log.image.topics_by_id

    def _became_ready(self, key: PartitionKey, *, is_behind: bool) -> None:
        partitions = self._services.partitions
        topic = self._services.topics.metadata_log.image.topics_by_id[key.topic_id]
        name, index = topic.name, key.partition
        del self._wanted[key]
        self._absent.discard(key)
        self._complaints.pop(key, None)
        stored = partitions.log_directory.stored().get((name, index))
        stop = None if stored is None else stored.stop
        if name in INTERNAL_TOPICS or (stop is not None and stop.has_open_transactions):
            partitions.registry.get(name, index)
        partitions.registry.became_ready(name, index)
        self._uploads.adopted([key] if is_behind else [])
        logger.info("%s-%d is here, in leader epoch %d", name, index, topic.partitions[index].leader_epoch)

    def _complain(self, key: PartitionKey, error: Exception) -> None:
        """Log once why a partition can't be adopted now, unless nobody wants it any more."""
        if key not in self._wanted:
            return
        sentence = str(error) or type(error).__name__
        if self._complaints.get(key) != sentence:
            self._complaints[key] = sentence
            logger.error(
                "partition %d of the topic %s can't be taken over now, and is tried again: %s",
                key.partition,
                key.topic_id,
                sentence,
            )


async def _in_thread(work: Callable[[], None]) -> None:
    """Run work in a thread. A cancelled caller waits until the thread is done: two never write at once."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    # The error of work whose caller was cancelled has nobody left to take it.
    running.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def _of_topic(topic_id: UUID, log: PartitionLog | None) -> PartitionLog | None:
    if log is not None and log.topic_id != topic_id:
        raise HandOverFailed("its topic was deleted, and another one has its name")
    return log
