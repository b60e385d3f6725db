"""The benchmark counts correctly: the log holds exactly the records that it counts as acknowledged."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator

import pytest

from tests.performance.brokers import SeqgateBroker
from tests.performance.catchup import BATCH_BYTES, OLD, PacedProducer, fill_more, make_cold, reading
from tests.performance.compare import main
from tests.performance.loads import (
    EVERY_MESSAGE,
    PAGE_CACHE,
    create_topic,
    delete_topic,
    load_program,
    log_end_offsets,
    run_consumer_performance,
    run_plan,
    run_producer_performance,
    write_commit_plan,
    write_fetch_plan,
    write_produce_plan,
)
from tests.performance.rows import PARTITIONS, Bench, fill
from tests.performance.transactions import run_transactions
from tests.support.wire import Wire

NUMBERS = itertools.count()


@pytest.fixture(
    scope="module", params=[False, *([True] if shutil.which("cc") or shutil.which("gcc") else [])]
)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The load generator in Python, and the compiled one if there is a compiler."""
    directory = tmp_path_factory.mktemp("bench")
    return Bench(load_program(directory, compiled=request.param), directory)


@pytest.fixture(scope="module")
def seqgate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeqgateBroker]:
    with SeqgateBroker(tmp_path_factory.mktemp("seqgate")) as broker:
        yield broker


@pytest.mark.parametrize("flush_messages", [PAGE_CACHE, EVERY_MESSAGE])
@pytest.mark.parametrize(("connections", "depth"), [(1, 1), (16, 1), (8, 5)])
def test_acknowledged_records_are_in_the_log(
    bench: Bench, seqgate: SeqgateBroker, flush_messages: str, connections: int, depth: int
) -> None:
    topic = f"one-{next(NUMBERS)}"
    create_topic(seqgate, topic, partitions=2, flush_messages=flush_messages)
    plan = bench.directory / "plan"
    write_produce_plan(plan, seqgate, topic, partitions=2, connections=connections, record_count=3, size=100)
    sample = run_plan(bench.program, seqgate, plan, "produce", seconds=30, depth=depth, max_requests=1000)
    with Wire(seqgate.bootstrap) as wire:
        assert sum(log_end_offsets(wire, topic, 2)) == sample.records == 3000
    assert sample.requests == 1000
    assert sample.broker_cpu_s >= 0
    assert sample.resident_bytes > 0


def test_a_rate_is_not_exceeded(bench: Bench, seqgate: SeqgateBroker) -> None:
    topic = f"paced-{next(NUMBERS)}"
    create_topic(seqgate, topic, partitions=2, flush_messages=PAGE_CACHE)
    plan = bench.directory / "plan"
    write_produce_plan(plan, seqgate, topic, partitions=2, connections=4, record_count=3, size=100)
    sample = run_plan(bench.program, seqgate, plan, "produce", seconds=1, depth=5, rate=40)
    assert 0 < sample.requests <= 41
    assert sample.records == 3 * sample.requests
    assert sample.records_per_s <= 3 * 41


def test_fetching_goes_round_and_counts_every_record(bench: Bench, seqgate: SeqgateBroker) -> None:
    topic = f"fetched-{next(NUMBERS)}"
    filled = fill(bench, seqgate, topic, requests=20)
    plan = bench.directory / "plan"
    write_fetch_plan(plan, topic, partitions=PARTITIONS)
    sample = run_plan(bench.program, seqgate, plan, "fetch", seconds=30, max_requests=200)
    assert sample.requests == 200
    assert sample.records >= filled.records


@pytest.mark.parametrize("flush_messages", [PAGE_CACHE, EVERY_MESSAGE])
def test_committed_transactions_are_in_the_log(seqgate: SeqgateBroker, flush_messages: str) -> None:
    topic = f"transactions-{next(NUMBERS)}"
    sample = run_transactions(
        seqgate, topic, connections=3, seconds=0.3, flush_messages=flush_messages, least=2
    )
    with Wire(seqgate.bootstrap) as wire:
        assert log_end_offsets(wire, topic, 2) == [2 * sample.records] * 2, "a record and a marker of each"
    assert sample.records > 3
    assert sample.p99_ms > 0


def test_producer_performance_is_read_right(seqgate: SeqgateBroker) -> None:
    create_topic(seqgate, "tool", partitions=1, flush_messages=EVERY_MESSAGE)
    sample = run_producer_performance(seqgate, "tool", count=3000, size=100, batch_size=16_384)
    with Wire(seqgate.bootstrap) as wire:
        assert log_end_offsets(wire, "tool", 1) == [3000]
    assert sample.records == 3000
    assert sample.client_cpu_s > 0


def test_consumer_performance_is_read_right(bench: Bench, seqgate: SeqgateBroker) -> None:
    topic = f"consumed-{next(NUMBERS)}"
    filled = fill(bench, seqgate, topic, requests=20, size=100)
    sample = run_consumer_performance(seqgate, topic, count=filled.records)
    assert sample.records == filled.records == 20 * 200
    assert sample.records_per_s > 0


def test_commits_are_stored(bench: Bench, seqgate: SeqgateBroker) -> None:
    topic = f"committed-{next(NUMBERS)}"
    create_topic(seqgate, topic, partitions=1, flush_messages=PAGE_CACHE)
    plan = bench.directory / "plan"
    write_commit_plan(plan, seqgate, topic, groups=3)
    sample = run_plan(bench.program, seqgate, plan, "ask", seconds=30, max_requests=300)
    assert sample.records == sample.requests == 300
    with Wire(seqgate.bootstrap) as wire:
        for number in range(3):
            group = {"group_id": f"{topic}-{number}", "topics": None}
            answer = wire.call("offset_fetch", 8, groups=[group], require_stable=False).fields
            ((row,),) = (each["partitions"] for each in answer["groups"][0]["topics"])
            assert row["committed_offset"] == 1


def test_a_refused_commit_is_an_error(bench: Bench, seqgate: SeqgateBroker) -> None:
    """The position of the error code is right: the generator sees it."""
    topic = f"unknown-{next(NUMBERS)}"
    create_topic(seqgate, topic, partitions=1, flush_messages=PAGE_CACHE)
    plan = bench.directory / "plan"
    write_commit_plan(plan, seqgate, topic, groups=1)
    delete_topic(seqgate, topic)
    with pytest.raises(AssertionError, match='"first_error": 3'):
        run_plan(bench.program, seqgate, plan, "ask", seconds=30, max_requests=3)


def test_a_broker_runs_on_the_cores_that_it_is_given(seqgate: SeqgateBroker) -> None:
    whole = os.sched_getaffinity(seqgate.pid)
    seqgate.run_on({min(whole)})
    assert os.sched_getaffinity(seqgate.pid) == {min(whole)}
    seqgate.run_on(whole)
    assert os.sched_getaffinity(seqgate.pid) == whole


def test_paced_requests_are_all_answered_beside_a_full_read(bench: Bench, seqgate: SeqgateBroker) -> None:
    topic = f"paced-{next(NUMBERS)}"
    create_topic(seqgate, topic, partitions=2, flush_messages=PAGE_CACHE)
    create_topic(seqgate, OLD, partitions=PARTITIONS, flush_messages=PAGE_CACHE)
    fill_more(bench, seqgate, 40)
    total_bytes = make_cold(seqgate.directory, OLD)
    assert total_bytes > 40 * BATCH_BYTES
    producer = PacedProducer(seqgate, topic, rate=200, partitions=2)
    with reading(bench, seqgate, total_bytes) as reader:
        beside = producer.run(seconds=0, reader=reader)
        assert json.loads(reader.stdout.read() if reader.stdout else "")["answer_bytes"] > 0.5 * total_bytes
    alone = producer.run(seconds=0.2)
    producer.close()
    delete_topic(seqgate, OLD)
    with Wire(seqgate.bootstrap) as wire:
        assert sum(log_end_offsets(wire, topic, 2)) == 10 * len(beside.all_ms + alone.all_ms)
    assert alone.quantile_ms(0.5) > 0


def test_an_unknown_row_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--rows", "nonsense"])
    assert "no row nonsense" in capsys.readouterr().err
