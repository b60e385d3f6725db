"""The loads of the deduplication benchmark match their rows: sequence ids grow, or repeat."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.performance.brokers import SeqgateBroker
from tests.performance.deduplication import WITH, WITHOUT, Row, measure, table
from tests.performance.loads import PAGE_CACHE, create_topic, load_program, run_plan, write_produce_plan
from tests.performance.rows import Bench
from tests.support.wire import Wire

COMPILED = (False, *([True] if shutil.which("cc") or shutil.which("gcc") else []))


def told(broker: SeqgateBroker, name: str, topic: str) -> int:
    """Return the last sequence id of a producer name in partition 0."""
    asked = {"group_id": f"seqgate-name:{name}", "topics": [{"name": topic, "partition_indexes": [0]}]}
    with Wire(broker.bootstrap) as wire:
        answer = wire.call("offset_fetch", 8, {"groups": [asked], "require_stable": False}).fields
    return int(answer["groups"][0]["topics"][0]["partitions"][0]["committed_offset"])


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(("kind", "highest"), [("produce", 120), ("repeat", 0)])
def test_sequence_ids_are_those_of_the_kind(tmp_path: Path, compiled: bool, kind: str, highest: int) -> None:
    with SeqgateBroker(tmp_path / "seqgate") as broker:
        create_topic(
            broker, "named", partitions=1, flush_messages=PAGE_CACHE, message_deduplication_enable="true"
        )
        plan = tmp_path / "plan"
        write_produce_plan(
            plan, broker, "named", partitions=1, connections=1, record_count=3, size=50, is_named=True
        )
        program = load_program(tmp_path, compiled=compiled)
        sample = run_plan(program, broker, plan, kind, seconds=30, depth=2, max_requests=40)
        assert sample.records == 120
        assert told(broker, "bench-0", "named") == highest


def test_a_row_is_measured_and_told(tmp_path: Path) -> None:
    row = Row("a few records", 1, 1, 2, 50)
    with SeqgateBroker(tmp_path / "seqgate") as broker:
        bench = Bench(load_program(tmp_path, compiled=False), tmp_path, PAGE_CACHE)
        samples = {
            kind: [measure(bench, broker, row, kind, number, seconds=0.2)]
            for number, kind in enumerate((WITHOUT, WITH))
        }
    lines = table([(row, "page cache", samples)]).splitlines()
    assert [line.split(" | ")[2] for line in lines[2:]] == [WITHOUT, WITH]
