from __future__ import annotations

import logging

from gateway.runtime.line_limit import LineLimit


def record(line: int, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("x", level, "file.py", line, "refused %s", ("it",), None)


def test_a_kind_of_line_is_limited_per_second_and_the_rest_counted() -> None:
    now = [100.0]
    limit = LineLimit(lambda: now[0], lines_per_second=2)
    assert [limit.filter(record(1)) for _ in range(5)] == [True, True, False, False, False]
    assert limit.filter(record(2)), "another kind is not held back"
    assert limit.filter(record(1, logging.ERROR)), "errors pass"
    now[0] = 101.0
    later = record(1)
    assert limit.filter(later)
    assert later.getMessage() == "refused it (and 3 more lines like this)"
