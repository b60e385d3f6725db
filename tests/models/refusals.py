"""The rule for the batches of one producer behind a refused one, in one partition and over one connection."""

from __future__ import annotations

from dataclasses import dataclass

SEQUENCES = 2**31
IN_FLIGHT = 5


@dataclass
class Awaited:
    """The refused batch that must come before any later one. `first` is its epoch and first sequence."""

    first: tuple[int, int] | None = None
    passed: int = 0

    def refused(self, producer_epoch: int, base_sequence: int) -> None:
        """Await the batch, unless an earlier one of the same epoch, or one of a newer epoch, is awaited."""
        is_older = self.first is not None and producer_epoch < self.first[0]
        if not is_older and not self.holds_back(producer_epoch, base_sequence):
            self.first, self.passed = (producer_epoch, base_sequence), 0

    def holds_back(self, producer_epoch: int, base_sequence: int) -> bool:
        """Return whether the batch is a later one, with which an unknown producer must not begin."""
        if self.first is None or producer_epoch != self.first[0]:
            return False
        return _is_after(base_sequence, self.first[1])

    def held_back(self) -> None:
        """Count a later batch that was refused; after as many as can be in flight, await nothing."""
        self.passed += 1
        if self.passed == IN_FLIGHT - 1:
            self.first = None

    def taken(self) -> None:
        """Await nothing more: the client gave the batch up, or went on without it."""
        self.first = None

    def stored(self, producer_epoch: int, base_sequence: int) -> None:
        """Await nothing more, unless the stored batch comes before the refused one."""
        is_same_epoch = self.first is not None and producer_epoch == self.first[0]
        if self.first is None or not is_same_epoch or not _is_after(self.first[1], base_sequence):
            self.taken()


def _is_after(sequence: int, other: int) -> bool:
    return 0 < (sequence - other) % SEQUENCES < SEQUENCES // 2
