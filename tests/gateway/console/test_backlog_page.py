"""The backlog of a topic's groups, and topics with limits."""

from __future__ import annotations

import re

from seqgate.gateway.console.pages.backlog import limited
from tests.compat.clients.test_backlog_quota import reading
from tests.compat.topics import fresh_topic
from tests.support.console_client import ConsoleClient, text_of
from tests.support.gateway_process import GatewayProcess
from tests.support.producing import send


def test_topics_with_limits_are_found_by_their_settings(
    unmeasured: ConsoleClient, measured_gateway: GatewayProcess
) -> None:
    free = fresh_topic(measured_gateway.bootstrap, "free")
    tight = fresh_topic(measured_gateway.bootstrap, "tight", configs={"backlog.quota.bytes": "2048"})
    page = unmeasured.page("/backlog")
    assert f">{tight}</a>" in page
    assert f">{free}</a>" not in page
    assert "2.0 KiB" in text_of(page)


def test_limits_of_a_cluster_that_knows_none() -> None:
    assert limited({"orders": {}, "flights": {"backlog.quota.bytes": "-1"}}) == []


def test_the_backlog_of_a_topic(
    measured: ConsoleClient, unmeasured: ConsoleClient, measured_gateway: GatewayProcess
) -> None:
    topic = fresh_topic(
        measured_gateway.bootstrap, "orders", partitions=2, configs={"backlog.quota.bytes": "1000000"}
    )
    for sequence in range(3):
        assert send(measured_gateway.bootstrap, topic, 77, sequence)[0] == 0
    with reading(measured_gateway.bootstrap, topic) as reader:
        reader.commit(1)
        page = measured.page(f"/backlog?topic={topic}")
        text = text_of(page)
        assert f"/groups/view?group={reader.group}" in page
        assert "at offset 1," in text
        assert "no group reads it" in text
        assert "producers wait" in text
        rows = measured.data(f"/api/backlog/partitions?topic={topic}")["rows"]
        assert rows["0"]["bytes"] > rows["1"]["bytes"] == 0
        share = round(100 * rows["0"]["bytes"] / 1_000_000)
        assert re.search(rf"{topic} .* {share} % producer_request_hold", text_of(measured.page("/backlog")))
        measured.data(f"/api/backlog?topic={topic}")
        measured.console.sampler.sample()
        series = measured.data(f"/api/backlog?topic={topic}")["series"]
        assert series["backlog_bytes"][-1] == rows["0"]["bytes"]
        # without --metrics the brokers tell the same
        found = unmeasured.data(f"/api/backlog/partitions?topic={topic}")["rows"]
        assert {key: row["bytes"] for key, row in found.items()} == {
            key: row["bytes"] for key, row in rows.items()
        }
    assert "there is no topic nowhere" in text_of(measured.page("/backlog?topic=nowhere"))
