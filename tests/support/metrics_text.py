"""The values of an exposition, as Prometheus would store them."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

OPENMETRICS = "application/openmetrics-text; version=1.0.0"

Key = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a sample and its labels, sorted."""


class Values(dict[Key, float]):
    """The values of one scrape, by sample name and labels."""

    def of(self, name: str, **labels: str) -> float:
        """Return the value of one sample."""
        return self[name, tuple(sorted(labels.items()))]

    def by(self, name: str, label: str) -> dict[str, float]:
        """Return the values of a sample name by one label, which is the only one."""
        return {dict(labels)[label]: value for (found, labels), value in self.items() if found == name}

    @property
    def counters(self) -> Mapping[Key, float]:
        """Return all that must never fall: counters, and the counts and buckets of histograms."""
        ends = ("_total", "_count", "_bucket", "_sum")
        return {key: value for key, value in self.items() if key[0].endswith(ends)}


def values_of(text: str) -> Values:
    """Parse an exposition in either format. A sample that occurs twice fails."""
    is_open = text.endswith("# EOF\n")
    families = (
        openmetrics_parser.text_string_to_metric_families if is_open else text_string_to_metric_families
    )(text)
    values = Values()
    for family in families:
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in values, f"{key} occurs twice"
            values[key] = sample.value
    return values


def fallen(before: Values, after: Values) -> dict[Key, tuple[float, float | None]]:
    """Return the counters that have fallen or are gone, with both values."""
    return {
        key: (value, after.get(key)) for key, value in before.counters.items() if after.get(key, -1.0) < value
    }
