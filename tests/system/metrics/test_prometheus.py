"""A real Prometheus scrapes a real gateway, in both text formats, and evaluates the queries of the dashboard
and the alerts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from kafka import KafkaConsumer, KafkaProducer

from tests.gateway.metrics.test_dashboards import PROMETHEUS, queries
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.group_members import know_topic
from tests.support.prometheus import Prometheus
from tests.support.promql import used

RECORDS = 25
CONFIG = """
global: {{scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}}
rule_files: ['{rules}']
scrape_configs:
  - job_name: seqgate
    static_configs: [{{targets: [{targets}]}}]
"""


class _AsPlainText(BaseHTTPRequestHandler):
    """Passes scrapes on with an Accept header for the plain text format, because this Prometheus always asks
    for OpenMetrics.
    """

    gateway = ""
    content_types: set[str]

    def do_GET(self) -> None:
        request = Request(f"http://{self.gateway}{self.path}", headers={"Accept": "text/plain;version=0.0.4"})
        with build_opener(ProxyHandler({})).open(request, timeout=30) as answer:
            body, content_type = answer.read(), answer.headers["Content-Type"]
        self.content_types.add(content_type.partition(";")[0])
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def metrics_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the metrics listener of a gateway with a topic and a group."""
    address = f"127.0.0.1:{free_port()}"
    settings = {"seqgate.metrics.listener": address}
    with GatewayProcess(tmp_path_factory.mktemp("metrics") / "data", settings=settings) as gateway:
        producer = KafkaProducer(bootstrap_servers=gateway.bootstrap)
        for number in range(RECORDS):
            producer.send("orders", b"%d" % number)
        producer.close()
        consumer = KafkaConsumer(
            "orders", bootstrap_servers=gateway.bootstrap, group_id="billing", auto_offset_reset="earliest"
        )
        know_topic(consumer, "orders")
        while not consumer.poll(timeout_ms=1000):
            pass
        consumer.commit()
        consumer.close()
        yield address


@pytest.fixture(scope="module")
def plain_address(metrics_address: str) -> Iterator[str]:
    """The address that answers with the same metrics in the plain text format."""
    handler = type("Handler", (_AsPlainText,), {"gateway": metrics_address, "content_types": set()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
        assert handler.content_types <= {"text/plain"}  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def prometheus(
    metrics_address: str, plain_address: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    targets = f"'{metrics_address}', '{plain_address}'"
    config = CONFIG.format(rules=PROMETHEUS / "alerts.yml", targets=targets)
    with Prometheus(tmp_path_factory.mktemp("prometheus") / "files", config) as server:
        server.await_that(lambda: len(_scraped(server)) == 2)
        yield server


def _scraped(server: Prometheus) -> list[dict[str, Any]]:
    """Return the targets that were scraped at least twice, so that rates exist."""
    scrapes = server.query('count_over_time(seqgate_topic_records_total{topic="orders"}[5m]) >= 2')
    return [target for target in server.targets() if target["lastScrape"]] if len(scrapes) == 2 else []


def test_both_text_formats_are_scraped_without_an_error(
    prometheus: Prometheus, metrics_address: str, plain_address: str
) -> None:
    assert [(target["health"], target["lastError"]) for target in prometheus.targets()] == [("up", "")] * 2
    found = prometheus.query('seqgate_topic_records_total{topic="orders"}')
    values = {series["metric"]["instance"]: series["value"][1] for series in found}
    assert values == dict.fromkeys((metrics_address, plain_address), str(RECORDS))
    assert prometheus.query("scrape_samples_scraped - scrape_samples_post_metric_relabeling != 0") == []


def test_types_and_docs_arrive_in_both_formats(
    prometheus: Prometheus, metrics_address: str, plain_address: str
) -> None:
    for instance in (metrics_address, plain_address):
        fields = {"match_target": f'{{instance="{instance}"}}', "metric": "seqgate_request_duration_seconds"}
        (found,) = prometheus.get("targets/metadata", fields)
        assert found["type"] == "histogram"
        assert found["help"].startswith("Time from the whole request")


@pytest.mark.parametrize("expression", queries())
def test_a_query_of_the_dashboard_finds_what_the_gateway_shows(
    prometheus: Prometheus, expression: str
) -> None:
    asked = expression.replace("$__rate_interval", "5m")
    for variable in ("$instance", "$topic", "$group"):
        asked = asked.replace(variable, ".*")
    found = prometheus.query(asked)
    shown = set(prometheus.get("label/__name__/values")) - {"ALERTS"}
    assert found or not {name for name, _ in used(expression).metrics} <= shown


def test_the_alerts_are_evaluated_and_none_fires(prometheus: Prometheus) -> None:
    def evaluated() -> list[dict[str, Any]]:
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        return [] if any(rule["health"] == "unknown" for rule in rules) else rules

    for rule in prometheus.await_that(evaluated):
        assert (rule["name"], rule["health"], rule.get("lastError", "")) == (rule["name"], "ok", "")
        assert rule["state"] != "firing", rule["name"]
