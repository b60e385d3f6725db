"""The verdicts of the rule of names about the records of one candidate batch."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Sequence


class NameAdvance(NamedTuple):
    """The change that a batch makes to one name.

    `sequence_id` is the highest new sequence id of the name, `position` the offset_delta of that record, `epoch` the name
    epoch, and `duplicates` the number of the name's records that are duplicates.
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

    The log folds in `advances` after the write. The duplicates are decided when all offsets up to `wait_for_offset`
    (inclusive; -1: none) are persisted. Until then a failed flush can still lose the originals and take the partition offline.
    """

    advances: Sequence[NameAdvance]
    duplicates: Sequence[int]
    wait_for_offset: int


class NameRejectionReason(enum.Enum):
    """The reason why a batch may not be appended."""

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
