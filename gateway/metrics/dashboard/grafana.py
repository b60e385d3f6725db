"""The dashboard as JSON, as Grafana imports it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Final

from gateway.metrics.dashboard import machinery, traffic
from gateway.metrics.dashboard.panels import Look, Panel, Row
from gateway.metrics.subjects import groups, node, topics

UID: Final = "seqgate"
SCHEMA_VERSION: Final = 39
"""The version of Grafana's dashboard format: that of Grafana 10.4. Later releases migrate the dashboard when they load it."""
COLUMNS: Final = 24
ROWS: Final = (*traffic.ROWS, *machinery.ROWS)
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
        "panels": list(_placed(ROWS)),
    }


def _variables() -> list[dict[str, Any]]:
    in_gateways = '{instance=~"$instance"}'
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        _variable("instance", "Gateway", node.UPTIME.name, every=None),
        _variable("topic", "Topic", topics.RECORDS.name + in_gateways, every=".*"),
        _variable("group", "Group", groups.LAG.name + in_gateways, every=".*"),
    ]


def _variable(label: str, title: str, series: str, every: str | None) -> dict[str, Any]:
    """Return a variable with the values of a label. `every` is the expression for all values; None joins the values themselves."""
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
