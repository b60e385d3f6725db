"""Kafka Streams with `exactly_once_v2`: two instances count words, one instance and the gateway are killed;
the counts are exact."""

from __future__ import annotations

from pathlib import Path

from tests.compat.groups.conftest import SETTINGS
from tests.compat.groups.word_count import WordCount, word_count
from tests.support.gateway_process import GatewayProcess

WORDS = [f"word-{number}" for number in range(23)]
WORDS_PER_LINE = 5
LINES = 400
BACKLOG_LINES = 4_000
IN_A_HURRY = {**SETTINGS, "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


def _lines(count: int) -> list[str]:
    return [
        " ".join(WORDS[(number * step) % len(WORDS)] for step in range(WORDS_PER_LINE))
        for number in range(count)
    ]


def _begin_backlog(application: WordCount) -> None:
    application.produce(_lines(BACKLOG_LINES))
    application.await_update()
    assert application.updates < application.expected, "some words must not be counted yet"


def test_counts_are_exact_whoever_is_killed(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", settings=IN_A_HURRY) as gateway:
        with word_count(
            gateway.bootstrap, tmp_path, changelog="compact", guarantee="exactly_once_v2"
        ) as application:
            first, second = application.start("first"), application.start("second")
            application.await_shared(first, second)
            _begin_backlog(application)
            gateway.restart(kill=True)
            application.connect_anew()
            application.produce(_lines(LINES))
            application.await_every_word()
            application.await_shared(first, second)
            _begin_backlog(application)
            first.kill()
            application.produce(_lines(LINES))
            application.await_every_word()
            second.leave()
            application.read_output()
            assert application.counts == application.expected
            assert application.updates == application.expected
        assert "Traceback" not in gateway.stderr_text()
