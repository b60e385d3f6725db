"""What the rule of names answers about the records of one candidate batch."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Sequence


class NameAdvance(NamedTuple):
    """How far a batch takes a name: its highest new sequence id, the position of that record, the epoch, and how many
    of the name's records are duplicates.
    """

    name: bytes
    sequence_id: int
    position: int
    epoch: int
    duplicates: int = 0


@final
@dataclass(frozen=True, slots=True)
class NamesAccepted:
    """The batch may be appended without the records at the positions `duplicates`.

    `advances` is to be folded in once it is written. `duplicates` are decided when all up to `wait_for_offset`
    (inclusive, -1: nothing) is persisted: their originals are written by then, or the partition is offline.
    """

    advances: Sequence[NameAdvance]
    duplicates: Sequence[int]
    wait_for_offset: int


class NameRejectionReason(enum.Enum):
    """Why a batch may not be appended."""

    FENCED = "fenced"
    UNDECIDED = "undecided"
    LIMIT_REACHED = "limit reached"
    FORGETTING = "forgetting"
    PARTIAL = "partial"


@final
@dataclass(frozen=True, slots=True)
class NamesRejected:
    """The batch must not be appended. `message` is a sentence for the client and the log."""

    reason: NameRejectionReason
    message: str


NamesVerdict = NamesAccepted | NamesRejected
