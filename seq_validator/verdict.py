"""The verdicts of the sequence rule about one candidate batch."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar, Final, final


@final
class Accepted:
    """The batch continues its producer's sequence and may be appended. The one instance is `ACCEPTED`."""

    __slots__ = ()
    _instance: ClassVar[Accepted | None] = None

    def __new__(cls) -> Accepted:
        """Return the one instance, so that `verdict is ACCEPTED` is a complete test."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        """Return the name of the verdict."""
        return "ACCEPTED"


ACCEPTED: Final = Accepted()


@final
@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch was appended before. The retry gets the answer of the original.

    `base_offset`, `last_offset` (inclusive) and `timestamp` are the original's. `timestamp` is the largest
    timestamp of its records in milliseconds, or the append time when the topic keeps LogAppendTime.
    """

    base_offset: int
    last_offset: int
    timestamp: int


class RejectionReason(enum.Enum):
    """The reason why a batch may not be appended."""

    OUT_OF_ORDER_SEQUENCE = "out of order sequence"
    EARLIER_BATCHES_UNKNOWN = "earlier batches unknown"
    INVALID_PRODUCER_EPOCH = "invalid producer epoch"
    PRODUCER_LIMIT_REACHED = "producer limit reached"
    INVALID_TXN_STATE = "invalid transaction state"
    TRANSACTION_COORDINATOR_FENCED = "transaction coordinator fenced"


@final
@dataclass(frozen=True, slots=True)
class Rejected:
    """The batch must not be appended. `message` is a sentence for the client and the log."""

    reason: RejectionReason
    message: str


Verdict = Accepted | Duplicate | Rejected
