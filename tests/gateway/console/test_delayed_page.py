"""Delayed records that wait, and the topics in which they can wait."""

from __future__ import annotations

import re
import time

import pytest

from tests.compat.topics import fresh_topic
from tests.support.batches import Batch, Record
from tests.support.console_client import ConsoleClient, console_client, text_of
from tests.support.gateway_process import GatewayProcess
from tests.support.producing import send


def test_counts_what_waits_and_lists_topics(
    measured: ConsoleClient, unmeasured: ConsoleClient, measured_gateway: GatewayProcess
) -> None:
    topic = fresh_topic(measured_gateway.bootstrap, "reminders", configs={"delivery.delay.header": "due<b>"})
    in_an_hour = b"%d" % (int(time.time() * 1000) + 3_600_000)
    waiting = Batch([Record(b"v", headers=[(b"due<b>", in_an_hour)])] * 4)
    assert send(measured_gateway.bootstrap, topic, -1, -1, batch=waiting)[0] == 0
    page = measured.page("/delayed")
    text = text_of(page)
    assert re.search(r"Waiting records, all topics 4\b", text), text
    assert "1,000,000" in text
    assert f"{topic} due<b> 30 d 1 h" in text
    assert "due<b>" not in page
    measured.console.sampler.sample()
    measured.console.sampler.sample()
    assert 4 in measured.data("/api/delayed")["series"]["delayed_records"]
    assert re.search(r"Waiting records, all topics 4\b", text_of(unmeasured.page("/delayed")))


@pytest.mark.usefixtures("foreign_brokers")
def test_topics_are_listed_where_nobody_counts(
    unmeasured: ConsoleClient, measured_gateway: GatewayProcess
) -> None:
    topic = fresh_topic(measured_gateway.bootstrap, "reminders", configs={"delivery.delay.header": "due"})
    plain = text_of(unmeasured.page("/delayed"))
    assert topic in plain
    assert "Only a Seqgate gateway tells how many records wait" in plain
    with console_client(measured_gateway.bootstrap, metrics_url="http://127.0.0.1:1") as console:
        broken = text_of(console.page("/delayed"))
    assert topic in broken
    assert "does not answer" in broken
