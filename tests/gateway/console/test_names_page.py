"""The producer names of topics that deduplicate."""

from __future__ import annotations

import re

import pytest

from tests.compat.topics import fresh_topic
from tests.support.console_client import ConsoleClient, text_of
from tests.support.gateway_process import GatewayProcess
from tests.support.named_batches import DEDUPLICATED, named
from tests.support.producing import send

NAUGHTY = b'<script>alert("1")</script>\xff\xe2\x80\xae\xed\xa0\x80'


@pytest.fixture
def topic(measured_gateway: GatewayProcess) -> str:
    return fresh_topic(measured_gateway.bootstrap, "ledger", configs=DEDUPLICATED)


def test_names_with_their_sequences(
    measured: ConsoleClient, measured_gateway: GatewayProcess, topic: str
) -> None:
    bootstrap = measured_gateway.bootstrap
    assert send(bootstrap, topic, -1, -1, batch=named("Köln", 1, 2, 3))[0] == 0
    assert send(bootstrap, topic, -1, -1, batch=named("Köln", 2, 3))[0] == 0
    assert send(bootstrap, topic, -1, -1, batch=named(NAUGHTY, 8, epoch=5))[0] == 0
    page = measured.page(f"/names?topic={topic}")
    text = text_of(page)
    assert re.search(rf"Köln {topic}-0 3 3 – \S+ s 2 persisted", text), text
    assert re.search(r"</script>\S+ \S+ 8 8 5", text), text
    assert "<script>alert" not in page
    assert "\u202e" not in page
    one = text_of(measured.page(f"/names?topic={topic}&name=K%C3%B6ln"))
    assert "Köln" in one
    assert "alert" not in one
    assert "No partition tracks this name" in text_of(measured.page(f"/names?topic={topic}&name=other"))
    assert topic in text_of(measured.page("/names"))


def test_many_names_come_in_pages(
    measured: ConsoleClient, measured_gateway: GatewayProcess, topic: str
) -> None:
    names = sorted(f"machine-{number}" for number in range(130))
    for name in names:
        send(measured_gateway.bootstrap, topic, -1, -1, batch=named(name, 1))
    path: str | None = f"/names?topic={topic}"
    seen: list[str] = []
    while path is not None:
        page = measured.page(path)
        seen += re.findall(r'<th scope="row" class="mono" dir="auto"[^>]*>([^<]*)</th>', page)
        following = re.search(r'rel="next" href="([^"]*)"', page)
        path = None if following is None else following[1].replace("&amp;", "&")
    assert seen == names


def test_what_can_not_be_shown_is_told(
    measured: ConsoleClient, unmeasured: ConsoleClient, measured_gateway: GatewayProcess, topic: str
) -> None:
    assert topic in text_of(unmeasured.page(f"/names?topic={topic}"))
    plain = fresh_topic(measured_gateway.bootstrap, "plain")
    assert "message.deduplication.enable is false" in text_of(measured.page(f"/names?topic={plain}"))
    assert "choose the topic" in text_of(measured.page("/names?partition=1"))
    wrong = measured.page(f"/names?topic={topic}&begin_topic={topic}&begin_after=x")
    assert "begin_after must be base64" in text_of(wrong)
    assert "No name is tracked here yet" in text_of(measured.page(f"/names?topic={topic}"))
