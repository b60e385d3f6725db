"""The table of metrics follows the conventions of Prometheus, and the subjects yield exactly what it names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from seqgate.gateway.durations import Durations
from seqgate.gateway.metrics.metric import Metric, MetricKind
from seqgate.gateway.metrics.table import METRICS, SUBJECTS

EVERY = [metric for subject in SUBJECTS for metric in subject.metrics]
OTHER_UNITS = re.compile(r"_(ms|millis|minutes|hours|kb|kib|mb|mib|percent)(_|$)")


def names_of(metric: Metric) -> Iterator[str]:
    """Yield the names of all samples of a metric."""
    yield metric.name
    if metric.kind is MetricKind.HISTOGRAM:
        yield from (f"{metric.name}_{end}" for end in ("bucket", "count", "sum"))


def test_each_name_occurs_once() -> None:
    counts = Counter(name for metric in EVERY for name in names_of(metric))
    assert [name for name, count in counts.items() if count > 1] == []
    assert len(METRICS) == len(EVERY)


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
def test_the_name_tells_kind_and_unit(metric: Metric) -> None:
    assert re.fullmatch(r"seqgate(_[a-z][a-z0-9]*)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert metric.name.endswith("_info") == (metric.kind is MetricKind.INFO)
    assert not OTHER_UNITS.search(metric.name)
    assert not metric.name.endswith(("_count", "_sum", "_bucket", "_created"))
    if metric.kind is MetricKind.HISTOGRAM:
        assert metric.name.endswith("_seconds")


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
def test_labels_and_text(metric: Metric) -> None:
    assert all(re.fullmatch(r"[a-z][a-z_]*", label) for label in metric.labels)
    assert len(set(metric.labels)) == len(metric.labels)
    assert not {"le", "quantile", "job", "instance"} & set(metric.labels)
    assert metric.doc.endswith(".")
    assert "|" not in metric.doc, "a cell of docs/metrics.md"
    assert "\n" not in metric.doc


def test_a_sample_has_its_labels_in_order() -> None:
    groups = METRICS["seqgate_groups"]
    sample = groups.at(3, "classic", "Stable")
    assert (sample.metric, sample.labels, sample.value) == (groups, ("classic", "Stable"), 3)
    durations = Durations()
    assert METRICS["seqgate_event_loop_delay_seconds"].at(durations).value is durations
