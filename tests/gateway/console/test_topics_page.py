"""The list of topics."""

from __future__ import annotations

import pytest

from seqgate.gateway.console.web import desk
from tests.support.console_client import ConsoleClient, text_of, title_of
from tests.support.gateway_process import GatewayProcess
from tests.system.commands.conftest import seqgate


def test_topics_are_listed_filtered_and_sorted(
    console: ConsoleClient, shared_gateway: GatewayProcess
) -> None:
    for name, partitions in (("cl-a", 1), ("cl-b", 3)):
        seqgate(
            "topics", "create", name, "--partitions", str(partitions), "--bootstrap", shared_gateway.bootstrap
        )
    console.page("/topics")
    page = console.page("/topics?filter=CL-&sort=-partitions")
    assert title_of(page) == "Topics"
    assert page.index(">cl-b<") < page.index(">cl-a<")
    assert "No topic matches" in text_of(console.page("/topics?filter=%3Cscript%3E"))
    assert "<script>" not in console.page("/topics?filter=%3Cscript%3E").partition("<main")[2]


def test_a_wrong_page_number_is_told(console: ConsoleClient) -> None:
    assert "page must be a number" in text_of(console.page("/topics?page=x"))


def test_a_notice_comes_with_its_page_and_not_while_the_console_waits(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"csrf": console.token(), "name": "cl-noted", "partitions": "1", "confirmed": "yes"}
    with monkeypatch.context() as patched:
        patched.setattr(desk, "PATIENCE_S", 0)
        waiting = console.http.post("/create-topic", data=fields)
    assert "Waiting for" in text_of(waiting.text)
    assert "is created" not in text_of(waiting.text)
    assert "Topic cl-noted is created." in text_of(console.page(str(waiting.url)))
