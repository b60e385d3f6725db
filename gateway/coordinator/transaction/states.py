"""The states of a transactional id, and what an EndTxn means in each, as tables.

    state            may follow                                      meaning
    Empty            Empty, CompleteCommit, CompleteAbort            a producer has begun, no transaction has
    Ongoing          Empty, Ongoing, CompleteCommit, CompleteAbort   partitions are written to
    PrepareCommit    Ongoing                                         decided, markers are being written
    PrepareAbort     Empty, Ongoing, CompleteCommit, CompleteAbort   decided, markers are being written
    CompleteCommit   PrepareCommit                                   every partition has its marker
    CompleteAbort    PrepareAbort                                    every partition has its marker

PrepareEpochFence and Dead have a number in Kafka's format and a name in ListTransactions, but are never stored: here a
producer is fenced, and an id forgotten, in one step. Source: Kafka's `TransactionState`.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The number that stands for the state in a record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The name that DescribeTransactions and ListTransactions tell."""
        return _NAMES[self]


_NAMES: Final = {state: state.name.title().replace("_", "") for state in TransactionState}
BY_NAME: Final = {name: state for state, name in _NAMES.items()}

EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT

IDLE: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""No transaction is under way: the next one may begin, and the id may be forgotten."""
DECIDED: Final = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
"""How it ends is settled; it can't be stopped any more."""

MAY_FOLLOW: Final = {
    EMPTY: IDLE,
    ONGOING: IDLE | {ONGOING},
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: IDLE | {ONGOING},
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
}
COMPLETED: Final = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
"""What follows when all markers are written."""


class End(Enum):
    """What an EndTxn leads to."""

    PREPARE = "the end is decided now"
    DONE = "it has ended so already"
    BUSY = "it is ending so; ask again"
    INVALID = "there is nothing to end so"


COMMIT: Final = True
ABORT: Final = False
_SAME_END: Final = {
    (PREPARE_COMMIT, COMMIT): End.BUSY,
    (PREPARE_ABORT, ABORT): End.BUSY,
    (COMPLETE_COMMIT, COMMIT): End.DONE,
    (COMPLETE_ABORT, ABORT): End.DONE,
}
_ONGOING_ENDS: Final = {(ONGOING, COMMIT): End.PREPARE, (ONGOING, ABORT): End.PREPARE}

END_V1: Final = {**_ONGOING_ENDS, **_SAME_END}
"""Of a client whose epoch stays: whether it asks again can't be told. All that is not here is INVALID."""
END_V2: Final = {**_ONGOING_ENDS, **{(state, ABORT): End.PREPARE for state in IDLE}}
"""Of a client whose epoch rises with every end (KIP-890): an abort may end a transaction that wrote nothing."""
END_V2_AGAIN: Final = _SAME_END
"""The same, when the epoch shows that it asks again."""
