"""Recovers a partition in a worker thread, apart from the log that serves it.

The thread loads the partition as a start after a crash does, persists everything, and notes the facts of a
clean stop. The event loop then loads the log by these facts: it reads no record that a snapshot covers, and
waits for no fsync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqgate.log.recovery.load import clean_stop, load_log, persist_directory
from seqgate.log.segments.reader import SegmentList
from seqgate.log.state.producer_snapshots import write_snapshot
from seqgate.log.state.transactions import Transactions

if TYPE_CHECKING:
    from seqgate.log.config import LogConfig
    from seqgate.log.environment import LogEnvironment
    from seqgate.log.place import LogPlace
    from seqgate.log.recovery.load import CleanStop, LoadedLog


class Recovery:
    """The recovery of one partition: made on the event loop, run once in any thread, taken back on the event
    loop.
    """

    __slots__ = (
        "_apart",
        "_config",
        "_metadata",
        "_now_ms",
        "_recovery_point",
        "bytes_cut",
        "generation",
        "place",
        "stop",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        place: LogPlace,
        config: LogConfig,
        recovery_point: int,
        now_ms: int,
        *,
        generation: int = 0,
        metadata: bytes | None = None,
    ) -> None:
        """Take the partition, and the content of its `partition.metadata` if that may not be durable.

        `generation` is that of the log which makes the recovery. A later one means that the log was closed
        meanwhile.
        """
        self._apart = environment.apart()
        self.place = place
        self._config = config
        self._recovery_point = recovery_point
        self._now_ms = now_ms
        self._metadata = metadata
        self.generation = generation
        self.bytes_cut = 0
        """The bytes that `run` cut off at the end of the log."""
        self.stop: CleanStop | None = None
        """The facts by which the log may be loaded; None before `run` has succeeded."""

    def run(self) -> None:
        """Recover the partition. Raises OSError, IncompatibleFormat, NeedsRecovery."""
        if self._metadata is not None:
            persist_directory(self._apart.durability, self.place, self._metadata)
        loaded = self._load(None)
        self.bytes_cut = loaded.bytes_cut
        try:
            stop = self._stop(loaded)
        finally:
            self._release(loaded)
        # A load rewrites transaction indexes that it can't trust, also after a clean stop. Do that here, so
        # that the log's own load writes nothing.
        loaded = self._load(stop)
        self._release(loaded)
        self.stop = stop

    def _load(self, stop: CleanStop | None) -> LoadedLog:
        return load_log(
            self._apart,
            self.place.directory,
            self._config,
            recovery_point=self._recovery_point,
            clean_stop=stop,
            now_ms=self._now_ms,
            may_check=stop is None,
        )

    def _stop(self, loaded: LoadedLog) -> CleanStop:
        """Persist the indexes and the producers of the loaded log, and return the facts of its clean stop."""
        environment, directory, end_offset = self._apart, self.place.directory, loaded.log_end_offset
        segments = SegmentList(environment, loaded.segments)
        paths = segments.write_indexes()
        paths.append(write_snapshot(environment, directory, loaded.producers, end_offset, end_offset))
        environment.durability.sync(paths=paths, directories=[directory])
        has_open = Transactions(loaded.producers).has_open
        return clean_stop(environment.storage, segments, end_offset, has_open_transactions=has_open)

    def _release(self, loaded: LoadedLog) -> None:
        SegmentList(self._apart, loaded.segments).retire()
        loaded.producers.clear()
