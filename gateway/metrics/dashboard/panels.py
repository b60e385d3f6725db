"""Rows and panels of the dashboard, and the PromQL of their queries."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.metrics.metric import Kind, Metric

_GATEWAYS: Final = 'instance=~"$instance"'
_VARIABLES: Final = {"topic": 'topic=~"$topic"', "group": 'group=~"$group"'}
"""The matchers of labels that the reader of the dashboard chooses."""
_WINDOW: Final = "$__rate_interval"


class Look(enum.StrEnum):
    """How a panel shows its values, by Grafana's word for it."""

    LINES = "timeseries"
    NUMBER = "stat"
    TABLE = "table"


class Query(NamedTuple):
    """A query of a panel: PromQL, the name of its lines, and the metrics that it reads."""

    expression: str
    legend: str
    metrics: tuple[Metric, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel. `unit` is Grafana's id of a unit. A value from `bad_from` on is red, and where `is_low_bad`, a value below it."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    look: Look = Look.LINES
    width: int = 8
    height: int = 7
    is_stacked: bool = False
    bad_from: float | None = None
    is_low_bad: bool = False
    note: str = ""

    @property
    def description(self) -> str:
        """Return the note, and what the table says of each metric."""
        metrics = {metric: None for query in self.queries for metric in query.metrics}
        docs = [f"{metric.name}: {metric.doc}" for metric in metrics]
        return "\n\n".join([self.note, *docs] if self.note else docs)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a title; Grafana loads those of a folded row when the reader opens it."""

    title: str
    panels: tuple[Panel, ...]
    is_folded: bool = True


def selected(metric: Metric, where: str = "", suffix: str = "") -> str:
    """Return the selector of a metric, for the chosen gateways, topics and groups. `where` is one more matcher."""
    chosen = (_VARIABLES[label] for label in metric.labels if label in _VARIABLES)
    return f"{metric.name}{suffix}{{{', '.join([_GATEWAYS, *chosen, *([where] if where else [])])}}}"


def now(metric: Metric, *by: str, legend: str = "", where: str = "") -> Query:
    """Return the present value of a gauge or a counter, summed by gateway and labels."""
    return Query(f"{_sum_by(by)} ({selected(metric, where)})", _legend(by, legend), (metric,))


def each_second(metric: Metric, *by: str, legend: str = "", where: str = "") -> Query:
    """Return by how much a counter grows each second. Of a histogram it is the number of durations."""
    suffix = "_count" if metric.kind is Kind.HISTOGRAM else ""
    expression = f"{_sum_by(by)} (rate({selected(metric, where, suffix)}[{_WINDOW}]))"
    return Query(expression, _legend(by, legend), (metric,))


def quantile(share: float, metric: Metric, *by: str, where: str = "") -> Query:
    """Return the duration that `share` of all durations of a histogram do not exceed."""
    buckets = f"{_sum_by((*by, 'le'))} (rate({selected(metric, where, '_bucket')}[{_WINDOW}]))"
    legend = _legend(by, f"p{share * 100:g}")
    return Query(f"histogram_quantile({share:g}, {buckets})", legend, (metric,))


def over_all(function: str, metric: Metric, legend: str = "") -> Query:
    """Return one number for all chosen gateways, such as the `sum` or the `max` of a gauge."""
    return Query(f"{function}({selected(metric)})", legend or metric.name, (metric,))


def raw(expression: str, legend: str, *metrics: Metric) -> Query:
    """Return a query written by hand. `metrics` are those that the expression reads."""
    return Query(expression, legend, metrics)


def lines(
    title: str, *queries: Query, unit: str = "short", is_stacked: bool = False, width: int = 8, note: str = ""
) -> Panel:
    """Return a panel of lines over time."""
    return Panel(title, queries, unit, width=width, is_stacked=is_stacked, note=note)


def number(
    title: str, query: Query, *, bad_from: float, unit: str = "short", is_low_bad: bool = False
) -> Panel:
    """Return a panel with one large number, green or red."""
    return Panel(
        title, (query,), unit, Look.NUMBER, width=4, height=4, bad_from=bad_from, is_low_bad=is_low_bad
    )


def table(title: str, query: Query, unit: str = "short", width: int = 24, note: str = "") -> Panel:
    """Return a panel with a line of text for each series."""
    return Panel(title, (query,), unit, Look.TABLE, width=width, note=note)


def _sum_by(labels: Iterable[str]) -> str:
    return f"sum by ({', '.join(('instance', *labels))})"


def _legend(by: Iterable[str], text: str) -> str:
    words = ["{{instance}}", *(f"{{{{{label}}}}}" for label in by), *([text] if text else [])]
    return " ".join(words)
