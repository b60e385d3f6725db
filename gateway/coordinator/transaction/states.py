"""The states of a transactional id, and the outcome of an EndTxn in each, as tables.

    state            may follow                                      meaning
    Empty            Empty, CompleteCommit, CompleteAbort            a producer has begun, but no transaction
    Ongoing          Empty, Ongoing, CompleteCommit, CompleteAbort   partitions take part and are written
    PrepareCommit    Ongoing                                         decided, markers are being written
    PrepareAbort     Empty, Ongoing, CompleteCommit, CompleteAbort   decided, markers are being written
    CompleteCommit   PrepareCommit                                   every partition has its marker
    CompleteAbort    PrepareAbort                                    every partition has its marker

PrepareEpochFence and Dead have a number in Kafka's format and a name in ListTransactions, but Seqgate never stores
them: it fences a producer, and deletes an id, in one step. Source: Kafka's `TransactionState`.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The states; the numbers are those in Kafka's records."""

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
        """The name that DescribeTransactions and ListTransactions report."""
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
"""The states without a transaction: the next one may begin, and the id may expire."""
DECIDED: Final = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
"""The states in which the outcome is decided and can't change any more."""

MAY_FOLLOW: Final = {
    EMPTY: IDLE,
    ONGOING: IDLE | {ONGOING},
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: IDLE | {ONGOING},
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
}
COMPLETED: Final = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
"""The state that follows when all markers are written."""


class End(Enum):
    """The outcome of an EndTxn."""

    PREPARE = "the end is decided now"
    DONE = "the transaction has already ended in this way"
    BUSY = "the transaction is ending in this way; try again"
    INVALID = "there is no transaction that can end in this way"


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
"""The outcomes for a client whose epoch stays: a retry can't be recognized. Missing entries are INVALID."""
END_V2: Final = {**_ONGOING_ENDS, **{(state, ABORT): End.PREPARE for state in IDLE}}
"""The outcomes for a client whose epoch rises with every end (KIP-890): an abort may end an empty transaction."""
END_V2_AGAIN: Final = _SAME_END
"""The outcomes for a client whose epoch rises with every end, when its epoch shows that the request is a retry."""
