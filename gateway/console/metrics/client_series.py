"""The series that clients push about themselves (KIP-714), as the gateway's metrics show them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from gateway.console.metrics.exposition import Sample

PREFIXES: Final = ("kafka_client_", "client_")
"""The beginnings of the names that the gateway gives to pushed metrics."""
INSTANCE: Final = "client_instance_id"
OF_THE_CLIENT: Final = (
    "client_id",
    INSTANCE,
    "client_software_name",
    "client_software_version",
    "group_id",
    "transactional_id",
    "client_rack",
)
"""The labels that are the same in all series of a client."""
_TOTAL: Final = "_total"
_BUCKET: Final = "_bucket"


@dataclass(slots=True)
class PushingClient:
    """A client that pushes metrics: its labels and its series."""

    labels: dict[str, str] = field(default_factory=dict)
    series: list[Sample] = field(default_factory=list)

    @property
    def instance_id(self) -> str:
        """The id that the gateway gave this instance of the client."""
        return self.labels.get(INSTANCE, "")

    def own_labels(self, sample: Sample) -> dict[str, str]:
        """Return the labels of a series that other series of the client may have with other values."""
        return {name: value for name, value in sample.labels.items() if name not in OF_THE_CLIENT}


def clients_of(text: str) -> dict[str, PushingClient]:
    """Return the clients in a gateway's metrics, by their instance ids. Buckets of histograms are left out."""
    found: dict[str, PushingClient] = {}
    for sample in _pushed(text):
        client = found.setdefault(sample.labels[INSTANCE], PushingClient())
        client.labels |= {name: sample.labels[name] for name in OF_THE_CLIENT if name in sample.labels}
        client.series.append(sample)
    return found


def _pushed(text: str) -> Iterator[Sample]:
    lines = [line for line in text.splitlines() if line.startswith(PREFIXES)]
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            if INSTANCE in sample.labels and not sample.name.endswith(_BUCKET):
                yield Sample(sample.name, sample.labels, float(sample.value))


def total_of(series: Iterable[Sample], name: str) -> float | None:
    """Return the sum of a metric over its labels; None where the client does not push it."""
    values = [sample.value for sample in series if sample.name == name]
    return sum(values) if values else None


def is_counter(name: str) -> bool:
    """Return whether a metric only grows, so that people want its growth."""
    return name.endswith(_TOTAL)


class FigureReader:
    """Reads one metric of one client again and again: the growth per second of a counter, otherwise the value."""

    def __init__(self, read: Callable[[], str], instance_id: str, name: str) -> None:
        """Prepare to read `name` from the metrics that `read` returns."""
        self._read = read
        self._instance_id = instance_id
        self._name = name
        self._before: tuple[float, float] | None = None

    def __call__(self) -> Mapping[str, float | None]:
        """Return the figure under the name of the metric."""
        client = clients_of(self._read()).get(self._instance_id)
        value = None if client is None else total_of(client.series, self._name)
        if value is None or not is_counter(self._name):
            return {self._name: value}
        before, self._before = self._before, (time.monotonic(), value)
        if before is None:
            return {self._name: None}
        passed = max(self._before[0] - before[0], 1e-3)
        return {self._name: max(0.0, value - before[1]) / passed}
