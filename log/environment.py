"""What all partition logs of one process share."""

from __future__ import annotations

from dataclasses import dataclass, field

from log.indexes import IndexCache
from log.storage import Storage
from seq_validator import ProducerLimit


@dataclass(slots=True)
class LogEnvironment:
    """The storage, the cache of closed segments' indexes, and the budget of remembered producers."""

    storage: Storage = field(default_factory=Storage)
    index_cache: IndexCache = field(default_factory=IndexCache)
    producer_limit: ProducerLimit | None = None
