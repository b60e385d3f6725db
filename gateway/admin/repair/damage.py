"""The output of `seqgate repair --json`, and the damage in `seqgate status --json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

import msgspec

from seqgate.gateway.admin.tables import Column, count

if TYPE_CHECKING:
    from seqgate.log import CutBytes, DamagedRange


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

    @classmethod
    def of(cls, topic: str, partition: int, found: DamagedRange) -> Self:
        """Return the row of a damaged range."""
        return cls(
            topic,
            partition,
            found.first_offset,
            found.end_offset,
            found.offsets,
            f"{topic}-{partition}/{found.segment_base_offset:020d}.log",
            found.position,
            found.size_bytes,
            found.reason,
            None if found.undecided_from < 0 else found.undecided_from,
        )

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

    @classmethod
    def of(cls, topic: str, partition: int, found: CutBytes) -> Self:
        """Return the row of a file of cut bytes."""
        file = f"{topic}-{partition}/{found.file_name}"
        first, last = found.first_offset, found.last_offset
        return cls(topic, partition, found.records, first, last, file, found.size_bytes)


class Repair(msgspec.Struct, frozen=True):
    """The damage of a data directory. `given_up` says that the damaged bytes were removed from the logs."""

    damaged: list[DamagedRow]
    offsets: int
    given_up: bool
