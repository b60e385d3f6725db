"""The page of the cluster: one gateway alone, and two of them with moves, a drain and a failover."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.console.metrics.gateways import GatewayRow, Summary
from seqgate.gateway.console.page import Visit
from tests.support.console_client import ConsoleClient, console_client, text_of
from tests.support.gateway_cluster import GatewayCluster, await_true, leaders_at
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.metrics_stub import metrics_stub

TOPIC = "moved"
PARTITIONS = 4


def test_a_gateway_alone_says_how_to_get_a_cluster(
    console: ConsoleClient, shared_gateway: GatewayProcess
) -> None:
    page = text_of(console.page("/cluster"))
    assert f"{shared_gateway.bootstrap} – live controller" in page
    assert "One node serves alone" in page
    assert 'href="/manual/cluster"' in console.page("/cluster")
    assert "Move a partition" not in page
    assert "Drain" not in page


def test_settings_that_somebody_has_set_come_first(console: ConsoleClient) -> None:
    page = console.page("/cluster/settings")
    assert page.index(">group.initial.rebalance.delay.ms<") < page.index(">auto.create.topics.enable<")
    found = text_of(console.page("/cluster/settings?filter=retention.hours"))
    assert "log.retention.hours" in found
    assert "compression" not in found
    assert "No setting matches" in text_of(console.page("/cluster/settings?filter=nothing-like-it"))
    assert "there is no broker 77" in text_of(console.page("/cluster/settings?node=77"))


def test_settings_while_the_first_broker_has_ended(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "broker_ids", lambda _: [0, 1])
    assert ">auto.create.topics.enable<" in console.page("/cluster/settings")
    ended = console.page("/cluster/settings?node=0")
    assert "Broker 0 does not run" in text_of(ended)
    assert 'href="/cluster/settings?node=1"' in ended
    wrong = {"node": "default", "name": "log.retention.hour", "value": "1"}
    assert "the nearest name is log.retention.hours" in console.send("/cluster/settings", wrong, status=400)
    refused = console.send("/cluster/settings", {**wrong, "node": "0"}, status=400)
    assert "Nothing is changed: broker 0 does not run" in text_of(refused)


def test_a_setting_is_changed_and_removed_in_place(console: ConsoleClient) -> None:
    node = {"node": "1", "name": "log.retention.ms", "filter": "log.retention.ms"}
    asked = text_of(console.send("/cluster/settings", {**node, "value": "86400000"}))
    assert "Change log.retention.ms of broker 1?" in asked
    assert asked.index("log.retention.ms not set") < asked.index("86400000")
    done = text_of(console.confirmed("/cluster/settings", {**node, "value": "86400000"}))
    assert "log.retention.ms is changed." in done
    assert "86400000 (1 d) set for this broker" in done
    gone = text_of(console.confirmed("/cluster/settings", {**node, "unset": "yes"}))
    assert "log.retention.ms is removed." in gone
    assert "86400000" not in gone


def test_a_setting_of_all_brokers(console: ConsoleClient) -> None:
    every = {"node": "default", "name": "log.retention.bytes"}
    assert "1000000" in text_of(console.confirmed("/cluster/settings", {**every, "value": "1000000"}))
    assert "1000000 (976.6 KiB) set for all brokers" in text_of(
        console.page("/cluster/settings?filter=log.retention.bytes")
    )
    console.confirmed("/cluster/settings", {**every, "unset": "yes"})
    assert "log.retention.bytes" not in text_of(console.page("/cluster/settings?node=default"))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"name": "log.retention.hour", "value": "1"}, "the nearest name is log.retention.hours"),
        ({"name": "", "value": "1"}, "the name of the setting is empty"),
        ({"name": "log.retention.ms", "value": "<b>"}, "Nothing is changed:"),
        ({"name": "log.dirs", "value": "/tmp"}, "Nothing is changed:"),
    ],
)
def test_a_refused_setting_is_told(console: ConsoleClient, fields: dict[str, str], sentence: str) -> None:
    page = console.send("/cluster/settings", {"node": "1", "confirmed": "yes", **fields}, status=400)
    assert sentence in text_of(page)
    assert "<b>" not in page


def test_no_page_has_a_secret(console: ConsoleClient) -> None:
    for name in ("ssl.key.password", "listener.name.internal.ssl.key.password"):
        fields = {"node": "default", "name": name, "value": "hunter2"}
        page = console.send("/cluster/settings", fields, status=400)
        assert f"{name} is secret" in text_of(page)
        assert "hunter2" not in page


def test_a_wrong_token_changes_no_setting(console: ConsoleClient) -> None:
    fields = {"node": "1", "name": "log.retention.ms", "value": "7", "confirmed": "yes"}
    for path in ("/cluster/settings", "/cluster/move", "/cluster/drain", "/cluster/undrain"):
        console.send(path, fields, token="0" * 64, status=403)
    assert "set for this broker" not in text_of(console.page("/cluster/settings?filter=log.retention.ms"))


def test_the_bucket_comes_from_the_metrics_listener(shared_gateway: GatewayProcess) -> None:
    with metrics_stub() as stub, console_client(shared_gateway.bootstrap, metrics_url=stub.url) as console:
        page = text_of(console.page("/cluster"))
        assert (
            "The gateway behind --metrics does not report everything: there is no operation status." in page
        )


@pytest.mark.parametrize("path", ["/", "/cluster"])
def test_a_gateway_without_figures_says_so_and_the_sums_are_incomplete(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    rows = [GatewayRow("1", "h:1", "1.0", {"connections": 1234.0}), GatewayRow("2", "h:2", trouble="<b>gone")]
    found = Summary(rows, {"connections": 1234.0}, 1, 2, "a right is missing")
    monkeypatch.setattr(Visit, "gateway_figures", lambda _: found)
    page = console.page(path)
    assert "<b>gone" not in page
    text = text_of(page)
    assert "no figures <b>gone." in text
    assert "incomplete The charts have the figures of 1 of 2 gateways." in text
    assert "incomplete 1 of 2 – – – – – – 1,234" in text
    assert (
        "come from --metrics, because the brokers do not tell the console theirs: A right is missing." in text
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayCluster, ConsoleClient]]:
    """Two gateways, the first with a metrics listener, and a console for both."""
    listener = f"127.0.0.1:{free_port()}"
    settings = {"seqgate.cluster.balance.enable": "false"}
    with ExitStack() as stack:
        cluster = GatewayCluster(tmp_path_factory.mktemp("cluster"), 2, settings)
        cluster.gateways[0].settings["seqgate.metrics.listener"] = listener
        stack.enter_context(cluster)
        cluster.create(TOPIC, PARTITIONS)
        console = stack.enter_context(
            console_client(cluster.gateways[0].bootstrap, metrics_url=f"http://{listener}")
        )
        yield cluster, console


def leader(cluster: GatewayCluster) -> int:
    return leaders_at(cluster.gateways[0].bootstrap, TOPIC)[0]


def test_a_partition_is_moved(cluster: tuple[GatewayCluster, ConsoleClient]) -> None:
    gateways, console = cluster
    before = leader(gateways)
    after = 3 - before
    console.page("/cluster")
    fields = {"topic": TOPIC, "partition": "0", "node": str(after)}
    asked = text_of(console.send("/cluster/move", fields))
    assert f"leader of {TOPIC}-0 node {before} node {after}" in asked
    done = text_of(console.confirmed("/cluster/move", fields))
    assert f"Node {after} leads {TOPIC}-0." in done
    assert f"node {before} node {after} 1 {TOPIC}-0" in done
    assert leader(gateways) == after
    assert "already" in text_of(console.send("/cluster/move", fields, status=400))
    assert "there is no partition" in text_of(
        console.send("/cluster/move", {**fields, "topic": "none"}, status=400)
    )
    assert "fill all three" in text_of(console.send("/cluster/move", {"topic": TOPIC}, status=400))


def test_the_bucket_and_the_state_of_each_gateway(cluster: tuple[GatewayCluster, ConsoleClient]) -> None:
    gateways, console = cluster
    page = text_of(console.page("/cluster"))
    assert f"file://{gateways.path / 'bucket'}" in page
    assert "keeps up" in page
    assert "Being handed over" in page


def test_the_figures_of_each_gateway_stand_in_a_row(cluster: tuple[GatewayCluster, ConsoleClient]) -> None:
    """The second gateway has no metrics listener: the console finds it by the cluster."""
    gateways, console = cluster
    ids = gateways.brokers()
    first, second = (str(ids[gateway.port]) for gateway in gateways.gateways)
    sampler = console.console.sampler

    def are_counted() -> bool:
        sampler.sample()
        return sampler.gateways.counted == 2

    await_true(are_counted, "the figures of both gateways")
    rows = {row.name: row for row in sampler.gateways.rows}
    assert rows.keys() == {first, second}
    for row in rows.values():
        assert row.values["connections"], "the console's own, at least"
        assert row.values["bytes_in_per_s"] is not None
    connections = sum(row.values["connections"] or 0 for row in rows.values())
    assert sampler.gateways.values["connections"] == connections
    for path in ("/", "/cluster"):
        page = text_of(console.page(path))
        assert "Of 2 gateways: their sums, and the slowest times." in page
        assert "All sums, slowest times 2 of 2" in page
        for row in rows.values():
            assert f"{row.name} {row.address} ok" in page
    data = console.data("/api/figures?range=15m")
    assert data["series"]["gateways_counted"][-1] == data["series"]["gateways"][-1] == 2


@pytest.mark.tier("all")
def test_a_gateway_is_drained_and_a_failover_is_seen(cluster: tuple[GatewayCluster, ConsoleClient]) -> None:
    gateways, console = cluster
    ids = gateways.brokers()
    first, second = (ids[gateway.port] for gateway in gateways.gateways)
    asked = text_of(console.send("/cluster/drain", {"node": str(first)}))
    assert f"partitions that node {first} leads" in asked
    done = text_of(console.confirmed("/cluster/drain", {"node": str(first)}))
    assert f"Node {first} leads nothing any more." in done
    assert "draining" in done
    assert f"Undrain node {first}" in done
    back = text_of(console.send("/cluster/undrain", {"node": str(first)}))
    assert f"Node {first} takes part again, and leads 0 partitions." in back
    assert "draining" not in back
    gateways.gateways[1].kill()

    def has_failed_over() -> bool:
        page = text_of(console.page("/cluster"))
        return f"node {second} node {first} {PARTITIONS}" in page and " ended " in page

    await_true(has_failed_over, "the page shows the failover")
    gateways.gateways[1].start()
