"""The leader epochs of a partition with their start offsets. Source: Kafka's `LeaderEpochFileCache`."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

UNDEFINED: Final = -1


class LeaderEpochs:
    """Ascending (leader_epoch, start_offset) pairs of one partition."""

    __slots__ = ("_entries", "latest")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._entries: list[tuple[int, int]] = []
        self.latest = UNDEFINED
        """The newest leader epoch, -1 without one."""
        for leader_epoch, start_offset in entries or ():
            self.assign(leader_epoch, start_offset)

    def entries(self) -> list[tuple[int, int]]:
        return list(self._entries)

    def assign(self, leader_epoch: int, start_offset: int) -> bool:
        """Begin `leader_epoch` at `start_offset`. Return whether the epoch is new."""
        if leader_epoch <= self.latest:
            return False
        self.truncate(start_offset)
        self._entries.append((leader_epoch, start_offset))
        self.latest = leader_epoch
        return True

    def truncate(self, log_end_offset: int) -> None:
        """Forget leader epochs that began at or after the log end offset."""
        while self._entries and self._entries[-1][1] >= log_end_offset:
            self._entries.pop()
        self.latest = self._entries[-1][0] if self._entries else UNDEFINED

    def truncate_start(self, log_start_offset: int) -> None:
        """Forget leader epochs that ended before the log start, where the epoch of that offset begins."""
        index = bisect_right(self._entries, log_start_offset, key=lambda entry: entry[1])
        if index:
            self._entries[:index] = [(self._entries[index - 1][0], log_start_offset)]

    def at(self, offset: int) -> int:
        """Return the leader epoch of the batch that holds `offset`, -1 when unknown."""
        index = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[index - 1][0] if index else UNDEFINED

    def end_offset(self, leader_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end_offset) of the largest known epoch up to `leader_epoch`, or (-1, -1)."""
        if leader_epoch == UNDEFINED or leader_epoch > self.latest:
            return UNDEFINED, UNDEFINED
        if leader_epoch == self.latest:
            return leader_epoch, log_end_offset
        index = bisect_right(self._entries, leader_epoch, key=lambda entry: entry[0])
        end_offset = self._entries[index][1]
        return (self._entries[index - 1][0] if index else leader_epoch), end_offset
