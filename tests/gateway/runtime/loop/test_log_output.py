""""""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqgate.gateway.runtime.loop import log_output
from seqgate.gateway.runtime.loop.log_output import (
    AUDIT,
    JSON,
    LINES_KEPT,
    LINES_PER_SECOND,
    MAX_CHARACTERS,
    TEXT,
    UNLIMITED,
    LineLimit,
    RecentLines,
    handler_for,
    name_worker,
    recent_lines,
)


def record(message: str = "refused %s", *, error: BaseException | None = None) -> logging.LogRecord:
    failure = (type(error), error, None) if error else None
    made = logging.LogRecord("gateway.x", logging.WARNING, "file.py", 1, message, ("it",), failure)
    made.created = 1_795_372_352.4179
    return made


def written(line_format: str, path: Path, *records: logging.LogRecord) -> list[str]:
    handler = handler_for(line_format, str(path), lambda: 0.0)
    for one in records:
        handler.handle(one)
    handler.close()
    return path.read_text().splitlines()


def test_a_text_line_has_its_time_in_utc_and_says_so(tmp_path: Path) -> None:
    assert written(TEXT, tmp_path / "log", record()) == [
        "2026-11-22T18:32:32.417Z WARNING gateway.x: refused it"
    ]


def test_a_json_line_is_one_object_whatever_the_client_sent(tmp_path: Path) -> None:
    lines = written(JSON, tmp_path / "log", record('a "b"\n%s'), record(error=ValueError("boom")))
    first, second = (json.loads(line) for line in lines)
    assert first == {
        "time": "2026-11-22T18:32:32.417Z",
        "level": "WARNING",
        "logger": "gateway.x",
        "message": 'a "b"\\nit',
    }
    assert second["error"].endswith("ValueError: boom")


def test_a_rotated_file_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    handler = handler_for(TEXT, str(path), lambda: 0.0)
    handler.handle(record())
    path.rename(tmp_path / "log.1")
    handler.handle(record())
    handler.close()
    assert [len((tmp_path / name).read_text().splitlines()) for name in ("log", "log.1")] == [1, 1]


def test_without_a_file_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    handler = handler_for(TEXT, None, lambda: 0.0)
    assert isinstance(handler, logging.StreamHandler)
    assert handler.stream is sys.stderr
    handler.handle(record())
    assert capsys.readouterr().err.endswith("gateway.x: refused it\n")


def test_the_record_of_changes_is_never_cut_short() -> None:
    limit = LineLimit(lambda: 0.0, lines_per_second=1)
    lines = [logging.LogRecord(UNLIMITED, logging.INFO, "f.py", 1, "x", (), None) for _ in range(50)]
    assert all(limit.filter(line) for line in lines)


def test_root_returns_to_the_level_of_the_setting() -> None:
    before = logging.getLogger().level
    try:
        log_output.set_start_level("ERROR")
        log_output.set_level(log_output.ROOT, "DEBUG")
        assert log_output.levels()[log_output.ROOT] == "DEBUG"
        log_output.set_level(log_output.ROOT, None)
        assert log_output.levels()[log_output.ROOT] == "ERROR"
    finally:
        log_output.set_start_level("INFO")
        logging.getLogger().setLevel(before)


def test_a_line_reads_the_same_in_the_file_and_in_memory(tmp_path: Path) -> None:
    now = [100.0]
    file, recent = handler_for(TEXT, str(tmp_path / "log"), lambda: now[0]), RecentLines()
    recent.addFilter(LineLimit(lambda: now[0]))
    long = "é" * 3_000
    for number in range(LINES_PER_SECOND + 4):
        now[0] += number == LINES_PER_SECOND + 3
        line = record(f"{long}%s")
        for handler in (file, recent):
            handler.handle(line)
    file.close()
    written = (tmp_path / "log").read_text().splitlines()
    assert written[-1].endswith("é… (3002 characters) (and 3 more lines like this)")
    assert [line.message for line in recent.lines] == [line.split(": ")[1] for line in written]


@pytest.mark.parametrize("name", [UNLIMITED, AUDIT])
def test_no_level_of_another_logger_hides_the_record_of_changes(name: str) -> None:
    loggers = [logging.getLogger(each) for each in (None, "seqgate", UNLIMITED, AUDIT)]
    before = [logger.level for logger in loggers]
    handlers = logging.getLogger().handlers[:]
    try:
        log_output.begin("INFO", TEXT, None)
        for above in ("seqgate", log_output.ROOT):
            log_output.set_level(above, "FATAL")
        assert logging.getLogger(name).isEnabledFor(logging.INFO)
        log_output.set_level(name, "DEBUG")
        log_output.set_level(name, None)
        assert logging.getLogger(name).getEffectiveLevel() == logging.INFO
    finally:
        logging.getLogger().handlers[:] = handlers
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@pytest.mark.parametrize(("line_format", "shown"), [(TEXT, " worker 2 WARNING "), (JSON, '"worker": 2')])
def test_each_line_has_the_number_of_its_worker(
    line_format: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = handler_for(line_format, str(tmp_path / "log"), lambda: 0.0)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    name_worker(2)
    handler.handle(record())
    handler.close()
    assert shown in (tmp_path / "log").read_text()


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
