"""The candidate state of producer names while one batch is judged, and the verdicts that refuse a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seq_validator.names.entry import NO_OFFSET, NO_SEQUENCE_ID
from seq_validator.names.verdict import NameAdvance, NameRejectionReason, NamesRejected

if TYPE_CHECKING:
    from seq_validator.names.entry import NameEntry


class JudgedName:
    """The candidate state of one name while `judge` walks the records of one batch."""

    __slots__ = (
        "_duplicates",
        "_highest_duplicate",
        "entry",
        "epoch",
        "highest",
        "is_held_by_another",
        "name",
        "position",
        "stored_epoch",
    )

    def __init__(self, name: bytes, entry: NameEntry | None, transaction_of: int) -> None:
        self.name = name
        self.entry = entry
        self.position = -1
        self._duplicates = 0
        self._highest_duplicate = NO_SEQUENCE_ID
        self.is_held_by_another = False
        self.highest, self.epoch, self.stored_epoch = NO_SEQUENCE_ID, -1, -1
        if entry is not None:
            self.highest, self.epoch = entry.sequence_id, entry.epoch
            held = entry.open_sequences
            if held:
                self.is_held_by_another = len(held) > 1 or transaction_of not in held
                self.highest = max(self.highest, held.get(transaction_of, NO_SEQUENCE_ID))

    def note_duplicate(self, sequence_id: int) -> None:
        """Count a duplicate of a record of this batch or transaction, or of an earlier record."""
        self._duplicates += 1
        if self.entry is not None and self._highest_duplicate < sequence_id <= self.entry.sequence_id:
            self._highest_duplicate = sequence_id

    def offset_to_wait_for(self, high_watermark: int) -> int:
        """Return the offset that must be persisted to decide the duplicates of earlier records; NO_OFFSET for none."""
        if self.entry is None or self._highest_duplicate == NO_SEQUENCE_ID:
            return NO_OFFSET
        return self.entry.offset_to_wait_for(self._highest_duplicate, high_watermark)

    def advance(self) -> NameAdvance:
        """Return the advance of the name; without a sequence id when all its records in the batch are duplicates.

        The advance has the epoch of the highest new record. A higher epoch of a later duplicate is not in a stored record,
        and counts when the application sends a new record with that epoch.
        """
        if self.position < 0:
            return NameAdvance(self.name, NO_SEQUENCE_ID, -1, self.epoch, self._duplicates)
        return NameAdvance(self.name, self.highest, self.position, self.stored_epoch, self._duplicates)


def undecided(name: bytes) -> NamesRejected:
    """Return the verdict for a name that another producer has in an open transaction."""
    return NamesRejected(
        NameRejectionReason.UNDECIDED,
        f"Another producer has an open transaction with records of the producer name {printable(name)}. Retry when the "
        "transaction has ended.",
    )


def fenced(name: bytes, epoch: int, known_epoch: int) -> NamesRejected:
    """Return the verdict for a record whose name epoch is older than the newest known one."""
    given = "no epoch" if epoch < 0 else f"epoch {epoch}"
    return NamesRejected(
        NameRejectionReason.FENCED,
        f"A record of the producer name {printable(name)} has {given}; the newest known is {known_epoch}. A newer "
        "life of the application sends under this name.",
    )


def printable(name: bytes) -> str:
    """Return a name for a message; bytes that are not UTF-8 or can't be printed are escaped."""
    return repr(name.decode("utf-8", "backslashreplace"))
