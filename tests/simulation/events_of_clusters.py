"""The events of a run with several gateways. Pure values, as those of `history.py`."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.history import Event, TopicPartition


@dataclass(frozen=True)
class NodeStarted(Event):
    node: str


@dataclass(frozen=True)
class NodeCrashed(Event):
    """kill -9 ("kill"), or a power cut or a lost disk ("power")."""

    node: str
    kind: str


@dataclass(frozen=True)
class LedBy(Event):
    """A node answered a request without an error, which named this leader epoch: it led the partition in this
    epoch.
    """

    node_id: int
    partition: TopicPartition
    leader_epoch: int
    asked_at_ms: int = 0


@dataclass(frozen=True)
class EpochsRead(Event):
    """The leader epochs of batches in an answer to a Fetch, in the order of their offsets.

    An entry has the first and the last offset of neighbouring batches of one epoch, and the epoch.
    """

    partition: TopicPartition
    epochs: tuple[tuple[int, int, int], ...]
