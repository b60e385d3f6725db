"""Looks into a running broker, breaks parts of it, and does what needs no client, all in its event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Self
from uuid import UUID

from seqgate.gateway.coordinator.transaction.rules import Producer, TransactionRefused
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.handlers.answering.changes import fresh_id
from seqgate.gateway.handlers.transactions.init_producer_id import begin_producer
from seqgate.gateway.metadata.image import TRANSACTION_STATE_TOPIC
from seqgate.gateway.metadata.topics import TopicCreation, create_topics
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.testing.stored import StoredProducer, StoredRecord, committed_records, producers_of
from seqgate.log import PartitionLog, Storage
from seqgate.log.format.record_batch import whole_batches
from seqgate.seq_validator import RefusalLimit


class Inside:
    """The gateway that runs when a method is called."""

    def __init__(self, gateway: Callable[[], Gateway], disk: FillableStorage) -> None:
        self._gateway = gateway
        self._disk = disk

    @property
    def _registry(self) -> Partitions:
        return self._gateway().services.partitions.registry

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Create a topic. Raises ValueError if the broker refuses it, for example because it exists."""
        services = self._gateway().services
        new = TopicCreation(name=name, num_partitions=partitions, configs=[*configs.items()])
        results = await services.topics.metadata_log.commit(
            lambda image: create_topics(
                image,
                [new],
                fresh_ids=[fresh_id()],
                config=services.node.config,
                node_id=services.node.node_id,
            )
        )
        error = results[0].error
        if error is not None:
            reason = error.message or error.error_code.name.upper()
            raise ValueError(f"topic {name!r} can't be created: {reason}")
        # The first use flushes a log for its directory's sake. After that, what a power cut leaves is no
        # chance.
        list(self._partitions(name))
        await services.partitions.flusher.idle()

    async def topics(self) -> list[str]:
        """Return the names of the topics, internal ones left out."""
        return sorted(name for name in self._registry.by_name if not name.startswith("__"))

    async def records(self, topic: str) -> list[StoredRecord]:
        """Return the committed records of a topic, by partition and offset. Raises LookupError without it."""
        return [record for each in self._partitions(topic) for record in committed_records(each)]

    async def producers(self, topic: str) -> list[StoredProducer]:
        """Return the producers that the partitions of a topic track. Raises LookupError without it."""
        return [row for each in self._partitions(topic) for row in producers_of(each)]

    async def groups(self) -> dict[str, str]:
        """Return the state of each group, by its id."""
        shards = self._gateway().services.coordinators.groups.loaded_shards()
        return {group.group_id: group.state_text for shard in shards for group in shard.all_groups()}

    async def live_brokers(self) -> int:
        """Return how many brokers of the cluster are registered and not fenced."""
        services = self._gateway().services
        return len(services.topics.metadata_log.image.brokers.live(services.node.node_id))

    async def led(self, topic: str) -> dict[int, bool]:
        """Return whether this broker leads and has each partition of a topic; none without the topic."""
        services = self._gateway().services
        found = services.topics.metadata_log.image.topics_by_name.get(topic)
        return {
            index: partition.leader == services.node.node_id and self._registry.get(topic, index) is not None
            for index, partition in ({} if found is None else found.partitions).items()
        }

    async def advance(self, by_s: float) -> None:
        """Move the clock and the timers forward; return when what is due has begun."""
        gateway, loop = self._gateway(), asyncio.get_running_loop()
        assert isinstance(gateway.machine, ShiftedMachine)
        assert isinstance(loop, ShiftedLoop)
        gateway.machine.ahead_s += by_s
        loop.ahead_s += by_s
        gateway.services.coordinators.transactions.abort_overdue()
        # Timers that are due run in the turn after the next one.
        for _ in range(2):
            await asyncio.sleep(0)

    def durable_parts(self) -> list[DurablePart]:
        """Return what a power cut would leave of each log now."""
        return [DurablePart.of(each.log) for each in self._registry]

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with an id; None if there is none."""
        topic = self._registry.by_id.get(topic_id)
        return None if topic is None else topic.name

    def refusals(self) -> RefusalLimit:
        """Return the limit of the refused batches that connections track."""
        return self._gateway().services.partitions.refusals

    def _partitions(self, topic: str) -> list[Partition]:
        if topic not in self._registry.by_name:
            raise LookupError(f"there is no topic {topic!r}")
        return list(self._registry.by_name[topic].all())

    # --- breaking parts

    async def take_offline(self, topic: str, partition: int) -> None:
        """Let a partition fail as after a failed write. Raises LookupError if there is none."""
        found = self._registry.get(topic, partition)
        if found is None:
            raise LookupError(f"there is no partition {topic}-{partition}")
        if not found.log.offline:
            found.log.go_offline("a test took the partition offline")

    async def bring_back(self, topic: str, partition: int) -> None:
        """Recover a partition if it is offline and still exists."""
        found = self._registry.get(topic, partition)
        if found is not None and found.log.offline:
            await self._gateway().services.partitions.recoveries.reopen(found.log, found)

    def fill_disk(self, is_full: bool) -> None:
        """Let the disk seem to have no room, or its own room; a running broker sees it by `check_disk`."""
        self._disk.is_full = is_full

    async def check_disk(self) -> None:
        self._gateway().services.upkeep.disk_room.check_free_space()

    async def expire_producer(self, producer_id: int) -> int:
        """Expire a producer; return in how many partitions it was known."""
        count = 0
        for partition in self._registry:
            entry = partition.log.producers.get(producer_id)
            if entry is not None:
                partition.log.producers.forget(entry)
                count += 1
        return count

    async def fence(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id. Raises LookupError if there is none, and ValueError while
        its coordinator can't answer.
        """
        has_topic = TRANSACTION_STATE_TOPIC in self._registry.by_name
        transactions = self._gateway().services.coordinators.transactions
        try:
            # no producer has asked for its coordinator yet where the topic is missing
            found = transactions.find(transactional_id) if has_topic else None
            if found is None:
                raise LookupError(f"there is no transactional id {transactional_id!r}")
            await begin_producer(transactions, transactional_id, found.timeout_ms, Producer())
        except (Unavailable, TransactionRefused) as error:
            raise ValueError(f"transactional id {transactional_id!r} can't be fenced: {error}") from None


# Loses what a log had not flushed, as a machine does that loses its power.

_LOG_SUFFIX = ".log"
_NAME_DIGITS = 20


class DurablePart(NamedTuple):
    """The directory of a log, and the offset below which its records are durable."""

    directory: Path
    durable_end_offset: int

    @classmethod
    def of(cls, log: PartitionLog) -> Self:
        """Return what a power cut leaves of a log now."""
        return cls(Path(log.directory), log.recovery_point)

    def lose_the_rest(self) -> None:
        """Cut off the records that are not durable. Nobody may have the log open."""
        for path in sorted(self.directory.glob(f"{'[0-9]' * _NAME_DIGITS}{_LOG_SUFFIX}")):
            base_offset = int(path.name.removesuffix(_LOG_SUFFIX))
            if base_offset > self.durable_end_offset:
                for file in self.directory.glob(f"{path.stem}.*"):
                    file.unlink()
                continue
            content = memoryview(path.read_bytes())
            kept = 0
            for position, batch in whole_batches(content):
                if batch.base_offset >= self.durable_end_offset:
                    break
                kept = position + batch.size_bytes
            content.release()
            with path.open("r+b") as file_:
                file_.truncate(kept)


# A clock that a test moves: the gateway's wall clock, its durations and its timers move together.


class ShiftedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time a test can move forward, so that timers are due earlier."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        super().__init__()

    def time(self) -> float:
        """Return seconds of a clock that is never set, with what the test has added."""
        return super().time() + self.ahead_s


class FillableStorage(Storage):
    """The storage of the machine, which can seem to be full."""

    is_full = False

    def free_bytes(self, path: str) -> int:
        """Return the free space of the disk with `path`; 0 while the disk seems to be full."""
        return 0 if self.is_full else super().free_bytes(path)


class ShiftedMachine(Machine):
    """The machine with its clocks moved forward."""

    def __init__(self) -> None:
        self.disk = FillableStorage()
        super().__init__(storage=self.disk)
        self.ahead_s = 0.0
        self.clock = _ShiftedClock(self)

    def seconds(self) -> float:
        """Return seconds of a clock that is never set, with what the test has added."""
        return super().seconds() + self.ahead_s

    def boot_seconds(self) -> float:
        """Return seconds of a clock that counts suspensions, with what the test has added."""
        return super().boot_seconds() + self.ahead_s


class _ShiftedClock(Clock):
    def __init__(self, machine: ShiftedMachine) -> None:
        self._machine = machine
        self._clock = Machine().clock

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, with what the test has added."""
        return self._clock.now_ms() + round(self._machine.ahead_s * 1000)


class BrokerClock:
    """A broker's clock: retention, transactions, sessions and all else follow it; clients do not."""

    def __init__(self, advance: Callable[[float], None]) -> None:
        """`advance` moves the broker's clocks by seconds, and returns when what is due has begun."""
        self._advance = advance

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Move the clock forward. Raises ValueError for a negative time."""
        by = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        if by < timedelta():
            raise ValueError(f"the clock only moves forward, not by {by}")
        self._advance(by.total_seconds())
