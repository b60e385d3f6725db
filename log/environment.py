"""What all partition logs of one process share."""

from __future__ import annotations

from dataclasses import dataclass, field

from log.indexes import IndexCache, SegmentIndexes
from log.storage import Storage
from log.transaction_index import TransactionIndex
from seq_validator import ProducerLimit


@dataclass(slots=True)
class LogEnvironment:
    """The storage, the caches of closed segments' indexes, and the budget of remembered producers."""

    storage: Storage = field(default_factory=Storage)
    index_cache: IndexCache[SegmentIndexes] = field(default_factory=IndexCache)
    transaction_index_cache: IndexCache[TransactionIndex] = field(default_factory=IndexCache)
    producer_limit: ProducerLimit | None = None

    def forget_indexes(self, path: str) -> None:
        """Drop what is cached of the segment file `path`, which changes or goes."""
        self.index_cache.drop(path)
        self.transaction_index_cache.drop(path)
