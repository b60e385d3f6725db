"""What named applications did and were told: producers whose lines carry a producer name and a sequence id of their own.

A line's value tells who wrote it, `@name/life/transaction/sequence`: a life is one producer of the application, `transaction`
its running number or 0 outside of any. The same line may come from several lives, and in one life from several transactions;
of all these only one may be stored.
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
        """The client that wrote it, as events of transactions have it."""
        return f"{self.name}.{self.life}"

    @classmethod
    def decode(cls, value: bytes) -> LineName:
        """Raises ValueError for anything that `encode` did not write; zeros may follow."""
        text = value.rstrip(b"\0").decode()
        if not text.startswith("@"):
            raise ValueError(f"{value!r} is no line")
        name, *numbers = text[1:].split("/")
        life, transaction, sequence = map(int, numbers)
        return cls(name, life, transaction, sequence)


@dataclass(frozen=True)
class LineSent(Event):
    """A line left this life for the first time, in this transaction; `epoch`: of the name, -1 without that header."""

    line: LineName
    partition: TopicPartition
    epoch: int = NO_EPOCH
    key: bytes = b""


@dataclass(frozen=True)
class LineAcknowledged(Event):
    """With acks=all or acks=1, and without an error: it is stored, or was before. `offset` is that of its batch, plus its place in it; -1
    where the answer tells none, and where the batch was sent with more than one sequence."""

    line: LineName
    partition: TopicPartition
    offset: int = -1


@dataclass(frozen=True)
class NameFenced(Event):
    """A batch of this life was refused because a newer epoch of its name is known."""

    name: str
    life: int
    epoch: int
    partition: TopicPartition


@dataclass(frozen=True)
class NameTold(Event):
    """What the gateway said about how far a name has come: its last persisted sequence id, -1 where it knows none."""

    name: str
    sequences: tuple[tuple[TopicPartition, int], ...]
    asked_at_ms: int = 0


@dataclass(frozen=True)
class DeduplicationSwitched(Event):
    """Off: from when it was asked for. On again: when that was answered."""

    topic: str
    on: bool
