"""The leader epochs of a partition log and their file, in Kafka's checkpoint format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from log.files.checkpoints import encode_leader_epochs
from log.files.file_names import LEADER_EPOCHS, replace

if TYPE_CHECKING:
    from log.files.storage import Storage
    from log.state.leader_epochs import LeaderEpochs


class LeaderEpochFile:
    """The leader epochs with their start offsets, and the file. `latest` is the newest leader epoch, -1 without one."""

    __slots__ = ("_epochs", "_path", "_storage", "latest")

    def __init__(self, storage: Storage, directory: str, epochs: LeaderEpochs) -> None:
        """Begin with the epochs that were loaded."""
        self._storage = storage
        self._path = f"{directory}/{LEADER_EPOCHS}"
        self._epochs = epochs
        self.latest = epochs.latest

    def begin(self, leader_epoch: int, base_offset: int) -> str:
        """Begin a leader epoch at an offset and write the file. Return the path, not durable yet. Raises OSError."""
        self._epochs.assign(leader_epoch, base_offset)
        self.latest = self._epochs.latest
        return replace(self._storage, self._path, encode_leader_epochs(self._epochs.entries()))

    def truncate_start(self, log_start_offset: int) -> None:
        """Forget leader epochs that ended before the log start offset. The file changes when it is written next."""
        self._epochs.truncate_start(log_start_offset)

    def at(self, offset: int) -> int:
        """Return the leader epoch under which `offset` was or will be written; -1 when unknown."""
        return self._epochs.at(offset)

    def end_offset(self, leader_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (leader_epoch, end_offset) of the largest known epoch up to `leader_epoch`; (-1, -1) when unknown."""
        return self._epochs.end_offset(leader_epoch, log_end_offset)
