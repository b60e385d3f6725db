"""The parts that all partition logs of one process share."""

from __future__ import annotations

import uuid
from dataclasses import InitVar, dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from seqgate.log.durability.durability import Durability, LocalDurability
from seqgate.log.durability.unflushed import DurableEnds
from seqgate.log.files.deletion_queue import DeletionQueue
from seqgate.log.files.storage import DataFile, Storage
from seqgate.log.segments.damage import DamageRegister
from seqgate.log.segments.indexes import IndexCache, RebuiltIndexes, SegmentIndexes
from seqgate.log.segments.transaction_index import TransactionIndex
from seqgate.seq_validator import ProducerLimit
from seqgate.seq_validator.names import NameBudget, TopicNames


class DelayedLimit:
    """The limits on delayed records, in one partition and in the whole process."""

    def __init__(self, max_per_partition: int = 100_000, max_in_all: int = 1_000_000) -> None:
        self.max_per_partition = max_per_partition
        self.max_in_all = max_in_all
        self.in_all = 0

    def change(self, max_per_partition: int, max_in_all: int) -> None:
        self.max_per_partition = max_per_partition
        self.max_in_all = max_in_all

    def refusal(self, in_partition: int, adding: int) -> str | None:
        """Return why a partition may not track `adding` more records; None when it may."""
        if in_partition + adding > self.max_per_partition:
            return (
                f"{in_partition} records of the partition are not due yet, "
                f"at most {self.max_per_partition} are allowed"
            )
        if self.in_all + adding > self.max_in_all:
            return (
                f"{self.in_all} records of the gateway are not due yet, at most {self.max_in_all} are allowed"
            )
        return None


@dataclass(slots=True)
class LogEnvironment:
    """The storage, the caches of closed segments' indexes, the state's budgets, the deletions, the damage."""

    storage: Storage = field(default_factory=Storage)
    index_cache: IndexCache[SegmentIndexes] = field(default_factory=IndexCache)
    transaction_index_cache: IndexCache[TransactionIndex] = field(default_factory=IndexCache)
    rebuilt_indexes: RebuiltIndexes = field(default_factory=RebuiltIndexes)
    made_durable_by: InitVar[Durability | None] = None
    """The durability that persists tickets and files; None for the local disk."""
    durability: Durability = field(init=False)
    durable_ends: DurableEnds = field(default_factory=DurableEnds)
    producer_limit: ProducerLimit | None = None
    deletions: DeletionQueue = field(default_factory=DeletionQueue)
    tables: list[dict[Any, Any]] = field(default_factory=list)
    """The tables with entries for partitions or their producers. The owner may rebuild them in place."""
    damage: DamageRegister = field(default_factory=DamageRegister)
    recovery_points_lost: bool = False
    """Whether the recovery points were lost. Then gaps in segments may be due to compaction, no damage."""
    is_apart: bool = False
    """Whether a thread beside the event loop uses the environment, which may wait for a bucket."""
    delayed_limit: DelayedLimit = field(default_factory=DelayedLimit)
    name_budget: NameBudget = field(default_factory=NameBudget)
    _topic_names: WeakValueDictionary[uuid.UUID, TopicNames] = field(default_factory=WeakValueDictionary)

    def __post_init__(self, made_durable_by: Durability | None) -> None:
        """Take the durability, by default that of the storage's disk, and the tables of the parts."""
        self.durability = LocalDurability(self.storage) if made_durable_by is None else made_durable_by
        self.tables.append(self.deletions.paths)
        if self.producer_limit is not None:
            self.tables.append(self.producer_limit.producers)

    def apart(self) -> LogEnvironment:
        """Return an environment for another thread: own storage and caches on the same disk, no budgets."""
        return LogEnvironment(
            self.storage.apart(),
            made_durable_by=self.durability,
            damage=self.damage,
            recovery_points_lost=self.recovery_points_lost,
            is_apart=True,
        )

    def names_of(self, topic_id: uuid.UUID) -> TopicNames:
        """Return the producer names of a topic. Its open partitions share one object."""
        known = self._topic_names.get(topic_id)
        if known is None:
            known = self._topic_names[topic_id] = TopicNames(self.name_budget)
        return known

    def forget_file(self, file: DataFile) -> None:
        """Drop everything in memory about a segment file that is closed for good."""
        self.forget_indexes(file.path)
        if self.durability.kept_writes is not None:
            self.durability.kept_writes.forget(file)

    def forget_indexes(self, path: str) -> None:
        """Drop the cached indexes of the segment file `path`, which changes or is removed."""
        self.index_cache.drop(path)
        self.transaction_index_cache.drop(path)
        self.rebuilt_indexes.drop(path)
