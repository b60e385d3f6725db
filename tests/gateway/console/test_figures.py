"""Figures for charts: read from metrics, turned into rates, kept in a ring."""

from __future__ import annotations

import pytest

from seqgate.gateway.admin.pids import FindOwnerRequest
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.verdicts import ListVerdictsRequest
from seqgate.gateway.console.metrics.history import DISK_FREE, LAG, TOPIC_RECORDS, key_of
from seqgate.gateway.console.metrics.listener import MetricsClient, buckets, quantile, samples
from seqgate.gateway.console.metrics.rates import (
    BYTES_IN,
    DUPLICATES,
    MOST_LABELLED,
    PRODUCE_P99,
    RECORDS,
    REFUSALS,
    WANTED,
    Reading,
    figures,
    free_bytes,
    labelled_figures,
    largest,
    new_records,
)
from seqgate.gateway.console.metrics.sampler import MOST_WATCHES, Watches
from tests.support.metrics_stub import metrics_stub

TOPIC_RECORDS_TOTAL = "seqgate_topic_records_total"
TEXT = """\
# TYPE seqgate_topic_records_total counter
seqgate_topic_records_total{topic="a"} 10
seqgate_topic_records_total{topic="b"} 5
seqgate_producer_refused_batches_total{error="INVALID_PRODUCER_EPOCH"} 1
seqgate_producer_refused_batches_total{error="OUT_OF_ORDER_SEQUENCE_NUMBER"} 2
seqgate_request_duration_seconds_bucket{api="Produce",le="0.001"} 50
seqgate_request_duration_seconds_bucket{api="Produce",le="+Inf"} 100
seqgate_request_duration_seconds_bucket{api="Fetch",le="+Inf"} 7
seqgate_unknown_total 99
"""


def test_only_the_wanted_metrics_are_read() -> None:
    found = samples(TEXT, WANTED)
    assert sum(sample.value for sample in found if sample.name == "seqgate_topic_records_total") == 15
    assert not any("unknown" in sample.name for sample in found)
    assert buckets(found, "seqgate_request_duration_seconds", api="Produce") == {0.001: 50, float("inf"): 100}


def test_counters_become_rates_and_a_restart_counts_from_zero() -> None:
    before = Reading(10.0, {TOPIC_RECORDS_TOTAL: {(): 100}, "seqgate_topic_bytes_total": {(): 1000}})
    after = Reading(12.0, {TOPIC_RECORDS_TOTAL: {(): 300}, "seqgate_topic_bytes_total": {(): 50}})
    found = figures(before, after)
    assert (found[RECORDS], found[BYTES_IN]) == (100, 25)
    assert found[PRODUCE_P99] is None
    assert DUPLICATES not in found


def test_a_deleted_topic_is_no_restart() -> None:
    a, b = (("topic", "a"),), (("topic", "b"),)
    before = Reading(0.0, {TOPIC_RECORDS_TOTAL: {a: 1_000_000, b: 2_000_000}})
    assert figures(before, Reading(1.0, {TOPIC_RECORDS_TOTAL: {b: 2_000_010}}))[RECORDS] == 10


def test_after_a_restart_the_slowest_requests_are_those_since() -> None:
    before = Reading(0.0, counts={PRODUCE_P99: {0.001: 900, 0.01: 1000, float("inf"): 1000}})
    after = Reading(5.0, counts={PRODUCE_P99: {0.001: 100, 0.01: 100, float("inf"): 100}})
    found = figures(before, after)[PRODUCE_P99]
    assert found is not None
    assert 0.9 < found <= 1


def test_topics_and_groups_have_figures_of_their_own() -> None:
    text = TEXT + 'seqgate_group_lag_records{group="g"} 12\nseqgate_disk_free_bytes 99\n'
    before = Reading(0.0, {TOPIC_RECORDS_TOTAL: {(("topic", "a"),): 4}})
    after = Reading.of(2.0, samples(text, WANTED))
    assert labelled_figures([(before, after)]) == {
        key_of(TOPIC_RECORDS, {"topic": "a"}): 3,
        key_of(LAG, {"group": "g"}): 12,
    }, "a topic that was not there before has no rate yet"
    assert labelled_figures([(before, after)] * 2)[key_of(TOPIC_RECORDS, {"topic": "a"})] == 6, "the sum"
    assert free_bytes([after]) == {key_of(DISK_FREE, {"broker": ""}): 99}
    many = {str(number): float(number) for number in range(MOST_LABELLED + 1)}
    assert "0" not in largest(many)
    assert len(largest(many)) == MOST_LABELLED


def test_labels_are_summed() -> None:
    found = figures(Reading(0.0), Reading.of(1.0, samples(TEXT, WANTED)))
    assert (found[RECORDS], found[REFUSALS]) == (15, 3)


@pytest.mark.parametrize(
    ("after", "share", "value"),
    [
        ({0.001: 50, 0.002: 100, float("inf"): 100}, 0.75, 0.0015),
        ({0.001: 0, float("inf"): 10}, 0.99, 0.001),
        ({0.001: 0, float("inf"): 0}, 0.99, None),
        ({}, 0.99, None),
    ],
)
def test_a_quantile_lies_inside_its_bucket(
    after: dict[float, float], share: float, value: float | None
) -> None:
    assert quantile({}, after, share) == value


def test_watches_are_bounded() -> None:
    watches = Watches()
    for number in range(MOST_WATCHES + 5):
        watches.history(f"group {number}", dict)
    assert len(watches.due()) == MOST_WATCHES


def test_new_partitions_count_with_their_next_reading() -> None:
    assert new_records({("a", 0): 5}, {("a", 0): 9, ("a", 1): 100}) == {"a": 4}
    assert new_records({("a", 0): 9}, {("a", 0): 5}) == {"a": 0}


def test_the_listener_is_asked_and_its_refusals_are_sentences() -> None:
    with metrics_stub() as stub:
        listener = MetricsClient(stub.url)
        stub.views["pids.owner"] = {
            "producer_id": 7,
            "block": None,
            "handed_out": None,
            "next_producer_id": 0,
        }
        assert listener.view(FindOwnerRequest(7)).block is None
        assert stub.asked == [("pids.owner", {"producer_id": "7"})]
        with pytest.raises(ControlError, match="no operation verdicts"):
            listener.view(ListVerdictsRequest("a", 0))
        stub.ready = (503, "starting")
        assert listener.readiness() == (False, "starting")
    with pytest.raises(ControlError, match=r"does not answer: .*; set seqgate\.metrics\.listener"):
        listener.metrics()
    for wrong in ("ftp://x", "http://127.0.0.1:96444", "http://gateway:metrics"):
        with pytest.raises(ValueError, match="must be a URL"):
            MetricsClient(wrong)
