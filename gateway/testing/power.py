"""Loses what a log had not flushed, as a machine does that loses its power."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Self

from log import PartitionLog
from log.format.record_batch import whole_batches

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
