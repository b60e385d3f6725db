from __future__ import annotations

from seqgate.seq_validator import ACCEPTED, Duplicate, ProducerTable
from seqgate.seq_validator.rule import judge_known
from tests.seq_validator.candidate import Candidate


def test_the_rule_needs_no_table() -> None:
    table = ProducerTable()
    table.update(Candidate(0, 10), 100, 1)
    entry = table.longest_idle()
    assert judge_known(entry, Candidate(10)) is ACCEPTED
    assert judge_known(entry, Candidate(0, 10)) == Duplicate(100, 109, 1_000)
    assert entry.next_sequence == 10
