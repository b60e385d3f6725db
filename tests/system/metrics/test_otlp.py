"""A gateway process sends its metrics to a collector that is there, away, slow, and there again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from kafka import KafkaProducer

from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.otlp_receiver import Export, OtlpReceiver, Reply

TIMEOUT_S = 60.0
RECORDS = 25


def _gateway(tmp_path: Path, url: str) -> GatewayProcess:
    settings = {"seqgate.otlp.endpoint": url, "seqgate.otlp.interval.ms": "1000"}
    environment = {"SEQGATE_OTLP_HEADERS": "authorization=Bearer%20x", "NO_PROXY": "127.0.0.1"}
    return GatewayProcess(tmp_path / "data", settings=settings, environment=environment)


def _produce(gateway: GatewayProcess, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=gateway.bootstrap, linger_ms=0)
    for number in range(count):
        producer.send("orders", b"%d" % number).get(TIMEOUT_S)
    producer.close()


def _await_export(receiver: OtlpReceiver, is_right: Callable[[Export], bool]) -> Export:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        export = receiver.next()
        if is_right(export):
            return export
    raise AssertionError("no export was right")


def _records(export: Export) -> float | None:
    return export.value("seqgate_topic_records_total", topic="orders")


def test_a_collector_gets_all_values_and_the_last_ones_at_the_stop(tmp_path: Path) -> None:
    with OtlpReceiver() as receiver:
        with _gateway(tmp_path, receiver.url) as gateway:
            _produce(gateway, RECORDS)
            export = _await_export(receiver, lambda export: _records(export) == RECORDS)
            assert export.headers["authorization"] == "Bearer x"
            assert export.resource["service.name"] == "seqgate"
            assert export.resource["service.instance.id"] == "1"
            produced = export.value("seqgate_requests_total", api="Produce")
            assert produced is not None
            assert produced >= RECORDS
            assert export.metrics["process_resident_memory_bytes"].gauge.data_points[0].as_double > 1e6
            _produce(gateway, RECORDS)
        last = receiver.newest()
    assert last is not None
    assert _records(last) == 2 * RECORDS
    log = gateway.stderr_text()
    assert log.count("/v1/metrics") == 1, "httpx has written a line for each export"
    assert "Bearer" not in log


def test_a_collector_that_is_away_slow_or_full_holds_nothing_up(tmp_path: Path) -> None:
    port = free_port()
    with _gateway(tmp_path, f"http://127.0.0.1:{port}/v1/metrics") as gateway:
        _produce(gateway, RECORDS)
        with OtlpReceiver(port) as receiver:
            _await_export(receiver, lambda export: _records(export) == RECORDS)
            receiver.reply = full = Reply(503)
            _await_export(receiver, lambda export: export.reply is full)
            held = threading.Event()
            receiver.reply = slow = Reply(held=held)
            _await_export(receiver, lambda export: export.reply is slow)
            _produce(gateway, RECORDS)
            receiver.reply = Reply()
            held.set()
            _await_export(receiver, lambda export: _records(export) == 2 * RECORDS)
            gateway.stop()  # before the collector: the last export must not find it away once more
    log = gateway.stderr_text()
    assert log.count("takes no metrics: it can't be reached") == 1
    assert log.count("takes no metrics: it answers with status 503") == 1
    assert log.count("takes metrics again") == 2
