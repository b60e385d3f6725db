"""A log directory with one partition on a faulty disk, on which scenarios build."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from seqgate.log import (
    FlushTicket,
    LogConfig,
    LogDirectory,
    PartitionLog,
    RemovalTicket,
    Storage,
    StorageFailed,
    retention,
)
from tests.faults.simulated_disk import SimulatedDisk
from tests.log.support import persist

ROOT = Path("/data")


def new_disk(seed: int = 0) -> SimulatedDisk:
    """Return an empty disk with a directory for the data."""
    disk = SimulatedDisk(random.Random(seed))
    disk.provide_directory(str(ROOT))
    return disk


def failing_disk(fail_at: int, kind: str) -> SimulatedDisk:
    """Return a disk on which one operation fails."""
    disk = new_disk(fail_at)
    disk.plan.fail_at, disk.plan.kind = fail_at, kind
    return disk


def now_ms() -> int:
    return 1_000_000


class DirectoryLife:
    """Opens the directory, and makes the partition when there is none."""

    topic: ClassVar[str]
    topic_id: ClassVar[uuid.UUID]
    config: ClassVar[LogConfig]

    def __init__(self, disk: SimulatedDisk, max_open_files: int = 512) -> None:
        self.disk = disk
        self.storage = Storage(max_open_files, disk.process())
        self.root = ROOT
        self.directory: LogDirectory | None = None

    @property
    def log(self) -> PartitionLog:
        assert self.directory is not None
        log = self.directory.get(self.topic, 0)
        assert log is not None
        return log

    def now_ms(self) -> int:
        """Return the time (ms) of the simulated clock."""
        return now_ms()

    def open(self) -> None:
        self.directory = LogDirectory.open(
            self.root, self.storage, node_id=1, now_ms=self.now_ms, config=self.config
        )
        if self.directory.get(self.topic, 0) is None:
            if self.directory.has_taken_names:
                self.directory.checkpoint()  # Flush what the load has captured, as a gateway's start does.
            self.directory.create(self.topic, self.topic_id, 0, self.config)

    def run_flush(self, ticket: FlushTicket, between: Callable[[], object] = lambda: None) -> None:
        """Flush, and let readers see what is durable; call `between` during the flush."""
        log = self.log
        with _telling(lambda error: log.fail_flush(ticket, error)):
            between()
            persist(ticket)
        log.complete_flush(ticket)
        log.advance_high_watermark(log.recovery_point)

    def run_retention(self, ticket: RemovalTicket) -> None:
        """Flush everything that the removal depends on, and then remove segments."""
        log = self.log
        with _telling(lambda error: retention.fail_removal(log, ticket, error)):
            persist(ticket)
        retention.complete_removal(log, ticket, self.now_ms())


@contextmanager
def _telling(fail: Callable[[OSError], object]) -> Iterator[None]:
    """Report a failed flush to the log. A PowerCut is raised unchanged."""
    try:
        yield
    except OSError as error:
        fail(error)
        raise StorageFailed("the flush failed") from error
    except BaseException:
        fail(OSError("power"))
        raise
