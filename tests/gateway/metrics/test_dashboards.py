"""The dashboard and the alerts name metrics and labels that exist, and both are what Grafana and Prometheus
take.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.grafana.dashboard import COLUMNS, PROCESS_METRICS, dashboard_json
from seqgate.gateway.durations import BOUNDS_S
from seqgate.gateway.metrics.metric import Metric, MetricKind
from seqgate.gateway.metrics.table import METRICS
from tests.support.prometheus import promtool
from tests.support.promql import used
from tests.test_links import anchors

REPOSITORY = Path(__file__).resolve().parents[3]
DASHBOARD = REPOSITORY / "deploy" / "grafana" / "seqgate.json"
PROMETHEUS = REPOSITORY / "deploy" / "prometheus"
RUNBOOK = REPOSITORY / "docs" / "observability.md"
OF_PROMETHEUS = {"up": set(), "ALERTS": {"alertname", "alertstate", "severity"}}
"""The metrics that Prometheus itself adds, and their labels."""
OF_TARGETS = {"instance", "job"}
"""The labels that Prometheus adds to each series."""


def known() -> dict[str, set[str]]:
    """Return the labels of each series that a gateway or Prometheus shows."""
    found = {name: labels | OF_TARGETS for name, labels in OF_PROMETHEUS.items()}
    for metric in (*METRICS.values(), *PROCESS_METRICS):
        for name in _series(metric):
            le = {"le"} if name.endswith("_bucket") else set()
            found[name] = {*metric.labels, *OF_TARGETS, *le}
    return found


def _series(metric: Metric) -> list[str]:
    if metric.kind is MetricKind.HISTOGRAM:
        return [f"{metric.name}{suffix}" for suffix in ("_bucket", "_sum", "_count")]
    return [metric.name]


def complaints(expression: str) -> list[str]:
    """Return the metrics and labels of an expression that do not exist."""
    series, found = known(), used(expression)
    wrong = [name for name, _ in found.metrics if name not in series]
    wrong += [
        f"{name}{{{label}}}"
        for name, labels in found.metrics
        for label in labels
        if label not in series.get(name, labels)
    ]
    every = set().union(*(series.get(name, set()) for name, _ in found.metrics))
    return wrong + sorted(found.grouped - every)


def dashboard() -> dict[str, Any]:
    found = json.loads(DASHBOARD.read_text())
    assert isinstance(found, dict)
    return found


def panels() -> Iterator[dict[str, Any]]:
    for panel in dashboard()["panels"]:
        yield panel
        yield from panel.get("panels", ())


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel.get("targets", ())]


def alerts() -> list[dict[str, Any]]:
    rules = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())
    return [rule for group in rules["groups"] for rule in group["rules"]]


class TestTheParser:
    def test_metrics_labels_and_groupings_are_found(self) -> None:
        found = used(
            'histogram_quantile(0.99, sum by (instance, le) (rate(a_bucket{api="x, y}", le!~"1"}[5m])))'
            " / on (job) b > 0.5 or absent(c{}) unless time() - d offset 5m < 1e3"
        )
        assert [name for name, _ in found.metrics] == ["a_bucket", "b", "c", "d"]
        assert found.metrics[0][1] == ("api", "le")
        assert found.grouped == {"instance", "le", "job"}

    @pytest.mark.parametrize("expression", ["nonsense(a)", "a & b", 'a{b="c'])
    def test_what_is_not_known_is_refused(self, expression: str) -> None:
        with pytest.raises(ValueError, match=r"no known function|no PromQL"):
            used(expression)

    def test_wrong_names_are_found(self) -> None:
        wrong = 'sum by (topic, colour) (rate(seqgate_topic_records_total{api="x"}[5m])) + seqgate_nothing + seqgate_append_duration_seconds'
        assert complaints(wrong) == [
            "seqgate_nothing",
            "seqgate_append_duration_seconds",
            "seqgate_topic_records_total{api}",
            "colour",
        ]
        assert complaints('sum by (le) (seqgate_append_duration_seconds_bucket{instance="x"})') == []


class TestTheDashboard:
    def test_it_is_up_to_date(self) -> None:
        assert DASHBOARD.read_text() == dashboard_json(), "run: make docs"

    @pytest.mark.parametrize("expression", queries())
    def test_a_query_names_what_exists(self, expression: str) -> None:
        assert complaints(expression) == []

    def test_every_metric_is_shown(self) -> None:
        shown = {name for expression in queries() for name, _ in used(expression).metrics}
        assert [name for name, metric in METRICS.items() if shown.isdisjoint(_series(metric))] == []

    def test_it_has_what_grafana_needs(self) -> None:
        found = dashboard()
        assert found["uid"] == "seqgate"
        assert found["title"]
        assert isinstance(found["schemaVersion"], int)
        assert "id" not in found, (
            "an id belongs to one Grafana; an import with it may replace another dashboard"
        )
        names = [variable["name"] for variable in found["templating"]["list"]]
        assert names == ["datasource", "instance", "topic", "group"]
        ids = [panel["id"] for panel in panels()]
        assert len(ids) == len(set(ids))
        for panel in panels():
            assert panel["title"]
            assert panel["type"] in {"row", "timeseries", "stat", "table"}
            if panel["type"] != "row":
                references = [target["refId"] for target in panel["targets"]]
                assert references
                assert len(references) == len(set(references))
                assert panel["datasource"]["uid"] == "${datasource}"
                assert panel["description"] or "up{" in panel["targets"][0]["expr"]

    def test_no_query_of_a_panel_is_lost(self) -> None:
        from deploy.grafana.dashboard import GRAFANA_ROWS

        assert [
            expression for row in GRAFANA_ROWS for panel in row.panels for expression, *_ in panel.queries
        ] == queries()

    def test_panels_do_not_overlap(self) -> None:
        places = [panel["gridPos"] for panel in panels()]
        for place in places:
            assert 0 <= place["x"] < place["x"] + place["w"] <= COLUMNS
        for one, other in combinations(places, 2):
            is_apart = (
                one["x"] + one["w"] <= other["x"]
                or other["x"] + other["w"] <= one["x"]
                or one["y"] + one["h"] <= other["y"]
                or other["y"] + other["h"] <= one["y"]
            )
            assert is_apart, (one, other)

    def test_variables_that_queries_use_exist(self) -> None:
        names = {variable["name"] for variable in dashboard()["templating"]["list"]}
        assert set(re.findall(r"\$\{?([a-z]\w*)", DASHBOARD.read_text())) <= names

    def test_prometheus_accepts_every_query(self, tmp_path: Path) -> None:
        rules = [
            {"record": f"query_{number}", "expr": expression.replace("$__rate_interval", "5m")}
            for number, expression in enumerate(queries())
        ]
        (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))
        assert f"{len(rules)} rules found" in promtool("check", "rules", "rules.yml", cwd=tmp_path)


class TestTheAlerts:
    def test_their_names_are_unique(self) -> None:
        names = [alert["alert"] for alert in alerts()]
        assert len(names) == len(set(names))

    @pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
    def test_an_alert_names_what_exists(self, alert: dict[str, Any]) -> None:
        assert complaints(alert["expr"]) == []

    @pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
    def test_an_alert_says_what_is_wrong_and_what_to_do(self, alert: dict[str, Any]) -> None:
        assert alert["alert"].startswith("Seqgate")
        assert alert["labels"]["severity"] in {"critical", "warning"}
        texts = alert["annotations"]
        assert texts.keys() == {"summary", "description", "runbook_url"}
        assert texts["description"].endswith(".")
        page, _, anchor = texts["runbook_url"].partition("#")
        assert REPOSITORY / page == RUNBOOK
        assert anchor == alert["alert"].lower()
        assert anchor in anchors(RUNBOOK.read_text())

    def test_the_runbook_has_no_section_of_an_alert_that_is_gone(self) -> None:
        sections = set(re.findall(r"^#+ (Seqgate\w+)$", RUNBOOK.read_text(), re.MULTILINE))
        assert sections == {alert["alert"] for alert in alerts()}

    def test_each_alert_has_a_test(self) -> None:
        tested = set(re.findall(r"Seqgate\w+", (PROMETHEUS / "alerts_test.yml").read_text()))
        assert tested == {alert["alert"] for alert in alerts()}

    def test_thresholds_of_durations_are_bounds_of_buckets(self) -> None:
        """A quantile between two bounds is a guess, so that an alert at another threshold would fire late or
        early.
        """
        for alert in alerts():
            if "histogram_quantile" in alert["expr"]:
                assert float(alert["expr"].rsplit(">", 1)[1]) in BOUNDS_S

    def test_promtool_accepts_rules_and_example(self) -> None:
        assert f"{len(alerts())} rules found" in promtool("check", "rules", "alerts.yml", cwd=PROMETHEUS)
        assert "SUCCESS" in promtool("check", "config", "prometheus.yml", cwd=PROMETHEUS)

    @pytest.mark.tier("nightly")
    def test_the_rules_fire_when_they_should(self) -> None:
        assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml", cwd=PROMETHEUS)
