"""The newest log lines in memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from seqgate.gateway.runtime.loop.log_output import LINES_PER_SECOND, MAX_CHARACTERS, LineLimit
from seqgate.gateway.runtime.loop.recent_lines import LINES_KEPT, RecentLines, recent_lines


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger whose lines the process keeps, as `log_output.begin` arranges it."""
    handler = RecentLines()
    handler.addFilter(LineLimit(lambda: 1.0))
    root = logging.getLogger()
    root.addHandler(handler)
    logger = logging.getLogger("gateway.test")
    logger.setLevel(logging.INFO)
    yield logger
    root.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_a_process_that_keeps_none() -> None:
    assert recent_lines() == ()


def test_a_line(logger: logging.Logger) -> None:
    logger.warning("%s of %d", "one", 2)
    (line,) = recent_lines()
    assert (line.number, line.level, line.logger, line.message, line.error) == (
        1,
        "WARNING",
        "gateway.test",
        "one of 2",
        None,
    )


def test_the_traceback_is_kept_up_to_its_end(logger: logging.Logger) -> None:
    try:
        raise ValueError("the reason")
    except ValueError:
        logger.exception("it failed")
    try:
        raise ValueError("x" * 100_000 + "the end")
    except ValueError:
        logger.exception("it failed")
    logger.error("no exception", exc_info=True)  # noqa: LOG014 - a handler must take this as well
    first, second, third = recent_lines()
    assert first.error is not None
    assert first.error.startswith("Traceback")
    assert first.error.endswith("ValueError: the reason\n")
    assert second.error is not None
    assert second.error.endswith("the end\n")
    assert len(second.error) == 4_000
    assert third.error is not None


def test_the_oldest_lines_are_forgotten(logger: logging.Logger) -> None:
    for number in range(LINES_KEPT + 5):
        logger.error("line %d", number)
    lines = recent_lines()
    assert len(lines) == LINES_KEPT
    assert [line.number for line in (lines[0], lines[-1])] == [6, LINES_KEPT + 5]
    assert lines[-1].message == f"line {LINES_KEPT + 4}"


def test_long_lines_are_cut_and_control_characters_escaped(logger: logging.Logger) -> None:
    logger.error("a\nb\x1b[31m%s", "x" * 1_000_000)
    (line,) = recent_lines()
    assert line.message.startswith("a\\nb\\x1b[31mxxx")
    assert len(line.message) < MAX_CHARACTERS + 100


def test_lines_of_one_kind_are_limited(logger: logging.Logger) -> None:
    for number in range(5 * LINES_PER_SECOND):
        logger.info("line %d", number)
    logger.info("another kind")
    lines = recent_lines()
    assert [line.message for line in lines] == [
        *(f"line {number}" for number in range(LINES_PER_SECOND)),
        "another kind",
    ]


def test_lines_of_several_threads(logger: logging.Logger) -> None:
    def log() -> None:
        for _ in range(2_000):
            logger.error("a line")
            recent_lines()

    threads = [threading.Thread(target=log) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [line.number for line in recent_lines()]
    assert numbers == list(range(8_001 - LINES_KEPT, 8_001))
