"""The clients of producer ids, and the report of clients that send batches again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec
import pytest

from seqgate.gateway.runtime.partitions.producer_clients import (
    COUNTED,
    REPORT_S,
    REPORTED,
    ProducerClients,
    RetryReport,
)
from seqgate.gateway.security.principals import ClientIdentity

ANN = ClientIdentity("checkout-service", "10.0.0.7", "User:ann", "librdkafka 2.11.0")
BOB = ClientIdentity("billing", "10.0.0.8", "User:ANONYMOUS", None)


def clients(limit: int = 10) -> ProducerClients:
    found = ProducerClients()
    found.limit = limit
    return found


@pytest.mark.parametrize(
    ("client", "text"),
    [
        (ANN, "checkout-service (10.0.0.7, librdkafka 2.11.0, User:ann)"),
        (BOB, "billing (10.0.0.8)"),
        (ClientIdentity("", "::1", "User:ANONYMOUS", "kafka-python 3.0"), "a client (::1, kafka-python 3.0)"),
    ],
)
def test_a_client_in_words(client: ClientIdentity, text: str) -> None:
    assert str(client) == text


def test_a_producer_is_of_the_client_that_was_noted_last() -> None:
    known = clients()
    assert known.find(7, 0) is None
    assert known.newest(7) is None
    known.note(7, 0, ANN)
    known.note(7, 1, BOB)
    assert (known.find(7, 1), known.find(7, 2), known.newest(7)) == (BOB, BOB, BOB)
    assert known.find(7, 0) is None  # the partition knows an epoch that was another client's


def test_the_epochs_of_one_client_are_its_own_from_the_first_on() -> None:
    """A transaction of version 2 has an epoch of its own; a partition keeps the one that wrote there last."""
    known = clients()
    for epoch in (4, 5, 6):
        known.note(7, epoch, ANN)
    assert [known.find(7, epoch) for epoch in (3, 4, 5, 9)] == [None, ANN, ANN, ANN]


def test_a_batch_without_a_producer_is_nobodys() -> None:
    known = clients()
    known.note(-1, -1, ANN)
    assert len(known) == 0


def test_the_client_that_was_noted_longest_ago_is_dropped() -> None:
    known = clients(limit=3)
    for producer_id in (1, 2, 3, 1, 4):
        known.note(producer_id, 0, ANN)
    assert [known.find(producer_id, 0) for producer_id in (1, 2, 3, 4)] == [ANN, None, ANN, ANN]
    known.limit = 1
    known.note(5, 0, ANN)
    assert (len(known), known.find(5, 0)) == (1, ANN)
    known.limit = 0
    known.note(6, 0, ANN)
    assert len(known) == 0


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
        report.count(ANN, "orders", partition)
    ((delay_s, call),) = later.calls
    assert (delay_s, caplog.messages) == (REPORT_S, [])
    call()
    client = "checkout-service (10.0.0.7, librdkafka 2.11.0, User:ann)"
    assert caplog.messages == [
        f"{client} retried 5 batches of orders-3",
        f"{client} retried 1 batch of orders-4",
    ]
    report.count(ANN, "orders", 3)
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
        report.count(msgspec.structs.replace(ANN, client_id=str(number)), "t", 0)
    assert len(later.calls) == 1
    report.report()
    assert len(caplog.messages) == REPORTED + 1
    assert caplog.messages[-1] == f"others retried {COUNTED + 500 - REPORTED:,} batches"
