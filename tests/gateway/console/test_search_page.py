"""The search: hits of each kind, as the person who searches, and bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from seqgate.gateway.console.pages import search
from tests.support.console_client import ConsoleClient, console_client, text_of
from tests.support.gateway_process import GatewayProcess
from tests.support.group_members import commit_offsets
from tests.support.guarded_gateway import PASSWORD, guarded_gateway
from tests.system.commands.clients import create_topic


@pytest.fixture(scope="module")
def filled(measured_gateway: GatewayProcess) -> GatewayProcess:
    """A gateway with something of each kind whose name has `needle`."""
    place = measured_gateway.bootstrap
    create_topic(place, "needle-topic", 1)
    commit_offsets(place, "needle-group", "needle-topic", {0: 0})
    producer = Producer(
        {"bootstrap.servers": place, "transactional.id": "Needle-pay", "client.id": "needle-client"}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("needle-topic", key="needle-key", value="v")
    producer.commit_transaction(60)
    return measured_gateway


@pytest.fixture
def found(filled: GatewayProcess, measured: ConsoleClient) -> str:
    return measured.page("/search?q=needle")


@pytest.mark.parametrize(
    "link",
    [
        "/topics/needle-topic",
        "/groups/view?group=needle-group",
        "/transactions/one?id=Needle-pay",
        "/records/needle-topic?filter=needle&amp;in=key",
    ],
)
def test_each_kind_is_found_by_a_part_of_its_name(found: str, link: str) -> None:
    assert f'href="{link}"' in found


def test_a_client_id_and_a_producer_id_lead_to_the_producer(found: str, measured: ConsoleClient) -> None:
    assert "needle-client produces to needle-topic-0" in text_of(found)
    begin = found.index("/producers/one?topic=needle-topic")
    link = found[begin : found.index('"', begin)]
    producer_id = link.rpartition("=")[2]
    page = measured.page(f"/search?q={producer_id}")
    assert link in page
    assert f'href="/producer-ids?id={producer_id}"' in page


def test_the_key_search_opens_the_records(filled: GatewayProcess, measured: ConsoleClient) -> None:
    page = measured.page("/records/needle-topic?filter=needle-key&in=key")
    assert 'value="needle-key"' in page
    assert '<option value="key" selected>' in page


def test_hits_are_bounded_and_an_exact_name_comes_first(
    filled: GatewayProcess, measured: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(filled.bootstrap, "a-needle-topic", 1)
    monkeypatch.setattr(search, "MOST_HITS", 1)
    page = measured.page("/search?q=needle-topic")
    assert 'href="/topics/needle-topic"' in page
    assert 'href="/topics/a-needle-topic"' not in page
    assert "And 1 more." in text_of(page)


def test_nothing_is_found_in_one_sentence(measured: ConsoleClient) -> None:
    assert "Nothing that you may see has this in its name" in text_of(measured.page("/search?q=%3Cb%3Enone("))
    assert "Search everything" in text_of(measured.page("/search"))


@pytest.fixture(scope="module")
def as_bob(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleClient]:
    """A console of somebody who may see nothing, of a gateway with a topic and a group."""
    with guarded_gateway(tmp_path_factory.mktemp("guarded")) as gateway:
        create_topic(gateway.process.bootstrap, "needle-topic", 1)
        commit_offsets(gateway.process.bootstrap, "needle-group", "needle-topic", {0: 0})
        with console_client(gateway.login) as client:
            client.send("/login", {"username": "bob", "password": PASSWORD, "to": "/search"})
            yield client


def test_nobody_finds_what_he_may_not_see(as_bob: ConsoleClient) -> None:
    page = as_bob.page("/search?q=needle")
    assert "needle-topic" not in page
    assert "needle-group" not in page
