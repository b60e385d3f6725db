"""A stateful Kafka Streams application: a repartition topic, counts in memory, with or without a changelog.

Processing is at least once. When an instance or the gateway is killed, words may be counted again, but none
may be missing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.groups.conftest import SETTINGS
from tests.compat.groups.word_count import WordCount, word_count
from tests.support.gateway_process import GatewayProcess
from tests.tiers import in_tiers

WORDS = [f"word-{number}" for number in range(23)]
WORDS_PER_LINE = 5
LINES = 400
BACKLOG_LINES = 4_000


def _lines(count: int) -> list[str]:
    return [
        " ".join(WORDS[(number * step) % len(WORDS)] for step in range(WORDS_PER_LINE))
        for number in range(count)
    ]


def _expect_exact(application: WordCount) -> None:
    application.await_all_committed()
    assert application.counts == application.expected
    assert application.updates == application.expected


@pytest.mark.tier("nightly")
def test_two_instances_share_the_work_and_count_exactly(
    group_gateway: GatewayProcess, tmp_path: Path
) -> None:
    with word_count(group_gateway.bootstrap, tmp_path, changelog="none") as application:
        first, second = application.start("first"), application.start("second")
        application.await_shared(first, second)
        for _ in range(3):
            application.produce(_lines(LINES))
            application.await_every_word()
        _expect_exact(application)
        application.await_purged()
        first.leave()
        second.leave()
        assert "ERROR" not in first.stderr_text() + second.stderr_text()


@pytest.mark.tier("nightly")
def test_counts_move_with_their_partitions_and_stay_exact(
    group_gateway: GatewayProcess, tmp_path: Path
) -> None:
    with word_count(group_gateway.bootstrap, tmp_path, changelog="compact") as application:
        first = application.start("first")
        application.await_shared(first)
        application.produce(_lines(LINES))
        application.await_every_word()
        second = application.start("second")
        application.produce(_lines(LINES))
        application.await_shared(first, second)
        application.produce(_lines(LINES))
        application.await_every_word()
        first.leave()
        application.produce(_lines(LINES))
        application.await_shared(second)
        application.await_every_word()
        _expect_exact(application)
        second.leave()


@pytest.mark.parametrize("changelog", in_tiers(["none", "compact"], nightly=["none"]))
def test_the_other_counts_what_a_killed_instance_has_left(
    group_gateway: GatewayProcess, tmp_path: Path, changelog: str
) -> None:
    with word_count(group_gateway.bootstrap, tmp_path, changelog=changelog) as application:
        first, second = application.start("first"), application.start("second")
        application.await_shared(first, second)
        application.produce(_lines(LINES))
        application.await_every_word()
        application.produce(_lines(BACKLOG_LINES))
        application.await_update()
        first.kill()
        assert application.backlog > 0, "some words must not be counted yet"
        application.produce(_lines(LINES))
        application.await_every_word(told_last=changelog != "none")
        application.await_shared(second)
        application.await_all_committed()
        second.leave()


@pytest.mark.tier("nightly")
def test_both_go_on_when_the_gateway_is_killed(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        with word_count(gateway.bootstrap, tmp_path, changelog="compact") as application:
            first, second = application.start("first"), application.start("second")
            application.await_shared(first, second)
            for _ in range(2):
                application.produce(_lines(BACKLOG_LINES))
                application.await_update()
                assert application.backlog > 0, "some words must not be counted yet"
                gateway.restart(kill=True)
                application.connect_anew()
                application.produce(_lines(LINES))
                application.await_every_word()
                application.await_shared(first, second)
                application.await_all_committed()
            first.leave()
            second.leave()
        assert "Traceback" not in gateway.stderr_text()
