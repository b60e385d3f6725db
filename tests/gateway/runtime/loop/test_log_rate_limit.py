from __future__ import annotations

import logging

from seqgate.gateway.runtime.loop.log_output import KINDS, MAX_CHARACTERS, LineLimit, SparseLines


def record(line: int, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("x", level, "file.py", line, "refused %s", ("it",), None)


def test_a_kind_of_line_is_limited_per_second_and_the_rest_counted() -> None:
    now = [100.0]
    limit = LineLimit(lambda: now[0], lines_per_second=2)
    assert [limit.filter(record(1)) for _ in range(5)] == [True, True, False, False, False]
    assert limit.filter(record(2)), "lines of another kind must pass"
    assert limit.filter(record(1, logging.ERROR)), "errors must always pass"
    now[0] = 101.0
    later = record(1)
    assert limit.filter(later)
    assert later.getMessage() == "refused it (and 3 more lines like this)"


def test_texts_of_clients_write_no_lines_and_no_pages() -> None:
    limit = LineLimit(lambda: 0.0)
    for level in (logging.WARNING, logging.ERROR):
        forged = logging.LogRecord("x", level, "f.py", 1, "closing %s", ("a\nERROR b\x1b[31m%s",), None)
        assert limit.filter(forged)
        assert forged.getMessage() == "closing a\\nERROR b\\x1b[31m%s"
        long = logging.LogRecord("x", level, "f.py", 2, "closing %s", ("a" * 30_000,), None)
        assert limit.filter(long)
        assert len(long.getMessage()) < MAX_CHARACTERS + 30


def test_a_traceback_that_a_request_causes_each_time_is_limited_as_well() -> None:
    limit = LineLimit(lambda: 0.0, lines_per_second=2)
    failure = (ValueError, ValueError("it"), None)
    lines = [logging.LogRecord("x", logging.ERROR, "f.py", 3, "failed", (), failure) for _ in range(5)]
    assert [limit.filter(line) for line in lines] == [True, True, False, False, False]


def test_events_of_a_key_share_a_line() -> None:
    lines = SparseLines[str](10.0)
    assert lines.left_out("a", 1.0) == 0
    assert [lines.left_out("a", 2.0) for _ in range(3)] == [None] * 3
    assert lines.left_out("b", 2.0) == 0
    assert lines.left_out("a", 11.0) == 3
    assert lines.left_out("a", 21.0) == 0
    assert lines.left_out("a", 20.0) == 0, "the clock was set back"


def test_the_key_that_was_logged_first_is_forgotten() -> None:
    lines = SparseLines[int](10.0)
    assert [lines.left_out(number, 1.0) for number in range(KINDS + 1)] == [0] * (KINDS + 1)
    assert lines.left_out(KINDS, 1.0) is None
    assert lines.left_out(0, 1.0) == 0
