"""The series that clients have pushed (KIP-714), as families of Prometheus.

A client chooses the names of its metrics. So each name gets a prefix, and no client can write over a metric of the gateway:

    org.apache.kafka.producer.record.send.total     kafka_client_producer_record_send_total
    my.metric                                       client_my_metric
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import Metric as Family

from gateway.telemetry.points import HistogramValue, Kind
from gateway.telemetry.series import PushedSeries

_OF_KAFKA: Final = "org.apache.kafka."
_OTHER_CHARACTERS: Final = re.compile(r"[^a-zA-Z0-9_]+")
_TOTAL: Final = "_total"
_LongName = tuple[str, tuple[tuple[str, str], ...]]


def pushed_families(found: Iterable[PushedSeries]) -> Iterator[Family]:
    """Yield a family for each name.

    Of two kinds of one name, and of two series that differ only in characters which Prometheus does not know, the later one is left out.
    """
    families: dict[str, Family] = {}
    kinds: dict[str, Kind] = {}
    seen: set[_LongName] = set()
    for series in found:
        name = family_name(series.name, series.kind)
        key = name, tuple(sorted(series.labels.items()))
        if kinds.setdefault(name, series.kind) is not series.kind or key in seen:
            continue
        seen.add(key)
        family = families.get(name)
        if family is None:
            family = families[name] = Family(name, series.help or series.name, series.kind.value)
        _add(family, name, series)
    yield from families.values()


def family_name(pushed: str, kind: Kind) -> str:
    """Return the name of the family for the name that a client gave a metric."""
    prefix = "kafka_client_" if pushed.startswith(_OF_KAFKA) else "client_"
    name = prefix + _OTHER_CHARACTERS.sub("_", pushed.removeprefix(_OF_KAFKA))
    return name.removesuffix(_TOTAL) if kind is Kind.COUNTER else name


def _add(family: Family, name: str, series: PushedSeries) -> None:
    if isinstance(series.value, HistogramValue):
        _add_histogram(family, name, series.labels, series.value)
    else:
        suffix = _TOTAL if series.kind is Kind.COUNTER else ""
        family.add_sample(name + suffix, series.labels, series.value)


def _add_histogram(family: Family, name: str, labels: dict[str, str], value: HistogramValue) -> None:
    bounds = (*map(repr, value.bounds), "+Inf")
    for bound, count in zip(bounds, accumulate(value.counts), strict=True):
        family.add_sample(f"{name}_bucket", {**labels, "le": bound}, count)
    family.add_sample(f"{name}_count", labels, value.observations)
    family.add_sample(f"{name}_sum", labels, value.sum)
