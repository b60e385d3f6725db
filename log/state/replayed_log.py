"""The port through which the states of a partition log read the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from log.format.record_batch import BatchHeader
    from log.state.transactions import Transactions


class ReplayedLog(Protocol):
    """The parts of a partition log that the states use."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    transactions: Transactions

    def batches(
        self, offset: int, end_offset: int, chunk_bytes: int, *, skips_damage: bool
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield each whole batch between two offsets with its bytes. Raises CorruptRecord, OSError."""
