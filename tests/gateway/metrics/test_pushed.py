"""The series that clients have pushed, as families of Prometheus."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from seqgate.gateway.metrics.table import METRICS, family_name, pushed_families
from seqgate.gateway.telemetry.payload import HistogramValue, PushedSeries, SeriesKind
from tests.support.metrics_text import Values, values_of

SENT = "org.apache.kafka.producer.record.send.total"


def pushed(
    name: str, value: float | HistogramValue, kind: SeriesKind = SeriesKind.COUNTER, **labels: str
) -> PushedSeries:
    return PushedSeries(name, kind, "1", "", {"client_id": "c", **labels}, value)


class _Registry:
    def __init__(self, *series: PushedSeries) -> None:
        self._series = series

    def collect(self) -> object:
        return pushed_families(self._series)


def shown(*series: PushedSeries) -> Values:
    return values_of(generate_latest(_Registry(*series)).decode())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "kind", "family"),
    [
        (SENT, SeriesKind.COUNTER, "kafka_client_producer_record_send"),
        (
            "org.apache.kafka.producer.request.latency.avg",
            SeriesKind.GAUGE,
            "kafka_client_producer_request_latency_avg",
        ),
        ("my.metric", SeriesKind.GAUGE, "client_my_metric"),
        ("größe in %", SeriesKind.GAUGE, "client_gr_e_in_"),
    ],
)
def test_the_name_tells_who_made_the_metric(name: str, kind: SeriesKind, family: str) -> None:
    assert family_name(name, kind) == family


def test_the_labels_are_those_of_client_and_measurement() -> None:
    values = shown(pushed(SENT, 3.0), pushed(SENT, 4.0, topic="t"))
    assert values.of("kafka_client_producer_record_send_total", client_id="c", topic="t") == 4
    assert {dict(labels).get("topic") for _, labels in values} == {None, "t"}


def test_a_histogram_has_cumulative_buckets() -> None:
    value = HistogramValue((0.1, 1.0), (1, 2, 3), 9.5, 6)
    values = shown(pushed("latency", value, SeriesKind.HISTOGRAM))
    buckets = {
        bound: values.of("client_latency_bucket", client_id="c", le=bound) for bound in ("0.1", "1.0", "+Inf")
    }
    assert buckets == {"0.1": 1, "1.0": 3, "+Inf": 6}
    assert values.of("client_latency_count", client_id="c") == 6
    assert values.of("client_latency_sum", client_id="c") == 9.5


def test_of_two_kinds_of_one_name_the_later_one_is_left_out() -> None:
    values = shown(pushed("a.total", 1.0), pushed("a", 2.0, SeriesKind.GAUGE), pushed("a-total", 5.0))
    assert list(values.values()) == [1.0]


NAMES = st.text(min_size=1, max_size=20) | st.sampled_from([*METRICS, "process_cpu_seconds_total", SENT])


@given(
    st.lists(
        st.tuples(NAMES, st.floats(allow_nan=False), st.sampled_from([SeriesKind.COUNTER, SeriesKind.GAUGE]))
    )
)
def test_no_client_breaks_the_text_or_writes_over_the_gateways_metrics(
    found: list[tuple[str, float, SeriesKind]],
) -> None:
    text = generate_latest(_Registry(*(pushed(*each) for each in found))).decode()  # type: ignore[arg-type]
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    assert all(family.name.startswith(("client_", "kafka_client_")) for family in families)
