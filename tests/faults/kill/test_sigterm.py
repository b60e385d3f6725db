"""SIGTERM under load: a clean stop, no acknowledged record lost, and a start that reads no records."""

from __future__ import annotations

from pathlib import Path

from tests.faults.kill.checker import check, summary
from tests.faults.kill.load import Producers, create_topic, fixed_port
from tests.support.batches import Batch, records
from tests.support.gateway_process import GatewayProcess
from tests.support.read_back import read_back
from tests.support.wire import Wire

TOPIC = "stopped"
PARTITIONS = 6
STOPS = 3
BATCH_BYTES = 500_000
BATCHES = 60


def _bytes_read(gateway: GatewayProcess) -> int:
    """Return the bytes that the process has read through system calls, from the page cache or the disk."""
    lines = Path(f"/proc/{gateway.pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar:"))


def _append_much(gateway: GatewayProcess) -> None:
    batch = Batch(records(BATCH_BYTES // 1000, 1000)).encode()
    topic_data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
    with Wire(gateway.bootstrap) as wire:
        for _ in range(BATCHES):
            answer = wire.call("produce", 9, acks=-1, timeout=30_000, topic_data=topic_data).fields
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer


def test_stops_cleanly_under_load_and_loses_nothing(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", port=fixed_port()) as gateway:
        create_topic(gateway.bootstrap, TOPIC, PARTITIONS)
        with Producers(gateway.bootstrap, TOPIC, PARTITIONS, tmp_path) as producers:
            for _ in range(STOPS):
                producers.await_further(1000)
                gateway.restart()
            producers.finish()
            rows = read_back(gateway.bootstrap, TOPIC, PARTITIONS)
            breaches = check(producers.ledgers, rows)
            assert not breaches, f"{summary(breaches)}\n{producers.summary()}"
    assert "Traceback" not in gateway.stderr_text()


def test_a_start_after_a_clean_stop_reads_no_record_data(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data") as gateway:
        create_topic(gateway.bootstrap, TOPIC, PARTITIONS)
        gateway.restart()
        almost_empty = _bytes_read(gateway)
        _append_much(gateway)
        gateway.restart()
        assert _bytes_read(gateway) - almost_empty < BATCH_BYTES
        gateway.restart(kill=True)
        gateway.stop()
