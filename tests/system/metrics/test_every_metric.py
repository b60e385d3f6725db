"""A gateway over a bucket that has done everything yields every metric of the table, and nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from seqgate.gateway.metrics.metric import Metric, MetricKind
from seqgate.gateway.metrics.table import METRICS
from tests.support.batches import Batch, records
from tests.support.certificates import Authority
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.metrics_text import OPENMETRICS, Values, fallen, values_of
from tests.support.named_batches import named
from tests.support.wire import Wire
from tests.system.metrics.scene import (
    await_values,
    commit,
    create,
    fetch,
    keyed,
    leave_a_transaction_open,
    measured,
    page,
    port_of,
    produce,
    scraped,
)

OF_THE_PROCESS = ("process_", "python_")
HISTOGRAM_ENDS = ("_bucket", "_count", "_sum")


@dataclass(frozen=True)
class Done:
    """What a gateway shows after it did everything."""

    values: Values
    text: str
    openmetrics: str
    every: list[Values]
    """Scrapes while it did everything, in order."""


def do_everything(gateway: GatewayProcess) -> Iterator[Values]:
    """Do everything that is counted; yield a scrape after each step."""
    port = port_of(gateway)
    yield scraped(port)
    with Wire(gateway.bootstrap) as wire:
        create(wire, "plain")
        batch = Batch(records(3))
        for sequence in (0, 0, 90):  # a batch, its duplicate, and a gap
            produce(wire, "plain", batch.of(7, 0, sequence))
        assert fetch(wire, "plain") > 0
        yield scraped(port)
        commit(wire, "readers", "plain", 1)
        leave_a_transaction_open(wire, "open", "plain")
        leave_a_transaction_open(wire, "late", "plain", timeout_ms=1, has_record=False)
        yield scraped(port)
        create(wire, "named", message_deduplication_enable="true")
        for _ in range(2):
            produce(wire, "named", named("reader", 1))
        create(
            wire,
            "compact",
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="0.01",
            internal_segment_bytes="2000",
        )
        for number in range(40):
            produce(wire, "compact", keyed(b"%d" % (number % 3), 300))
        create(wire, "short", retention_bytes="1000", internal_segment_bytes="2000")
        for _ in range(20):
            produce(wire, "short", keyed(b"k", 900))
        yield scraped(port)
        yield await_values(
            port,
            lambda values: bool(
                values.of("seqgate_compaction_runs_total")
                and values.by("seqgate_retention_deleted_segments_total", "reason")
                and values.of("seqgate_transactions_timed_out_total")
            ),
            "compaction, retention and the end of a late transaction",
        )
        unknown = {"client_instance_id": str(uuid.uuid4()), "subscription_id": 1, "terminating": False}
        wire.call("push_telemetry", 0, **unknown, compression_type=0, metrics=b"")
        topics = [{"name": "short", "topic_id": None}]
        wire.call("delete_topics", 6, topics=topics, timeout=10_000)
    yield scraped(port)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    place: Path = tmp_path_factory.mktemp("everything")
    (place / "bucket").mkdir()
    prepared = measured(
        place / "data",
        seqgate__cluster=f"file://{place / 'bucket'}",
        ssl__keystore__type="PEM",
        ssl__keystore__location=str(Authority().listener().write_pem(place / "gateway.pem")),
    )
    prepared.also_listen = (f"SSL://127.0.0.1:{free_port()}",)
    with prepared as gateway:
        every = list(do_everything(gateway))
        status, text = page(port_of(gateway), "/metrics")
        assert status == 200
        status, openmetrics = page(port_of(gateway), "/metrics", OPENMETRICS)
        assert status == 200
        yield Done(values_of(text), text, openmetrics, every)


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_the_metric_is_there(done: Done, metric: Metric) -> None:
    name, kind, labels = metric.name, metric.kind, metric.labels
    wanted = f"{name}_count" if kind is MetricKind.HISTOGRAM else name
    found = [set(dict(pairs)) for sample, pairs in done.values if sample == wanted]
    assert found, f"no sample of {name}"
    assert all(names == set(labels) for names in found)
    assert any(sample == f"# HELP {name} {metric.doc}" for sample in done.text.splitlines())


def test_nothing_else_is_there(done: Done) -> None:
    allowed = set(METRICS)
    for metric in METRICS.values():
        if metric.kind is MetricKind.HISTOGRAM:
            allowed |= {f"{metric.name}{end}" for end in HISTOGRAM_ENDS}
    names = {name for name, _ in done.values}
    assert {name for name in names if not name.startswith(OF_THE_PROCESS)} <= allowed
    assert any(name == "process_resident_memory_bytes" for name in names)


def test_both_formats_tell_the_same(done: Done) -> None:
    parsed = values_of(done.openmetrics)
    ours = {key for key in done.values if key[0].startswith("seqgate_")}
    assert ours == {key for key in parsed if key[0].startswith("seqgate_")}
    kinds = {family.name: family.type for family in text_string_to_metric_families(done.text)}
    for metric in METRICS.values():
        name = metric.family if metric.kind is MetricKind.COUNTER else metric.name
        expected = "gauge" if metric.kind is MetricKind.INFO else str(metric.kind)
        assert kinds[name] == expected


def test_no_counter_fell_but_of_the_deleted_topic(done: Done) -> None:
    every = [*done.every, done.values]
    for before, after in pairwise(every):
        gone = [key for key in fallen(before, after) if ("topic", "short") not in key[1]]
        assert gone == []


def test_the_numbers_are_those_of_what_was_done(done: Done) -> None:
    values = done.values
    assert values.of("seqgate_producer_duplicate_batches_total") == 1
    assert values.by("seqgate_producer_refused_batches_total", "error") == {
        "out_of_order_sequence_number": 1,
        "invalid_producer_epoch": 0,
    }
    assert values.of("seqgate_producer_names_dropped_records_total") == 1
    assert values.of("seqgate_topic_records_total", topic="compact") == 40
    assert values.of("seqgate_topic_records_total", topic="named") == 1
    assert values.of("seqgate_topic_records_total", topic="plain") >= 5
    assert values.of("seqgate_transactions_timed_out_total") == 1
    assert values.of("seqgate_transactions_open") == 1
    assert values.of("seqgate_transactional_ids") == 2
    assert values.of("seqgate_transactions_oldest_seconds") > 0
    assert values.of("seqgate_compaction_records_read_total") > values.of(
        "seqgate_compaction_records_kept_total"
    )
    assert values.of("seqgate_bucket_calls_total", call="put") > 0
    ended = values.of("seqgate_bucket_put_duration_seconds_count")
    assert 0 < ended <= values.of("seqgate_bucket_calls_total", call="put")  # a put may be under way
    assert values.of("seqgate_cluster_gateways") == 1
    assert values.of("seqgate_offline_partitions") == 0
    assert values.of("seqgate_ready") == 1


def test_a_histogram_ends_with_its_count(done: Done) -> None:
    for (name, labels), value in done.values.items():
        if name.endswith("_bucket") and ("le", "+Inf") in labels:
            rest = {key: text for key, text in labels if key != "le"}
            assert value == done.values.of(f"{name.removesuffix('_bucket')}_count", **rest)
