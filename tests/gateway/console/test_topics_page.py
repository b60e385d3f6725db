"""The list of topics."""

from __future__ import annotations

import re
import time

import pytest

from seqgate.gateway.console.metrics.history import Series
from seqgate.gateway.console.pages.topics import spark
from seqgate.gateway.console.web import desk
from seqgate.gateway.console.web.visiting import ago
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


def test_a_topic_is_listed_with_its_figures(console: ConsoleClient, shared_gateway: GatewayProcess) -> None:
    changed = ("--set", "retention.ms=3600000", "--set", "cleanup.policy=compact,delete")
    seqgate("topics", "create", "cl-figures", *changed, "--bootstrap", shared_gateway.bootstrap)
    seqgate("produce", "cl-figures", "--bootstrap", shared_gateway.bootstrap, "--key", "k", stdin=b"a\nb\n")
    page = text_of(console.page("/topics?filter=cl-figures"))
    assert re.search(r"cl-figures ok 1 2 records of cl-figures .*1 h compact,delete 0 \d+ B", page), page
    found = console.data("/api/topics/cl-figures/history?range=1h")
    assert set(found["series"]) == {
        "topic_records_per_s",
        "topic_bytes_in_per_s",
        "topic_bytes_out_per_s",
        "topic_size_bytes",
    }
    assert "there is no topic" in console.data("/api/topics/cl-none/history", status=400)["error"]


def test_the_time_of_the_last_write_is_told_from_now() -> None:
    now_ms = time.time_ns() // 1_000_000
    assert re.fullmatch(
        r'<time datetime="[^"]+\+00:00" data-ago>1 h( \d+ min)? ago</time>', ago(now_ms - 3_600_000)
    )
    assert ago(None) == "–"


@pytest.mark.parametrize(
    ("values", "points"),
    [
        ([], ""),
        ([5.0], ""),
        ([None, 5.0], ""),
        ([0.0, None, 5.0], "0.0,18.0 72.0,0.0"),
        ([0.0, 0.0], "0.0,18.0 72.0,18.0"),
    ],
)
def test_a_line_shows_the_rate(values: list[float | None], points: str) -> None:
    assert spark(Series(list(range(len(values))), values)) == points


def test_a_missing_topic_is_named_and_not_asked_for_again(console: ConsoleClient) -> None:
    page = console.page("/topics/cl-none")
    assert title_of(page) == "There is no topic cl-none"
    assert "Open this page again" not in text_of(page)


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
