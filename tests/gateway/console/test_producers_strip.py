"""Events of producers from samples and verdicts."""

from __future__ import annotations

from typing import Any

from seqgate.gateway.admin.producers.command import ProducerRow
from seqgate.gateway.admin.verdicts.command import VerdictRow
from seqgate.gateway.console.pages.producers import (
    ACCEPTED,
    DUPLICATE,
    REFUSED,
    accepted,
    judged,
    key_of,
    reason_of,
    sample_of,
)

KEY = key_of("orders", 3, 7)


def row(sequence: int, offset: int | None, epoch: int = 0) -> ProducerRow:
    return ProducerRow("orders", 3, 7, epoch, sequence, offset, 0, -1, -1, 5, 1)


def events(*samples: list[ProducerRow] | None) -> list[tuple[int, int, int | None, int]]:
    """Return first, last, records and offset of each event; None stands for a sample that failed."""
    taken = [{} if rows is None else sample_of(rows) for rows in samples]
    names = {name for sample in taken for name in sample} | set(sample_of([row(0, 0)]))
    series = {name: [sample.get(name) for sample in taken] for name in names}
    found = accepted(range(1, len(taken) + 1), series, KEY)
    assert all(event.kind == ACCEPTED for event in found)
    return [(event.first, event.last, event.records, event.offset) for event in found]


def test_growth_is_what_was_accepted() -> None:
    assert events([row(9, 9)], [row(9, 9)], [row(12, 20)]) == [(10, 12, 3, 20)]


def test_the_first_sample_is_no_event() -> None:
    assert events([row(9, 9)]) == []


def test_sequences_begin_again_at_zero() -> None:
    assert events([row(2**31 - 2, 5)], [row(1, 8)]) == [(2**31 - 1, 1, 3, 8)]


def test_a_new_epoch_begins_with_sequence_zero() -> None:
    assert events([row(9, 9)], [row(2, 12, epoch=1)]) == [(0, 2, 3, 12)]


def test_a_producer_that_appears_has_no_known_first_sequence() -> None:
    assert events([], [row(4, 4)]) == [(-1, 4, None, 4)]


def test_a_sample_that_failed_hides_nothing() -> None:
    assert events([row(1, 1)], None, [row(3, 3)]) == [(2, 3, 2, 3)]
    assert events(None, [row(3, 3)]) == []


def test_a_marker_with_a_new_epoch_is_no_record() -> None:
    assert events([row(1, 1)], [row(-1, None, epoch=1)]) == []


def verdict(**given: Any) -> VerdictRow:
    usual: dict[str, Any] = {
        "number": 1,
        "time_ms": 5,
        "topic": "orders",
        "partition": 3,
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": 4,
        "last_sequence": 6,
        "base_offset": -1,
        "outcome": "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "message": "m",
    }
    return VerdictRow(**{**usual, **given})


def test_verdicts_are_events() -> None:
    refused = judged(verdict())
    assert (refused.kind, refused.records, refused.outcome) == (REFUSED, 3, "OUT_OF_ORDER_SEQUENCE_NUMBER")
    duplicate = judged(verdict(outcome="duplicate", base_offset=40))
    assert (duplicate.kind, duplicate.offset, duplicate.outcome) == (DUPLICATE, 40, "")
    assert judged(verdict(base_sequence=-1, last_sequence=-1)).records is None


def test_every_outcome_has_words() -> None:
    for outcome in ("duplicate", "UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_EPOCH", "SOMETHING_NEW"):
        reason = reason_of(verdict(outcome=outcome))
        assert reason.short
        assert reason.meaning.endswith(".")
        assert reason.advice.endswith(".")
