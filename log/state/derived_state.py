"""The port by which a partition log drives its derived state: delayed records and producer names.

A state can be replayed from the batches, as long as the log has them. The log drives a state in one order:

    restore, replay*          at a start: restore the newest sound side file, then replay the batches after it
    fold_in                   fold in each batch, after the log wrote it
    capture → flush → saved   the ticket that makes the data durable writes the side file after the data
    discard_below             the log start offset moved
    close

Judging a batch is not part of the port: `state/record_rules.py` and `seq_validator` judge, and change nothing. A state
sees batches and offsets, never segments, tickets or system calls. A new kind of state is one class, and one row in
`RecordStates.all`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from log.durability.unflushed import Capture
    from log.format.record_batch import BatchHeader

NOT_KEPT = 2**63 - 1
"""The value of `kept_from` for a state that keeps no records."""


class DerivedState(Protocol):
    """State derived from a log's batches. `replay` and `fold_in` change the state in the same way."""

    def restore(self, log_start_offset: int, log_end_offset: int) -> int:
        """Load the newest sound side file. Return the offset from which batches must be replayed. Raises OSError."""

    def replay(self, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int) -> None:
        """Fold in a batch read from the log. Raises CorruptRecord."""

    @property
    def kept_from(self) -> int:
        """The offset from which neither retention nor backlog expiry may remove records; NOT_KEPT for most states."""

    def unsaved_below(self, offset: int) -> bool:
        """Return whether state from records before `offset` is in no durable side file."""

    def capture(self, covered_offset: int, log_end_offset: int) -> Capture | None:
        """Return the capture for the next ticket; None when nothing changed, or the state is not fully replayed.

        All records below `covered_offset` are decided, and durable when the ticket writes the capture.
        """

    def discard_below(self, log_start_offset: int) -> None:
        """Forget the state of records before the new log start offset."""

    def close(self) -> None:
        """Release the budgets that the state uses, and write no more side files."""
