from __future__ import annotations

import pytest

from seqgate.seq_validator import ACCEPTED, Duplicate, ProducerTable, Rejected, RejectionReason
from seqgate.seq_validator.rule import judge_known, judge_marker
from tests.seq_validator.candidate import Candidate


def test_the_rule_needs_no_table() -> None:
    table = ProducerTable()
    table.update(Candidate(0, 10), 100, 1)
    entry = table.longest_idle()
    assert judge_known(entry, Candidate(10)) is ACCEPTED
    assert judge_known(entry, Candidate(0, 10)) == Duplicate(100, 109, 1_000)
    assert entry.next_sequence == 10


STALE = RejectionReason.INVALID_PRODUCER_EPOCH
FENCED = RejectionReason.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize(
    ("is_open", "version", "producer_epoch", "coordinator_epoch", "reason"),
    [
        (True, 0, 3, 5, None),
        (True, 1, 3, 5, None),
        (True, 2, 3, 5, STALE),
        (True, 3, 3, 5, STALE),
        (True, 2, 4, 5, None),
        (False, 2, 3, 5, None),
        (False, 2, 2, 5, STALE),
        (True, 0, 2, 5, STALE),
        (False, 0, 2, 5, STALE),
        (False, 0, 3, 4, FENCED),
        (True, 2, 4, 4, FENCED),
    ],
)
def test_the_epochs_of_a_marker(
    is_open: bool, version: int, producer_epoch: int, coordinator_epoch: int, reason: RejectionReason | None
) -> None:
    """A marker of version 2 that ends an open transaction has a newer epoch; a repeated one ends none."""
    table = ProducerTable()
    table.end_transaction(7, 3, coordinator_epoch=5, offset=0, timestamp=1, now_ms=1)
    if is_open:
        table.update(Candidate(producer_epoch=3, is_transactional=True), 1, 2)
        table.continue_transaction(7, 1)
    entry = table.get(7)
    assert entry is not None
    verdict = judge_marker(entry, producer_epoch, coordinator_epoch, version)
    assert (verdict.reason if isinstance(verdict, Rejected) else None) is reason
