"""Events of producers from samples and verdicts."""

from __future__ import annotations

from typing import Any

from seqgate.gateway.admin.producers import ProducerRow
from seqgate.gateway.admin.verdicts import VerdictRow
from seqgate.gateway.console.metrics.producer_events import (
    ACCEPTED,
    DUPLICATE,
    MOST_EVENTS,
    MOST_KNOWN,
    REFUSED,
    ProducerEvents,
    judged,
    key_of,
)
from seqgate.gateway.console.pages.producers import reason_of

KEY = key_of("orders", 3, 7)


def row(sequence: int, offset: int | None = None, epoch: int = 0, producer_id: int = 7) -> ProducerRow:
    return ProducerRow("orders", 3, producer_id, epoch, sequence, offset, 0, -1, -1, 5, 1)


def events(*samples: list[ProducerRow] | None) -> list[tuple[int, int, int | None, int]]:
    """Return first, last, records and offset of each event; None stands for a sample that failed."""
    seen = ProducerEvents()
    for time_ms, rows in enumerate(samples, 1):
        if rows is not None:
            seen.see(time_ms, rows, is_all=True)
    _, found = seen.after(0, [KEY])
    assert all(event.kind == ACCEPTED for event in found[KEY])
    return [(event.first, event.last, event.records, event.offset) for event in found[KEY]]


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


def test_a_row_that_was_read_earlier_is_no_event() -> None:
    assert events([row(9)], [row(12)], [row(9)], [row(12)]) == [(10, 12, 3, -1)]
    assert events([row(3, epoch=1)], [row(9)], [row(3, epoch=1)]) == []


def test_a_producer_of_a_page_is_new_only_where_all_are_sampled() -> None:
    seen = ProducerEvents()
    seen.see(10, [row(4)])
    seen.see(20, [row(6)], is_all=True)
    seen.see(30, [row(2, producer_id=8)])
    other = key_of("orders", 3, 8)
    newest, found = seen.after(0, [KEY, other])
    assert [(event.first, event.last) for event in found[KEY] + found[other]] == [(5, 6), (-1, 2)]
    assert (seen.since_ms(KEY), seen.since_ms(other), seen.since_ms("gone")) == (10, 20, 20)
    assert seen.after(newest, [KEY, other]) == (newest, {KEY: [], other: []})
    seen.see(40, [row(7)], is_all=False)
    seen.see(50, [row(1, producer_id=9)])
    assert seen.after(newest, [key_of("orders", 3, 9)])[1] == {key_of("orders", 3, 9): []}


def test_events_and_producers_are_bounded() -> None:
    seen = ProducerEvents()
    for sequence in range(MOST_EVENTS + 2):
        seen.see(sequence, [row(sequence)])
    assert len(seen.after(0, [KEY])[1][KEY]) == MOST_EVENTS
    seen.see(1, [row(1, producer_id=number) for number in range(100, 100 + MOST_KNOWN)])
    assert seen.since_ms(KEY) is None


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
    for outcome in ("duplicate", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "SOMETHING_NEW"):
        reason = reason_of(verdict(outcome=outcome))
        assert reason.short
        assert reason.meaning.endswith(".")
        assert reason.advice.endswith(".")
