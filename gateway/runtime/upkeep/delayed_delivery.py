"""Keeps the memory of delayed records up to date: releases records that are due, and writes snapshots of the others.

No request waits for this job, because a share group's fetch releases due records itself and wakes up when the next one
is due.
"""

from __future__ import annotations

from typing import Final

from gateway.runtime.loop.clock import Clock
from gateway.runtime.partitions.registry import Partitions
from log import LogDirectory, PartitionLog, settings

RUN_EVERY_S: Final = 1.0
SNAPSHOTS_AT_ONCE: Final = 10
"""Snapshots written in one run, so that many such logs hold up no request; the rest follow in the next runs."""


class DelayedDelivery:
    """Maintains the logs whose topics delay records."""

    def __init__(
        self, clock: Clock, log_directory: LogDirectory, partitions: Partitions, snapshot_every_ms: int
    ) -> None:
        self._clock = clock
        self._partitions = partitions
        self._lists = log_directory.lists
        self._snapshot_every_ms = snapshot_every_ms
        self._snapshot_at_ms = clock.now_ms()
        self._to_snapshot: list[PartitionLog] = []

    def run(self) -> None:
        """Release the records that are due, and write some of the snapshots; the snapshot of every log is
        written once per interval.
        """
        now_ms = self._clock.now_ms()
        for log in self._lists.delaying:
            log.record_states.release_due(now_ms)
        if not self._to_snapshot and now_ms - self._snapshot_at_ms >= self._snapshot_every_ms:
            self._snapshot_at_ms = now_ms
            self._to_snapshot = list(self._lists.delaying)
        for log in self._to_snapshot[:SNAPSHOTS_AT_ONCE]:
            partition = self._partitions.serving(log)
            if partition is not None and settings.capture_delays(log):
                partition.start_flush()
        del self._to_snapshot[:SNAPSHOTS_AT_ONCE]
