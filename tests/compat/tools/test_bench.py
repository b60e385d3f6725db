"""The benchmark puts a load on Apache Kafka as well as on Seqgate (`tests/performance` itself needs no peer)."""

from __future__ import annotations

from pathlib import Path

from tests.performance.brokers import KafkaBroker
from tests.performance.loads import PAGE_CACHE, create_topic, load_program, run_plan, write_produce_plan


def test_the_bench_starts_kafka_and_puts_a_load_on_it(tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    with KafkaBroker(tmp_path / "kafka") as broker:
        create_topic(broker, "t", partitions=1, flush_messages=PAGE_CACHE)
        write_produce_plan(plan, broker, "t", partitions=1, connections=2, record_count=1, size=100)
        sample = run_plan(load_program(tmp_path), broker, plan, "produce", seconds=0.5)
    assert sample.records > 0
    assert sample.broker_cpu_s > 0
