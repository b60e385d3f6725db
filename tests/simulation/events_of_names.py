"""Events of named applications: producers whose lines carry a producer name and a sequence id.

The value of a line names its sender, `@name/life/transaction/sequence`: a life is one producer of the
application, and `transaction` is its running number, or 0 outside of transactions. Several lives may send the
same line, and one life may send it in several transactions; only one of these copies may be stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.simulation.history import Event, TopicPartition

NO_EPOCH = -1


class LineName(NamedTuple):
    name: str
    life: int
    transaction: int
    sequence: int

    def encode(self) -> bytes:
        return ("@" + "/".join(map(str, self))).encode()

    @property
    def producer(self) -> str:
        """Return the client that wrote the line, as events of transactions name it."""
        return f"{self.name}.{self.life}"

    @classmethod
    def decode(cls, value: bytes) -> LineName:
        """Decode a value; zeros may follow. Raises ValueError for a value that `encode` did not write."""
        text = value.rstrip(b"\0").decode()
        if not text.startswith("@"):
            raise ValueError(f"{value!r} is not the value of a line")
        name, *numbers = text[1:].split("/")
        life, transaction, sequence = map(int, numbers)
        return cls(name, life, transaction, sequence)


@dataclass(frozen=True)
class LineSent(Event):
    """A life sent a line for the first time in this transaction; `epoch` is the name epoch, -1 without that
    header.
    """

    line: LineName
    partition: TopicPartition
    epoch: int = NO_EPOCH
    key: bytes = b""


@dataclass(frozen=True)
class LineAcknowledged(Event):
    """A line was acknowledged without an error: it was stored now or earlier.

    `offset` is the offset of its batch plus its position in the batch. It is −1 if the answer has no offset,
    or if the batch was sent with several sequences.
    """

    line: LineName
    partition: TopicPartition
    offset: int = -1


@dataclass(frozen=True)
class NameFenced(Event):
    """A batch of this life was refused because a newer name epoch is known."""

    name: str
    life: int
    epoch: int
    partition: TopicPartition


@dataclass(frozen=True)
class NameTold(Event):
    """The gateway reported the last persisted sequence id of a name; −1 if the gateway knows none."""

    name: str
    sequences: tuple[tuple[TopicPartition, int], ...]
    asked_at_ms: int = 0


@dataclass(frozen=True)
class DeduplicationSwitched(Event):
    """The administrator turned deduplication off (at the request) or on again (at the answer)."""

    topic: str
    on: bool
