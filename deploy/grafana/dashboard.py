"""Makes seqgate.json, the dashboard for Grafana, from the table of metrics: `python
deploy/grafana/dashboard.py > deploy/grafana/seqgate.json` (`make docs`).

The file has the rows and panels with the PromQL of their queries first, then the JSON that Grafana imports. A
panel takes its description from the docs of its metrics, so that both say the same.
"""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, NamedTuple

from seqgate.gateway.metrics.metric import Metric, MetricKind, Subject
from seqgate.gateway.metrics.subjects import groups, requests, storage

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
    """A panel. `unit` is Grafana's id of a unit. A value from `bad_from` on is red, and where `is_low_bad`, a
    value below it.
    """

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
    """Return the selector of a metric, for the chosen gateways, topics and groups. `where` is one more
    matcher.
    """
    chosen = (_VARIABLES[label] for label in metric.labels if label in _VARIABLES)
    return f"{metric.name}{suffix}{{{', '.join([_GATEWAYS, *chosen, *([where] if where else [])])}}}"


def now(metric: Metric, *by: str, legend: str = "", where: str = "") -> Query:
    """Return the present value of a gauge or a counter, summed by gateway and labels."""
    return Query(f"{_sum_by(by)} ({selected(metric, where)})", _legend(by, legend), (metric,))


def each_second(metric: Metric, *by: str, legend: str = "", where: str = "") -> Query:
    """Return by how much a counter grows each second. Of a histogram it is the number of durations."""
    suffix = "_count" if metric.kind is MetricKind.HISTOGRAM else ""
    expression = f"{_sum_by(by)} (rate({selected(metric, where, suffix)}[{_WINDOW}]))"
    return Query(expression, _legend(by, legend), (metric,))


def quantile(share: float, metric: Metric, *by: str, where: str = "") -> Query:
    """Return the duration that `share` of all durations of a histogram do not exceed."""
    buckets = f"{_sum_by((*by, 'le'))} (rate({selected(metric, where, '_bucket')}[{_WINDOW}]))"
    legend = _legend(by, f"p{share * 100:g}")
    return Query(f"histogram_quantile({share:g}, {buckets})", legend, (metric,))


def quantiles(metric: Metric, *shares: float, where: str = "") -> Iterator[Query]:
    """Yield a quantile for each share."""
    return (quantile(share, metric, where=where) for share in shares)


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
    return " ".join(["{{instance}}", *(f"{{{{{label}}}}}" for label in by), *([text] if text else [])])


# The rows that show what the gateway does for its clients: storage, limits, the bucket, and the process.

process: Final = Subject("The process")
CPU: Final = process.counter("process_cpu_seconds_total", "CPU time of the process.")
RESIDENT: Final = process.gauge("process_resident_memory_bytes", "Memory of the process.")
HANDLES: Final = process.gauge("process_open_fds", "Open file handles of the process.")
MOST_HANDLES: Final = process.gauge(
    "process_max_fds", "The limit of file handles of the process (RLIMIT_NOFILE)."
)
COLLECTIONS: Final = process.counter(
    "python_gc_collections_total", "Runs of Python's garbage collection.", "generation"
)
PROCESS_METRICS: Final = process.metrics
"""The metrics of every Python process that the dashboard shows; prometheus-client adds them to the table's.
"""

_OF_LIMIT: Final = f"{selected(requests.USED)} / on (instance, setting) {selected(requests.MOST)}"

STORAGE: Final = Row(
    "Storage",
    (
        lines("Free bytes of the disk", now(storage.FREE), unit="bytes"),
        lines(
            "Refusals for want of room",
            each_second(storage.DISK_REFUSALS, legend="batches"),
            now(storage.SHORT, legend="is short"),
            unit="ops",
        ),
        lines(
            "Flush rounds",
            each_second(storage.FLUSH, legend="rounds"),
            each_second(storage.FLUSH_FAILURES, legend="failures"),
            unit="ops",
        ),
        lines("Requests that wait for a flush", now(storage.FLUSH_WAITING)),
        lines("Recompressed batches", each_second(storage.RECOMPRESSED), unit="ops"),
        lines("Segments deleted by retention", each_second(storage.DELETED, "reason"), unit="ops"),
        lines("Bytes deleted by retention", each_second(storage.DELETED_BYTES, "reason"), unit="Bps"),
        lines("Segments closed for their age", each_second(storage.ROLLED), unit="ops"),
        lines(
            "Compaction: records",
            each_second(storage.CLEANED_READ, legend="read"),
            each_second(storage.CLEANED_KEPT, legend="kept"),
            unit="ops",
        ),
        lines("Compaction: share of the time", each_second(storage.CLEANING_TIME), unit="percentunit"),
        lines(
            "Compaction: runs",
            each_second(storage.CLEANED, legend="runs"),
            each_second(storage.CLEANING_FAILED, legend="failures"),
            now(storage.UNCLEANABLE, legend="partitions given up"),
        ),
        lines("Old blocks read", each_second(storage.COLD_BLOCKS), unit="ops"),
        lines("Old blocks that fetches wait for", now(storage.COLD_WAITING)),
        lines("Old blocks kept in the page cache", now(storage.COLD_KEPT)),
        lines("Damage", now(storage.DAMAGED, legend="damaged"), now(storage.CUT, legend="cut")),
    ),
)

LIMITS: Final = Row(
    "Limits",
    (
        lines(
            "Used share of each limit",
            raw(_OF_LIMIT, "{{instance}} {{setting}}", requests.USED, requests.MOST),
            unit="percentunit",
            width=12,
            note="docs/limits.md says what happens at each limit.",
        ),
        lines("Used", now(requests.USED, "setting"), width=12),
        lines("Fetch sessions that made room", each_second(requests.EVICTED_SESSIONS), unit="ops"),
    ),
)

BUCKET: Final = Row(
    "Bucket and cluster",
    (
        lines("Gateways of the cluster", now(storage.GATEWAYS)),
        lines(
            "What waits for the bucket",
            now(storage.UNWRITTEN, legend="unwritten records"),
            now(storage.WAL_BYTES, legend="write-ahead log"),
            unit="bytes",
        ),
        lines(
            "Is something wrong",
            now(storage.BEHIND, legend="is behind"),
            now(storage.UPLOAD_FAILED, legend="upload failed"),
        ),
        lines("Calls", each_second(storage.CALLS, "call"), unit="ops"),
        lines("Failed calls", each_second(storage.FAILURES), unit="ops"),
        lines("Put", *quantiles(storage.PUT_TIME, 0.5, 0.99), unit="s"),
        lines(
            "Bytes",
            each_second(storage.UP, legend="sent"),
            each_second(storage.DOWN, legend="received"),
            unit="Bps",
        ),
        lines(
            "Price of the calls in a day",
            raw(
                f"sum by (instance) (increase({selected(storage.DOLLARS)}[1d]))",
                "{{instance}}",
                storage.DOLLARS,
            ),
            unit="currencyUSD",
        ),
        lines("Objects of the write-ahead log", now(storage.WAL_OBJECTS)),
        lines(
            "Blocks read into the cache",
            each_second(storage.BUCKET_FETCHED, legend="fetched"),
            each_second(storage.WAITED, legend="waited for"),
            unit="ops",
        ),
        lines("Bytes evicted from the cache", each_second(storage.EVICTED), unit="Bps"),
        lines("Size of the cache", now(storage.CACHED), unit="bytes"),
    ),
)

PROCESS: Final = Row(
    "Process",
    (
        lines(
            "CPU",
            each_second(CPU),
            unit="percentunit",
            note="1 is a whole core, and the most that one gateway uses.",
        ),
        lines("Memory", now(RESIDENT), unit="bytes"),
        lines("File handles", now(HANDLES, legend="open"), now(MOST_HANDLES, legend="limit")),
        lines("Garbage collections", each_second(COLLECTIONS, "generation"), unit="ops"),
        lines("Uptime", now(requests.UPTIME), unit="s"),
        lines(
            "Certificates expire in",
            raw(
                f"{selected(requests.CERTIFICATE)} - time()",
                "{{instance}} {{listener}}",
                requests.CERTIFICATE,
            ),
            unit="s",
        ),
    ),
)

MACHINERY_ROWS: Final = (STORAGE, LIMITS, BUCKET, PROCESS)


# The rows that show what clients do: the overview, throughput, latency, producers, groups and transactions.

OVERVIEW: Final = Row(
    "Overview: what is wrong",
    (
        number(
            "Gateways that do not answer",
            raw('count(up{instance=~"$instance"} == 0) or vector(0)', "down"),
            bad_from=1,
        ),
        number(
            "Gateways that are not ready",
            raw(f"count({selected(requests.READY)} == 0) or vector(0)", "not ready", requests.READY),
            bad_from=1,
        ),
        number("Offline partitions", over_all("sum", storage.OFFLINE), bad_from=1),
        number("Disks that are short", over_all("sum", storage.SHORT), bad_from=1),
        number(
            "Damaged or cut stretches",
            raw(
                f"sum({selected(storage.DAMAGED)}) + sum({selected(storage.CUT)})",
                "stretches",
                storage.DAMAGED,
                storage.CUT,
            ),
            bad_from=1,
        ),
        number("Flushes that failed", over_all("sum", storage.FLUSH_FAILURES), bad_from=1),
        number(
            "Refused batches, last hour",
            raw(
                f"sum(increase({selected(groups.REFUSED_BATCHES)}[1h])) or vector(0)",
                "refused",
                groups.REFUSED_BATCHES,
            ),
            bad_from=1,
        ),
        number("Largest lag", over_all("max", groups.LAG), bad_from=100_000),
        number("Oldest transaction", over_all("max", groups.OLDEST), unit="s", bad_from=600),
        number(
            "Nearest limit",
            raw(f"max({_OF_LIMIT})", "used", requests.USED, requests.MOST),
            unit="percentunit",
            bad_from=0.9,
        ),
        number("Fewest producer ids left", over_all("min", groups.IDS_LEFT), bad_from=50, is_low_bad=True),
        number(
            "First certificate expires in",
            raw(f"min({selected(requests.CERTIFICATE)}) - time()", "certificate", requests.CERTIFICATE),
            unit="s",
            bad_from=14 * 86_400,
            is_low_bad=True,
        ),
        table(
            "Alerts",
            raw('ALERTS{alertname=~"Seqgate.*", alertstate="firing"}', "{{alertname}} {{instance}}"),
            width=16,
            note="The alerts of deploy/prometheus/alerts.yml that fire now. docs/observability.md says what "
            "to do.",
        ),
        table("Gateways", raw(selected(requests.NODE), "{{instance}}", requests.NODE), width=8),
    ),
    is_folded=False,
)

THROUGHPUT: Final = Row(
    "Throughput",
    (
        lines("Records in", each_second(storage.RECORDS, "topic"), unit="ops", is_stacked=True),
        lines("Bytes in", each_second(storage.BYTES, "topic"), unit="Bps", is_stacked=True),
        lines("Bytes out", each_second(storage.TOPICS_FETCHED, "topic"), unit="Bps", is_stacked=True),
        lines("Requests", each_second(requests.REQUESTS, "api"), unit="reqps", is_stacked=True),
        lines("Connections", now(requests.CONNECTIONS)),
        lines(
            "Refused clients",
            each_second(requests.REFUSED_CONNECTIONS, legend="refused connections"),
            each_second(requests.FAILED_LOGINS, legend="failed logins"),
            each_second(requests.DROPPED_READERS, legend="dropped readers"),
            unit="ops",
        ),
        lines("Size of logs", now(storage.SIZE, "topic"), unit="bytes", is_stacked=True),
        lines("Open partitions", now(storage.OPEN, "topic"), is_stacked=True),
        lines(
            "Topics and partitions",
            now(storage.TOPICS, legend="topics"),
            now(storage.PARTITIONS, legend="partitions"),
            now(storage.LED, legend="led here"),
            now(storage.OFFLINE, legend="offline"),
        ),
    ),
    is_folded=False,
)

LATENCY: Final = Row(
    "Latency",
    (
        lines("Produce", *quantiles(requests.DURATION, 0.5, 0.99, 0.999, where='api="Produce"'), unit="s"),
        lines(
            "Fetch",
            *quantiles(requests.DURATION, 0.5, 0.99, where='api="Fetch"'),
            unit="s",
            note="A Fetch waits for records up to fetch.max.wait.ms of its client, so its time tells little "
            "while no records come.",
        ),
        lines(
            "Other requests, p99",
            quantile(0.99, requests.DURATION, "api", where='api!~"Produce|Fetch"'),
            unit="s",
        ),
        lines("Append", *quantiles(storage.APPEND, 0.5, 0.99), unit="s"),
        lines("Flush round", *quantiles(storage.FLUSH, 0.5, 0.99), unit="s"),
        lines("Delay of the event loop", *quantiles(requests.DELAY, 0.5, 0.99), unit="s"),
    ),
    is_folded=False,
)

PRODUCERS: Final = Row(
    "Producers and sequences",
    (
        lines("Refused batches by error", each_second(groups.REFUSED_BATCHES, "error"), unit="ops"),
        lines("Duplicate batches", each_second(groups.DUPLICATES), unit="ops"),
        lines("Known producers", now(groups.KNOWN)),
        lines(
            "Producers that came to a limit",
            each_second(groups.EVICTED, legend="evicted"),
            each_second(groups.EXPIRED, legend="expired"),
            each_second(groups.REFUSED, legend="refused"),
            unit="ops",
        ),
        lines("Producer names", now(groups.NAMES)),
        lines(
            "Deduplication by name",
            each_second(groups.NAMES_DROPPED, legend="records dropped"),
            each_second(groups.NAMES_EVICTED, legend="names evicted"),
            each_second(groups.NAMES_EXPIRED, legend="names expired"),
            each_second(groups.NAMES_REFUSED, legend="names refused"),
            unit="ops",
        ),
    ),
)

PRODUCER_IDS: Final = Row(
    "Producer ids",
    (
        lines("Ids left", now(groups.IDS_LEFT, legend="left"), now(groups.BLOCK_SIZE, legend="a block")),
        lines("Claimed blocks", now(groups.BLOCKS)),
        lines("Failed claims", each_second(groups.FAILED_CLAIMS), unit="ops"),
    ),
)

GROUPS: Final = Row(
    "Groups and lag",
    (
        lines("Lag", now(groups.LAG, "group"), width=16),
        lines("Groups", now(groups.GROUPS, "type", "state"), is_stacked=True),
        lines(
            "Members",
            now(groups.MEMBERS, legend="members"),
            now(groups.SHARE_SESSIONS, legend="share sessions"),
        ),
        lines("Committed offsets", now(groups.OFFSETS)),
        lines("Delayed records", now(storage.WAITING)),
        lines("Partitions over a backlog quota", now(storage.REFUSING)),
        lines("Requests that wait for a backlog", now(groups.HELD)),
        lines("Bytes that wait for a backlog", now(groups.HELD_BYTES), unit="bytes"),
        lines("Requests that waited in vain", each_second(groups.HELD_TIMED_OUT), unit="ops"),
        lines("Batches refused for a backlog", each_second(groups.BACKLOG_REFUSALS), unit="ops"),
        lines("Dead letters", each_second(groups.LETTERS), unit="ops"),
        lines("Records that died without a letter", each_second(groups.LOST_LETTERS), unit="ops"),
        lines("Partitions with dead letters to write", now(groups.WRITING_LETTERS)),
    ),
)

TRANSACTIONS: Final = Row(
    "Transactions",
    (
        lines("Oldest open transaction", now(groups.OLDEST), unit="s"),
        lines("Transactions", now(groups.OPEN, legend="open"), now(groups.ENDING, legend="ending")),
        lines("Transactional ids", now(groups.IDS)),
        lines("Timed-out transactions", each_second(groups.TIMED_OUT), unit="ops"),
    ),
)

CLIENTS: Final = Row(
    "Metrics of clients",
    (
        lines(
            "Clients and series",
            now(requests.CLIENTS, legend="clients"),
            now(requests.SERIES, legend="series"),
            note="What clients push comes out as kafka_client_... and client_... (docs/client-metrics.md).",
        ),
        lines(
            "Pushes",
            each_second(requests.PUSHES, legend="accepted"),
            each_second(requests.REFUSED, "error"),
            each_second(requests.DROPPED, legend="dropped points"),
            unit="ops",
        ),
    ),
)

TRAFFIC_ROWS: Final = (OVERVIEW, THROUGHPUT, LATENCY, PRODUCERS, PRODUCER_IDS, GROUPS, TRANSACTIONS, CLIENTS)


# The dashboard as JSON, as Grafana imports it.

UID: Final = "seqgate"
SCHEMA_VERSION: Final = 39
"""The version of Grafana's dashboard format: that of Grafana 10.4. Later releases migrate the dashboard when
they load it.
"""
COLUMNS: Final = 24
GRAFANA_ROWS: Final = (*TRAFFIC_ROWS, *MACHINERY_ROWS)
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_HIDDEN: Final = ("Time", "__name__", "alertstate", "job", "Value")
"""The columns that a table leaves out."""


def dashboard_json() -> str:
    """Return the text of deploy/grafana/seqgate.json."""
    return json.dumps(_dashboard(), indent=2) + "\n"


def _dashboard() -> dict[str, Any]:
    return {
        "uid": UID,
        "title": "Seqgate",
        "description": "A Kafka-compatible gateway. docs/observability.md says what to watch.",
        "tags": ["seqgate", "kafka"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": _variables()},
        "panels": list(_placed(GRAFANA_ROWS)),
    }


def _variables() -> list[dict[str, Any]]:
    in_gateways = '{instance=~"$instance"}'
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        _variable("instance", "Gateway", requests.UPTIME.name, every=None),
        _variable("topic", "Topic", storage.RECORDS.name + in_gateways, every=".*"),
        _variable("group", "Group", groups.LAG.name + in_gateways, every=".*"),
    ]


def _variable(label: str, title: str, series: str, every: str | None) -> dict[str, Any]:
    """Return a variable with the values of a label. `every` is the expression for all values; None joins the
    values themselves.
    """
    return {
        "name": label,
        "label": title,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({series}, {label})", "refId": label},
        "definition": f"label_values({series}, {label})",
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": every,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _placed(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield the rows and panels, each with its id and its place."""
    ids, y = count(1), 0
    for row in rows:
        head = {"id": next(ids), "type": "row", "title": row.title, "collapsed": row.is_folded}
        head["gridPos"] = _place(0, y, COLUMNS, 1)
        panels = list(_flow(row.panels, y + 1, ids))
        yield {**head, "panels": panels if row.is_folded else []}
        if not row.is_folded:
            yield from panels
        y = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)


def _flow(panels: Iterable[Panel], y: int, ids: Iterator[int]) -> Iterator[dict[str, Any]]:
    """Yield the panels from left to right, in lines that begin at `y`."""
    x = tallest = 0
    for panel in panels:
        if x + panel.width > COLUMNS:
            x, y, tallest = 0, y + tallest, 0
        place = _place(x, y, panel.width, panel.height)
        yield {"id": next(ids), **_panel(panel), "gridPos": place}
        x, tallest = x + panel.width, max(tallest, panel.height)


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": panel.look.value,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, **_LOOKS[panel.look](panel)}, "overrides": []},
        "options": _OPTIONS[panel.look],
        "targets": list(_targets(panel)),
    }
    if panel.look is Look.TABLE:
        hidden = {"excludeByName": dict.fromkeys(_HIDDEN, True)}
        found["transformations"] = [{"id": "organize", "options": hidden}]
    return found


def _targets(panel: Panel) -> Iterator[dict[str, Any]]:
    is_instant = panel.look is not Look.LINES
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        yield {
            "refId": letter,
            "datasource": _SOURCE,
            "editorMode": "code",
            "expr": query.expression,
            "legendFormat": query.legend,
            "format": "table" if panel.look is Look.TABLE else "time_series",
            "instant": is_instant,
            "range": not is_instant,
        }


def _lines(panel: Panel) -> dict[str, Any]:
    stacking = {"mode": "normal" if panel.is_stacked else "none", "group": "A"}
    custom = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "stacking": stacking}
    return {"min": 0, "custom": custom}


def _number(panel: Panel) -> dict[str, Any]:
    below, above = ("red", "green") if panel.is_low_bad else ("green", "red")
    steps = [{"color": below, "value": None}, {"color": above, "value": panel.bad_from}]
    return {
        "color": {"mode": "thresholds"},
        "thresholds": {"mode": "absolute", "steps": steps},
        "noValue": "none",
    }


def _table(_: Panel) -> dict[str, Any]:
    return {"custom": {"align": "auto", "filterable": True}, "noValue": "none"}


_LOOKS: Final = {Look.LINES: _lines, Look.NUMBER: _number, Look.TABLE: _table}
_OPTIONS: Final[Mapping[Look, dict[str, Any]]] = {
    Look.LINES: {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    Look.NUMBER: {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "background",
        "graphMode": "none",
        "textMode": "value",
    },
    Look.TABLE: {"showHeader": True, "cellHeight": "sm"},
}


if __name__ == "__main__":
    sys.stdout.write(dashboard_json())
