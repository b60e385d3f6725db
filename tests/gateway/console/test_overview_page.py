"""The overview: what a person may see of it, what it judges from samples, and what stays while nothing answers."""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from seqgate.gateway.admin.remote import cluster as remote
from seqgate.gateway.console.health import ENOUGH
from seqgate.gateway.console.metrics.history import HOUR_MS, LAG, key_of
from tests.support.console_client import ConsoleClient, console_client, text_of, title_of
from tests.support.gateway_cluster import NEVER_ENDING_LEASE_MS, GatewayCluster, await_true
from tests.support.gateway_process import GatewayProcess
from tests.support.group_members import commit_offsets
from tests.support.guarded_gateway import PASSWORD, Guarded, guarded_gateway
from tests.system.commands.clients import create_topic
from tests.system.commands.conftest import seqgate

WAIT_S = 200.0
GROUPS = 12
"""Enough groups for each of three gateways to coordinate some."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_gateway(tmp_path_factory.mktemp("guarded")) as gateway:
        yield gateway


def test_a_missing_right_is_no_alarm(guarded: Guarded) -> None:
    with console_client(guarded.login) as console:
        page = text_of(console.send("/login", {"username": "bob", "password": PASSWORD, "to": "/"}))
        assert "does not answer" not in page
        assert "no answer" not in page
        assert "Nothing is wrong" in page
        assert "You may not see all of this" in page
        command = "seqgate acls add --allow-principal User:bob --operation describe --cluster"
        assert page.count(command) == 1
        cluster = text_of(console.page("/cluster"))
        assert "does not answer" not in cluster
        assert command in cluster
        users = console.page("/access/users")
        assert title_of(users) == "You may not see this"
        assert command in text_of(users)
        quotas = text_of(console.page("/access/quotas"))
        assert "User bob lacks the right to describe the configs of the cluster" in quotas


def test_the_command_on_the_page_gives_the_right(guarded: Guarded) -> None:
    with console_client(guarded.login) as console:
        console.send("/login", {"username": "bob", "password": PASSWORD, "to": "/"})
        right = ("--allow-principal", "User:bob", "--operation", "describe", "--cluster")
        seqgate("acls", "add", *right, "--bootstrap", guarded.process.bootstrap)
        assert "You may not see all of this" not in text_of(console.page("/"))


def test_an_empty_cluster_says_how_to_connect(guarded: Guarded) -> None:
    with console_client(guarded.process.bootstrap) as console:
        page = text_of(console.page("/"))
    assert f"bootstrap.servers={guarded.process.bootstrap}" in page
    assert f"seqgate topics create orders --bootstrap {guarded.process.bootstrap}" in page


def test_a_lag_that_grows_is_never_green(console: ConsoleClient, shared_gateway: GatewayProcess) -> None:
    create_topic(shared_gateway.bootstrap, "judged", 1)
    commit_offsets(shared_gateway.bootstrap, "judged-group", "judged", {0: 0})
    now_ms = time.time_ns() // 1_000_000
    samples = 4 * ENOUGH
    for number in range(samples):
        at_ms = now_ms - (samples - number) * 20_000
        console.console.sampler.history.add(at_ms, {key_of(LAG, {"group": "judged-group"}): 1_000.0 * number})
    page = text_of(console.page("/"))
    assert "Nothing is wrong" not in page
    assert "Group judged-group falls behind" in page
    assert "records in a minute" in page


def test_what_gateways_report_of_themselves_needs_no_metrics_listener(tmp_path: Path) -> None:
    no_room = {"seqgate.log.min.free.bytes": str(2**62)}
    with (
        GatewayProcess(tmp_path / "data", settings=no_room) as gateway,
        console_client(gateway.bootstrap) as console,
    ):
        page = text_of(console.page("/"))
    assert "The disk is nearly full, and producers are refused." in page
    assert "what gateways report of themselves" not in page


@pytest.mark.usefixtures("foreign_brokers")
def test_what_nobody_reports_is_not_judged(console: ConsoleClient) -> None:
    assert re.search(r"Not judged yet: .*what gateways report of themselves", text_of(console.page("/")))


def test_the_page_stays_while_nothing_answers(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data") as gateway, console_client(gateway.bootstrap) as console:
        assert "Nothing is wrong" in text_of(console.page("/"))
        head = console.page("/").partition("<main")[0]
        assert gateway.bootstrap in head
        assert 'title="The id of the cluster"' in head
        gateway.kill()
        overview = console.page("/")
        assert "The cluster does not answer." in text_of(overview)
        assert 'data-source="/api/figures"' in overview
        topics = console.page("/topics")
        assert title_of(topics) == "The cluster does not answer"
        assert 'data-island="again"' in topics
        assert gateway.bootstrap in topics.partition("<main")[0]
        gateway.start()
        assert "Nothing is wrong" in text_of(console.page("/"))


@pytest.mark.tier("all")
def test_gateways_that_stand_still_are_named_and_the_others_tell_what_they_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes over, and a question without a time limit of its own waits for longer than this test."""
    monkeypatch.setattr(remote, "TIMEOUT_S", HOUR_MS / 1000)
    unhurried = {"seqgate.cluster.lease.ms": str(NEVER_ENDING_LEASE_MS)}
    with GatewayCluster(tmp_path, 3, unhurried) as cluster, console_client(cluster.bootstrap) as console:
        cluster.create()
        node_ids = cluster.brokers()
        for number in range(GROUPS):
            with closing(
                Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"g{number}"})
            ) as each:
                each.commit(offsets=[TopicPartition("lines", 0, 0)], asynchronous=False)

        def says(sentence: str) -> bool:
            return sentence in text_of(console.page("/"))

        whole = f"Groups {GROUPS} Open transactions 0"
        await_true(partial(says, whole), "all gateways answer", WAIT_S)
        for away in itertools.combinations(cluster.gateways, 2):
            for gateway in away:
                os.kill(gateway.pid, signal.SIGSTOP)
            sentences = [
                f"Broker {node_ids[each.port]} at {each.bootstrap} does not answer." for each in away
            ]
            for sentence in sentences:
                await_true(partial(says, sentence), "the page names it", WAIT_S)
            found = re.search(r"Groups (\d+) Open transactions 0 ", text_of(console.page("/")))
            assert found is not None, "what the third one tells is there"
            for path, what in (("/groups", "Groups and their lag"), ("/transactions", "Transactional ids")):
                page = text_of(console.page(path))
                assert f"{what} are those that the other brokers tell." in page
                assert page.count("gives no answer: no answer in time") == len(away)
            listed = len(re.findall(r"/groups/view\?group=g", console.page("/groups")))
            assert listed == int(found[1]) < GROUPS
            for gateway in away:
                os.kill(gateway.pid, signal.SIGCONT)
            await_true(partial(says, whole), "all gateways answer again", WAIT_S)
            assert not any(map(says, sentences))


def test_the_head_has_the_version_that_the_gateway_tells(measured: ConsoleClient) -> None:
    measured.page("/topics")
    for path, status in (("/groups", 200), ("/no-such-page", 404)):
        assert f"Seqgate {version('seqgate')}" in measured.page(path, status).partition("<main")[0]


def test_a_page_that_does_not_exist_is_not_offered_again(console: ConsoleClient) -> None:
    assert "Open this page again" not in console.page("/no-such-page", status=404)
