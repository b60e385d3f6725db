"""The list of groups, and the page of one group."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from seqgate.gateway.admin.client import ask
from seqgate.gateway.admin.groups.describing import DescribeGroupRequest
from seqgate.gateway.admin.remote.addresses import parse_addresses
from seqgate.gateway.admin.remote.cluster import connected
from seqgate.gateway.console.asking import groups
from seqgate.gateway.console.asking.topics import topic_places
from seqgate.gateway.testing import Broker
from tests.conftest import AS_THE_PEER
from tests.support.console_client import ConsoleClient, console_client, text_of, title_of
from tests.support.gateway_cluster import await_true
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.group_configs import READ_FROM_THE_START, set_group_configs
from tests.support.group_members import (
    commit_offsets,
    describe_topology,
    hold_offset,
    join_share_group,
    join_streams_group,
    member,
    send_offsets,
)
from tests.support.wire import Wire
from tests.system.commands.clients import REJECT, RELEASE, Reader, create_topic, next_producer_id, produce

NASTY = "<script>alert(1)</script>\"'&\u202egro\nup"
RECORDS = 10


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with the topics `orders` (ten records in partition 0) and `returns`, and with a metrics
    listener.
    """
    settings = {**AS_THE_PEER, "seqgate.metrics.listener": f"127.0.0.1:{free_port()}"}
    with GatewayProcess(tmp_path_factory.mktemp("groups") / "data", settings=settings) as process:
        create_topic(process.bootstrap, "orders", 2)
        create_topic(process.bootstrap, "returns", 1)
        produce(process.bootstrap, "orders", 0, next_producer_id(process.bootstrap), 0, RECORDS)
        yield process


@pytest.fixture(scope="module")
def console(gateway: GatewayProcess) -> Iterator[ConsoleClient]:
    url = f"http://{gateway.settings['seqgate.metrics.listener']}"
    with console_client(gateway.bootstrap, metrics_url=url) as client:
        yield client


def fresh(console: ConsoleClient) -> None:
    """Let the console forget the list of groups that it has kept for some seconds."""
    groups.group_lines.forget()
    groups.figures.forget()


def test_groups_of_all_kinds_are_listed(console: ConsoleClient, gateway: GatewayProcess) -> None:
    commit_offsets(gateway.bootstrap, "kind-simple", "orders", {0: 4, 1: 0})
    with (
        member(gateway.bootstrap, "kind-classic", "orders"),
        member(gateway.bootstrap, "kind-consumer", "orders", protocol="consumer"),
        Wire(gateway.bootstrap) as share,
        Wire(gateway.bootstrap) as streams,
    ):
        join_share_group(share, "kind-share", "orders", "desk-1")
        join_streams_group(streams, "kind-streams", "orders", "app-1")
        fresh(console)
        page = text_of(console.page("/groups?filter=KIND-"))
        assert "kind-classic classic Stable 1 – 0 0" in page
        assert "kind-consumer consumer Stable 1 – 0 0" in page
        assert "kind-share share Stable 1" in page
        assert "kind-streams streams" in page
        assert "kind-simple simple Empty 0 orders 2 6" in page
        listed = text_of(console.page("/groups?filter=kind-&kind=share"))
        assert "kind-share" in listed
        assert "kind-classic" not in listed
        by_lag = console.page("/groups?filter=kind-&sort=-lag")
        assert by_lag.index(">kind-simple<") < by_lag.index(">kind-classic<")
        for kind, host in (
            ("classic", "reader"),
            ("consumer", "reader"),
            ("share", "wire"),
            ("streams", "wire"),
        ):
            found = text_of(console.page(f"/groups/view?group=kind-{kind}"))
            assert f"Type {kind}" in found
            assert host in found
            assert "127.0.0.1" in found
    assert "No group matches" in text_of(console.page("/groups?filter=kind-&state=NoSuchState"))


def test_an_offline_coordinator_is_told_beside_the_groups() -> None:
    with Broker() as broker, console_client(broker.bootstrap) as console:
        broker.create_topic("orders")
        commit_offsets(broker.bootstrap, "hidden", "orders", {0: 0})
        with broker.faults.partition_offline("__consumer_offsets"):
            text = text_of(console.page("/groups"))
        assert "Groups are missing: 0 of __consumer_offsets is offline." in text
        assert "There are no groups" not in text


def test_a_group_is_listed_with_the_line_of_its_lag(console: ConsoleClient, gateway: GatewayProcess) -> None:
    commit_offsets(gateway.bootstrap, "falls-behind", "orders", {0: 4})
    fresh(console)
    await_true(
        lambda: 'class="spark"' in console.page("/groups?filter=falls-behind"),
        "the console has samples of two minutes",
        600.0,
    )


def test_a_streams_group_shows_its_topology(console: ConsoleClient, gateway: GatewayProcess) -> None:
    with Wire(gateway.bootstrap) as wire:
        join_streams_group(wire, "described", "orders", "app-1")
        assert 'id="topology"' not in console.page("/groups/view?group=described")
        describe_topology(wire, "described", "orders", "app-1")
    found = text_of(console.page("/groups/view?group=described"))
    assert "0 READS source orders COUNTS 0 COUNTS processor counts" in found
    live = ask(gateway.data_dir, DescribeGroupRequest("described"))
    assert [(row.name, row.topics, row.stores) for row in live.topology] == [
        ("READS", ["orders"], []),
        ("COUNTS", [], ["counts"]),
    ]


def test_one_group_shows_offsets_members_and_links(console: ConsoleClient, gateway: GatewayProcess) -> None:
    commit_offsets(gateway.bootstrap, "shown", "orders", {0: 4})
    commit_offsets(gateway.bootstrap, "shown", "returns", {0: 0})
    with member(gateway.bootstrap, "shown", "orders", client_id="till <b>7</b>"):
        page = console.page("/groups/view?group=shown")
        assert title_of(page) == '<span class="kind">Group</span> shown'
        assert "orders 0 4 0 10 6" in text_of(page)
        assert 'href="/records/orders?partition=0&amp;offset=4"' in page
        assert "till &lt;b&gt;7&lt;/b&gt;" in page
        assert "<b>7</b>" not in page
        only = text_of(console.page("/groups/view?group=shown&topic=returns")).partition("Partitions topic")[
            2
        ]
        assert "orders 0 4" not in only
    assert "there is no group show; the nearest name is shown" in text_of(
        console.page("/groups/view?group=show")
    )


def test_the_groups_of_a_topic(console: ConsoleClient, gateway: GatewayProcess) -> None:
    commit_offsets(gateway.bootstrap, "of-orders", "orders", {0: 1})
    commit_offsets(gateway.bootstrap, "of-returns", "returns", {0: 0})
    fresh(console)
    page = text_of(console.page("/groups?topic=returns"))
    assert "of-returns" in page
    assert "of-orders" not in page


def test_names_are_text_and_never_html(console: ConsoleClient, gateway: GatewayProcess) -> None:
    commit_offsets(gateway.bootstrap, NASTY, "orders", {0: 1})
    fresh(console)
    path = "/groups/view?group=%3Cscript%3Ealert(1)%3C%2Fscript%3E%22%27%26%E2%80%AEgro%0Aup"
    reset = path.replace("view", "reset")
    for address in ("/groups", path, reset, f"{reset}&target=earliest"):
        main = console.page(address).partition("<main")[2]
        assert "<script>" not in main, address
        assert "&lt;script&gt;alert(1)" in main, address
    assert path.replace("(", "%28").replace(")", "%29") in console.page("/groups")


def test_offsets_of_open_transactions(console: ConsoleClient, gateway: GatewayProcess) -> None:
    with Wire(gateway.bootstrap) as wire:
        producer = hold_offset(wire, "till", "held", "orders", 7)
        assert "orders 0 7 till" in text_of(console.page("/groups/view?group=held"))
        wire.call("end_txn", 3, transactional_id="till", committed=True, **producer)


def test_the_lag_is_sampled_always(console: ConsoleClient, gateway: GatewayProcess) -> None:
    commit_offsets(gateway.bootstrap, "lags", "orders", {0: 3})
    feed = "/api/groups/lag?group=lags&topic=orders"
    console.console.sampler.sample()
    with Wire(gateway.bootstrap) as wire:
        send_offsets(wire, "lags", "orders", {0: 9})
    console.console.sampler.sample()
    found = console.data(feed)
    assert 7.0 in found["series"]["lag"]
    assert found["series"]["topic:orders"][-1] == 1.0
    page = console.page("/topics/orders")
    assert re.search("Lag of (its groups|group lags)", text_of(page))
    assert re.search(r'data-source="/api/topics/orders/lag.group=', page)
    assert console.data("/api/topics/orders/lag?group=lags")["series"]["lag-0"][-1] == 1.0
    assert not console.data("/api/topics/orders/lag?group=none")["series"], "no group that nobody may see"


def test_a_group_with_members_stays(console: ConsoleClient, gateway: GatewayProcess) -> None:
    with member(gateway.bootstrap, "stays", "orders"):
        refused = console.send("/groups/delete", {"group": "stays"}, status=400)
        assert "group stays is in use: state Stable; stop its consumers" in text_of(refused)


def test_a_group_is_deleted_after_its_name_was_typed(console: ConsoleClient, gateway: GatewayProcess) -> None:
    commit_offsets(gateway.bootstrap, "old", "orders", {0: 1})
    asked = console.send("/groups/delete", {"group": "old"})
    assert "Delete group old?" in asked
    again = console.send("/groups/delete", {"group": "old", "confirmed": "yes", "typed": "ol"})
    assert "Delete group old?" in again
    done = console.confirmed("/groups/delete", {"group": "old"}, typed="old")
    assert "Group old is deleted." in done
    assert "there is no group old" in text_of(console.page("/groups/view?group=old"))


def test_a_group_that_nobody_can_type_is_deleted(console: ConsoleClient, gateway: GatewayProcess) -> None:
    commit_offsets(gateway.bootstrap, "two\nlines", "orders", {0: 1})
    done = console.confirmed("/groups/delete", {"group": "two\nlines"}, typed="delete")
    assert "is deleted." in text_of(done)


def test_a_wrong_token_deletes_nothing(console: ConsoleClient, gateway: GatewayProcess) -> None:
    commit_offsets(gateway.bootstrap, "guarded", "orders", {0: 1})
    fields = {"group": "guarded", "confirmed": "yes", "typed": "guarded"}
    console.send("/groups/delete", fields, token="0" * 64, status=403)
    assert "orders 0 1" in text_of(console.page("/groups/view?group=guarded"))


def test_a_share_group_shows_the_records_that_wait_for_a_retry(
    console: ConsoleClient, gateway: GatewayProcess
) -> None:
    hour = {"seqgate.share.retry.backoff.ms": "3600000"}
    set_group_configs(gateway.bootstrap, "desk", {**READ_FROM_THE_START, **hour})
    with Wire(gateway.bootstrap) as wire:
        reader = Reader(wire)
        assert reader.fetch() == [(0, RECORDS - 1, 1)]
        reader.acknowledge((2, 4, RELEASE))
        page = text_of(console.page("/groups/view?group=desk"))
    assert "Acquired Waiting Dying Most deliveries" in page
    assert "orders 0 0 10 10 7 3 0 1 Records" in page


def test_brokers_of_years_ago_tell_the_offsets_of_each_group(gateway: GatewayProcess) -> None:
    """Before Kafka 3.0 FindCoordinator and OffsetFetch take one group at a time."""
    lines = [groups.GroupLine(name, "simple", "", "") for name in ("old-1", "old-2")]
    for line in lines:
        commit_offsets(gateway.bootstrap, line.group, "orders", {0: 4})
    with connected(parse_addresses(gateway.bootstrap)) as cluster:
        read = groups.progress_of(cluster, lines)
        place = topic_places(cluster, "orders")
        cluster._versions = {3: 11, 9: 7, 10: 3}
        assert groups.progress_of(cluster, lines) == read
        assert topic_places(cluster, "orders") == place
    assert [read[line.group].committed["orders", 0].offset for line in lines] == [4, 4]


def test_brokers_without_the_lag_of_share_groups_tell_the_rest(gateway: GatewayProcess) -> None:
    """Apache Kafka up to 4.1 has DescribeShareGroupOffsets in version 0 only."""
    commit_offsets(gateway.bootstrap, "old", "orders", {0: 4})
    lines = [groups.GroupLine("old", "classic", "", ""), groups.GroupLine("desk", "share", "", "")]
    with connected(parse_addresses(gateway.bootstrap)) as cluster:
        cluster._versions = {**cluster._versions, 90: 0}
        read = groups.progress_of(cluster, lines)
    assert (list(read), read["old"].committed["orders", 0].offset) == (["old"], 4)


def test_a_share_group_shows_its_newest_dead_letters(console: ConsoleClient, gateway: GatewayProcess) -> None:
    bootstrap = gateway.bootstrap
    setting = {"errors.deadletterqueue.topic.name": "dlq.desk"}
    set_group_configs(bootstrap, "desk", {**READ_FROM_THE_START, **setting})
    produce(bootstrap, "orders", 1, next_producer_id(bootstrap), 0, RECORDS)

    def shown() -> str:
        groups.newest_letters.forget()
        return text_of(console.page("/groups/view?group=desk"))

    with Wire(bootstrap) as wire:
        reader = Reader(wire, partition=1)
        assert "They can't be read: there is no topic dlq.desk" in shown()
        create_topic(bootstrap, "dlq.desk", 1, {"errors.deadletterqueue.group.enable": "true"})
        assert "None of this group is among the newest records of dlq.desk" in shown()
        assert reader.fetch() == [(0, RECORDS - 1, 1)]
        reader.acknowledge((5, 5, REJECT))
    await_true(
        lambda: "orders-1@5 \u2013 1 Offset rejected by client. Letter" in shown(), "a letter is shown"
    )
    assert 'href="/records/dlq.desk/0/0"' in console.page("/groups/view?group=desk")
    assert "__dlq.errors.group" in console.page("/records/dlq.desk/0/0")
