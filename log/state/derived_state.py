"""The port by which a partition log drives what is remembered of its batches: producers, delayed records, producer names.

All of it could be read from the batches again, as long as they are there. The log drives a state in one order:

    restore, replay*          a start: the newest sound side file, then the batches that it does not cover
    fold_in                   each batch, after it was written
    capture → flush → saved   the side file is written behind the data, by the ticket that makes the data durable
    discard_below             the log start moved
    close

Judging a batch is not part of the port: `state/record_rules.py` and `seq_validator` judge, and change nothing. A state
sees batches and offsets, never segments, tickets or the disk's calls. A new kind of state is one class, and one row where
`PartitionLog` makes its states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from log.durability.capture import Capture
    from log.format.record_batch import BatchHeader

NOT_KEPT = 2**63 - 1
"""The offset from which a state keeps records that keeps none."""


class DerivedState(Protocol):
    """What a log remembers besides its batches. `replay` and `fold_in` are one function of a batch."""

    def restore(self, log_start_offset: int, log_end_offset: int) -> int:
        """Take the newest sound side file; return the offset from which batches must be replayed. Raises OSError."""

    def replay(self, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int) -> None:
        """Fold in a batch that lies in the log. Raises CorruptRecord."""

    @property
    def kept_from(self) -> int:
        """The offset from which neither retention nor TTL may take records; NOT_KEPT for most states."""

    def unsaved_below(self, offset: int) -> bool:
        """Return whether records before `offset` tell something that no durable side file tells."""

    def capture(self, covered_offset: int, log_end_offset: int) -> Capture | None:
        """Return what the next ticket must write; None when nothing changed, or the state is not complete.

        All below `covered_offset` is decided, and durable when the ticket writes the capture.
        """

    def discard_below(self, log_start_offset: int) -> None:
        """Forget what belongs to records before the new log start."""

    def close(self) -> None:
        """Give all room back, and write no more."""
