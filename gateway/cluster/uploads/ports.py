"""What uploads need of the gateway: its partitions, and when to begin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from gateway.cluster.parts.manifest import PartitionKey
from log import PartitionLog


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of the cluster, as uploads see them."""

    all: Callable[[], Iterable[PartitionKey]]
    """Returns all partitions that this gateway leads."""
    open_log: Callable[[PartitionKey], Awaitable[PartitionLog | None]]
    """Returns the log of a partition, opened if necessary; None without records and files. Raises OSError, LogError, IncompatibleFormat."""
    flushed: Callable[[PartitionLog], Awaitable[None]]
    """Makes everything now in a log durable. Raises StorageFailed."""
    exists: Callable[[PartitionKey], bool]
    """Returns whether the metadata has a partition, as far as the metadata is known here; another gateway may lead it."""
    catch_up: Callable[[], Awaitable[None]]
    """Reads what the metadata log has and the metadata lacks. Raises StorageFailed."""


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """When a round begins."""

    interval_s: float
    """The seconds after the one before."""
    wal_max_bytes: int
    """The bytes put into the session's write-ahead log since the last round, at which the next one begins at once."""
    orphan_age_s: float
    """The age from which an object that no manifest names is an orphan, and the seconds between two searches."""
