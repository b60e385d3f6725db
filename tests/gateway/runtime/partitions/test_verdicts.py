"""The newest batches that were not stored, and the report of clients that send batches again."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.runtime.partitions.verdicts import (
    COUNTED,
    DUPLICATE,
    REPORT_S,
    REPORTED,
    VERDICTS_KEPT,
    RetryReport,
    UnstoredBatch,
    Verdicts,
)
from seqgate.gateway.security.principals import ClientIdentity
from tests.support.batches import Batch, records

GAP = int(ErrorCode.out_of_order_sequence_number)
BATCH = memoryview(Batch(records(5)).of(7, 2, 30).encode())
CHECKOUT = ClientIdentity("checkout-service", "10.0.0.7", "User:ann", "librdkafka 2.11.0")


def refuse(verdicts: Verdicts, data: memoryview | None = BATCH, **more: str) -> UnstoredBatch:
    return verdicts.refusal("t", 3, data, 99, GAP, CHECKOUT, more.get("message", "a gap"))


def test_a_refusal_tells_who_and_why() -> None:
    verdicts = Verdicts()
    found = refuse(verdicts)
    assert list(verdicts.newest) == [found]
    assert found == UnstoredBatch(
        number=1,
        time_ms=99,
        topic="t",
        partition=3,
        producer_id=7,
        producer_epoch=2,
        base_sequence=30,
        last_sequence=34,
        base_offset=-1,
        outcome="OUT_OF_ORDER_SEQUENCE_NUMBER",
        message="a gap",
        client=CHECKOUT,
    )


async def test_a_duplicate_tells_its_original_and_who_sent_it() -> None:
    verdicts = Verdicts()
    verdicts.duplicate("t", 0, BATCH, 99, 1234, CHECKOUT)
    (found,) = verdicts.newest
    assert (found.outcome, found.base_offset, found.client, found.message) == (DUPLICATE, 1234, CHECKOUT, "")
    assert (found.producer_id, found.base_sequence, found.last_sequence) == (7, 30, 34)
    assert verdicts.refused == {}


@pytest.mark.parametrize(
    "data", [None, b"", b"x", bytes(60), BATCH[:60], bytes(BATCH[:16]) + b"\x01" + bytes(80)]
)
def test_a_batch_without_a_whole_header(data: bytes | None) -> None:
    found = refuse(Verdicts(), None if data is None else memoryview(data))
    producer = (found.producer_id, found.producer_epoch, found.base_sequence, found.last_sequence)
    assert producer == (-1, -1, -1, -1)


def test_sequences_wrap_around() -> None:
    data = memoryview(Batch(records(5)).of(7, 2, 2**31 - 3).encode())
    found = refuse(Verdicts(), data)
    assert (found.base_sequence, found.last_sequence) == (2**31 - 3, 1)


def test_the_oldest_are_forgotten_and_all_are_counted() -> None:
    verdicts = Verdicts(kept=3)
    for _ in range(10):
        refuse(verdicts)
    assert [verdict.number for verdict in verdicts.newest] == [8, 9, 10]
    assert verdicts.refused == {GAP: 10}
    assert Verdicts().newest.maxlen == VERDICTS_KEPT


def test_messages_are_cut() -> None:
    """A client chooses a part of the message with each batch, up to 32 KiB."""
    found = refuse(Verdicts(), message="m" * 100_000)
    assert sys.getsizeof(found.message) < 500
    assert len(found.message) == 300


def test_a_verdict_keeps_no_batch_in_memory() -> None:
    data = bytearray(BATCH)
    refuse(Verdicts(), memoryview(data))
    data.clear()  # fails while a memoryview of the data is alive


# The report of retries in the log.


class Later:
    """Stands for the event loop: keeps what is to be called, and when."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.calls.append((delay_s, call))


def test_one_line_tells_how_many_batches_a_client_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    later, report = Later(monkeypatch), RetryReport()
    for partition in (3, 3, 4, 3, 3, 3):
        report.count(CHECKOUT, "orders", partition)
    ((delay_s, call),) = later.calls
    assert (delay_s, caplog.messages) == (REPORT_S, [])
    call()
    client = "checkout-service (10.0.0.7, librdkafka 2.11.0, User:ann)"
    assert caplog.messages == [
        f"{client} retried 5 batches of orders-3",
        f"{client} retried 1 batch of orders-4",
    ]
    report.count(CHECKOUT, "orders", 3)
    assert len(later.calls) == 2
    caplog.clear()
    report.report()
    assert caplog.messages == [f"{client} retried 1 batch of orders-3"]


def test_a_report_has_few_lines_and_counts_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client sends another client id with each batch."""
    caplog.set_level(logging.INFO)
    later, report = Later(monkeypatch), RetryReport()
    for number in range(COUNTED + 500):
        report.count(msgspec.structs.replace(CHECKOUT, client_id=str(number)), "t", 0)
    assert len(later.calls) == 1
    report.report()
    assert len(caplog.messages) == REPORTED + 1
    assert caplog.messages[-1] == f"others retried {COUNTED + 500 - REPORTED:,} batches"
