"""Keeps what is known of records that are due later up to date: what is due lets go of its log, the rest is noted beside it.

Nobody waits for this: a share group's fetch asks the log itself, and wakes up when the next record is due.
"""

from __future__ import annotations

from typing import Final

from gateway.runtime.loop.clock import Clock
from log import LogDirectory
from log.delayed_log import DelayedLog

RUN_EVERY_S: Final = 1.0
SNAPSHOTS_AT_ONCE: Final = 10
"""Files written in one look, so that many such logs hold nobody up."""


class DelayedDelivery:
    """Looks after the logs whose topics delay records."""

    def __init__(self, clock: Clock, log_directory: LogDirectory, snapshot_every_ms: int) -> None:
        self._clock = clock
        self._environment = log_directory.environment
        self._snapshot_every_ms = snapshot_every_ms
        self._snapshot_at_ms = clock.now_ms()
        self._to_snapshot: list[DelayedLog] = []

    def run(self) -> None:
        """Let go of what is due; note some of the rest, all of it once in an interval."""
        now_ms = self._clock.now_ms()
        for log in self._environment.delaying:
            log.release_due(now_ms)
        if not self._to_snapshot and now_ms - self._snapshot_at_ms >= self._snapshot_every_ms:
            self._snapshot_at_ms = now_ms
            self._to_snapshot = list(self._environment.delaying)
        for log in self._to_snapshot[:SNAPSHOTS_AT_ONCE]:
            log.note_delays()
        del self._to_snapshot[:SNAPSHOTS_AT_ONCE]
