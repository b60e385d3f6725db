"""The output of `seqgate repair --json`, and the damage in `seqgate status --json`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from seqgate.gateway.admin.tables import Column, count


class DamagedRow(msgspec.Struct, frozen=True):
    """A damaged run of bytes of a partition. `end_offset` is exclusive; at most `offsets` records were in it.

    `file` is a path in the data directory. `undecided_from` is the first offset of the earliest transaction
    that may have ended in the damaged bytes, None without one.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    offsets: int
    file: Annotated[str, Column("file")]
    position: Annotated[int, Column("position", count)]
    size_bytes: Annotated[int, Column("bytes", count)]
    reason: Annotated[str, Column("reason")]
    undecided_from: int | None

    @property
    def place(self) -> Annotated[str, Column("partition")]:
        """The partition."""
        return f"{self.topic}-{self.partition}"

    @property
    def range(self) -> Annotated[str, Column("offsets")]:
        """The offsets, both inclusive."""
        return f"{self.first_offset} to {self.end_offset - 1}"


class CutRow(msgspec.Struct, frozen=True):
    """Bytes that a start cut off the end of a partition, because a batch was damaged that was not known to be
    durable, although sound batches followed. `file`, a path in the data directory, keeps the bytes until
    somebody deletes the file.
    """

    topic: str
    partition: int
    records: int
    first_offset: int
    last_offset: int
    file: str
    size_bytes: int


class Repair(msgspec.Struct, frozen=True):
    """The damage of a data directory. `given_up` says that the damaged bytes were removed from the logs."""

    damaged: list[DamagedRow]
    offsets: int
    given_up: bool
