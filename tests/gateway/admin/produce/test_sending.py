from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from seqgate.gateway.admin.produce import Interrupted, ProducedRecord, send_records
from seqgate.gateway.admin.remote.addresses import parse_addresses
from seqgate.gateway.admin.remote.cluster import connected
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.cli import parse
from seqgate.gateway.testing import Broker

WRONG = "line 2: no key separator ':' in the line"
WHOLE = ProducedRecord(b"whole")


def whole_then_wrong() -> Iterator[ProducedRecord]:
    yield WHOLE
    raise ControlError(WRONG)


def send(broker: Broker, records: Iterable[ProducedRecord], *, timeout_s: float | None = None) -> None:
    if "lines" not in broker.topics():
        broker.create_topic("lines")
    with connected(parse_addresses(broker.bootstrap), timeout_s=timeout_s) as cluster:
        send_records(cluster, "lines", records, compression=None, at_once=False)


def senders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "kafka-producer" in thread.name]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_the_records_before_a_wrong_line_are_stored_however_often_they_are_refused(broker: Broker) -> None:
    with broker.faults.not_leader(times=15), pytest.raises(ControlError, match=WRONG):
        send(broker, whole_then_wrong())
    broker.assert_exactly_once("lines", [b"whole"])
    assert senders() == []


def test_a_producer_that_is_interrupted_ends_and_sends_no_more(broker: Broker) -> None:
    def interrupted() -> Iterator[ProducedRecord]:
        yield WHOLE
        raise KeyboardInterrupt

    with broker.faults.delay(3_600_000, api="Produce"), pytest.raises(Interrupted) as ended:
        send(broker, interrupted())
    assert (ended.value.report.records, ended.value.unknown) == (0, 1)
    assert senders() == []


def test_a_record_that_is_refused_for_too_long_is_reported_with_the_reason(broker: Broker) -> None:
    too_late = (
        r"^record 1 is not acknowledged within 1 s: 127.0.0.1:\d+ refuses: .*\(KAFKA_STORAGE_ERROR\); 0 of"
    )
    with (
        broker.faults.error("KAFKA_STORAGE_ERROR", api="Produce", times=1_000_000),
        pytest.raises(ControlError, match=too_late),
    ):
        send(broker, [WHOLE], timeout_s=1)
    assert senders() == []


def test_a_missing_topic_names_the_option_that_creates_it(broker: Broker) -> None:
    with (
        connected(parse_addresses(broker.bootstrap)) as cluster,
        pytest.raises(ControlError, match=r"^there is no topic none; --create creates it$"),
    ):
        send_records(cluster, "none", [WHOLE], compression=None, at_once=False)


def test_each_header_is_stored_under_the_name_that_was_given(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("lines")
    file = tmp_path / "lines"
    file.write_text("whole\n")
    given = [word for text in ("a=1", "a=2", " b =x=y") for word in ("--header", text)]
    right = parse(["produce", "lines", "--bootstrap", broker.bootstrap, "--file", str(file), *given])
    assert right is not None
    command, values = right
    command(**values)
    (record,) = broker.records("lines")
    assert list(record.headers) == [("a", b"1"), ("a", b"2"), (" b ", b"x=y")]


def test_a_refusal_after_the_end_of_the_input_is_told_once(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        broker.faults.error("MESSAGE_TOO_LARGE", api="Produce", times=1_000_000),
        pytest.raises(
            ControlError, match=r"^record 1 is not stored: .* 0 of the records before it are stored$"
        ),
    ):
        send(broker, [WHOLE])
    assert "the next line ends the command" not in capsys.readouterr().err


def test_a_record_needs_neither_a_key_nor_a_value(broker: Broker) -> None:
    send(broker, [ProducedRecord(None), ProducedRecord(None, b"k"), ProducedRecord(b"")])
    assert [record[3:5] for record in broker.records("lines")] == [(None, None), (b"k", None), (None, b"")]
